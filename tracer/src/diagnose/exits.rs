//! Exits of containers and of commands that the runtime never learns of, as the rules about shims look at them.

use super::{Culprit, Evidence, Finding, Rule, Scene, Source, unmount::open_delete};
use crate::{
    correlate::{ProcessSeen, Snapshot},
    input::{Component, Holder},
    stuck::{Stuck, StuckKind, Waiter},
    words::cut,
};

/// First and last patch release of a series with a bug.
pub(super) type Series = (u32, u32, u32, u32);

/// The end of a process that the runtime does not know of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost<'a> {
    pub(super) stuck: &'a Stuck,
    /// It was a command in a container, not the container.
    pub(super) is_command: bool,
    /// Its process, which has ended.
    pub(super) pid: u32,
    /// Nobody has asked how it ended; otherwise it is gone.
    pub(super) zombie: bool,
    pub(super) tracer: Option<&'a Holder>,
    /// The shim that should have reported it.
    pub(super) shim: &'a ProcessSeen,
    runtime: u32,
    state: Option<&'a str>,
}

impl<'a> Lost<'a> {
    /// Those whose shim could have reported them: it runs, and waits neither for a `runc` that is stuck, nor inside the kernel, as for
    /// the end of an unmount (R3, S5), nor for the runtime to read (S2). One that is asked to delete a task has reported its end.
    pub(super) fn all(scene: &Scene<'a>) -> impl Iterator<Item = Self> {
        scene.stuck().filter_map(|stuck| Self::of(stuck, scene))
    }

    fn of(stuck: &'a Stuck, scene: &Scene<'a>) -> Option<Self> {
        let StuckKind::Unreported { exec, pid, zombie, tracer, state, runtime, .. } = &stuck.what else {
            return None;
        };
        let shim = shim_of(stuck, scene.snapshot)?;
        let busy = scene.stuck().any(|other| waits(shim.fact.pid, other));
        let busy = busy || is_in_kernel(shim) || open_delete(shim.fact.pid, scene).is_some();
        (shim.still_since.is_none() && !busy).then_some(Self {
            stuck,
            is_command: exec.is_some(),
            pid: *pid,
            zombie: *zombie,
            tracer: tracer.as_ref(),
            shim,
            runtime: *runtime,
            state: state.as_deref(),
        })
    }

    /// `containerd 4711 still reports it as running`.
    pub(super) fn belief(&self, scene: &Scene<'_>) -> String {
        let mut processes = scene.snapshot.census.processes.iter();
        let component = processes.find(|seen| seen.fact.pid == self.runtime);
        let name = component.map_or("the runtime", |seen| seen.fact.component.name());
        match self.state {
            Some(state) => format!("{name} {} still reports it as {}", self.runtime, cut(state, 20)),
            None => format!("ExecSync in {name} {} still waits for it", self.runtime),
        }
    }

    /// A finding with this one to blame.
    pub(super) fn finding(
        &self,
        rule: &'static Rule,
        headline: String,
        culprit: (Component, u32, String),
        scene: &Scene<'_>,
    ) -> Finding {
        let (component, pid, words) = culprit;
        let culprit = Culprit { component, pid: Some(pid), container: self.stuck.container.clone(), words };
        let finding = Finding::of_stuck(rule, headline, component, self.stuck, scene);
        Finding { culprit: Some(culprit), behind: Some(self.pid), ..finding }
    }

    /// A finding that blames the shim, as sure as its version allows.
    pub(super) fn of_shim(
        &self,
        rule: &'static Rule,
        headline: String,
        affected: &[Series],
        scene: &Scene<'_>,
    ) -> Finding {
        let shim = self.shim.fact.pid;
        let words = format!("shim {shim}, which has not reported the exit of process {}", self.pid);
        let finding = self.finding(rule, headline, (Component::Shim, shim, words), scene);
        let text = format!(
            "shim {shim} runs: it is neither stopped nor frozen, and waits neither for a runc nor in the kernel"
        );
        let finding = finding.seen(Evidence::new(Source::Census, text));
        by_version(finding, affected, scene.snapshot)
    }
}

/// The shim of what has ended.
fn shim_of<'a>(stuck: &Stuck, snapshot: &'a Snapshot) -> Option<&'a ProcessSeen> {
    let container = stuck.container.as_ref()?;
    let sandbox = container.sandbox.as_ref().unwrap_or(&container.id);
    let serves = |seen: &&ProcessSeen| {
        let of = seen.fact.container.as_ref();
        let of = of.map(|of| of.sandbox.as_ref().unwrap_or(&of.id));
        seen.fact.component == Component::Shim && of == Some(sandbox)
    };
    snapshot.census.processes.iter().find(serves)
}

/// Does this process wait for a stuck thing as its parent, or is it a shim that nobody reads from, or that waits for itself?
fn waits(pid: u32, stuck: &Stuck) -> bool {
    if let StuckKind::Jammed { shim, .. } | StuckKind::SilentShim { shim, .. } = &stuck.what {
        return *shim == pid;
    }
    let of = |waiter: &Waiter| matches!(waiter, Waiter::Process { pid: waiting, .. } if *waiting == pid);
    stuck.waiters.iter().any(of)
}

/// Does a thread of this process wait for something in the kernel that neither it nor a signal can end, or for an unmount?
fn is_in_kernel(shim: &ProcessSeen) -> bool {
    !shim.blocked.is_empty() || shim.stays_in_kernel
}

/// What the version of the shim says: with the bug, past it, or not known.
pub(super) fn by_version(finding: Finding, affected: &[Series], snapshot: &Snapshot) -> Finding {
    let versions = &snapshot.census.versions;
    let of = |component: Component| versions.iter().find(|fact| fact.program == component.name());
    // Older shims do not say; they come with containerd.
    let Some(fact) = of(Component::Shim).or_else(|| of(Component::Containerd)) else {
        return finding.doubted("the version of the shim is not known");
    };
    let (version, known) = (cut(&fact.version, 24), list(affected));
    let name = &fact.program;
    if has_bug(&fact.version, affected) {
        let text = format!("{name} {version} has this bug ({known})");
        return finding.seen(Evidence::new(Source::Census, text));
    }
    finding.doubted(format!(
        "{name} {version} is none of the versions with the known bug ({known}): it came about in another way, or this \
         shim is older than the program that is installed now"
    ))
}

/// Releases in words: `1.6.29 to 1.6.35, 1.7.14 to 1.7.21`.
pub(super) fn list(affected: &[Series]) -> String {
    let one = |(major, minor, first, last): &Series| {
        if first == last {
            format!("{major}.{minor}.{first}")
        } else {
            format!("{major}.{minor}.{first} to {major}.{minor}.{last}")
        }
    };
    affected.iter().map(one).collect::<Vec<String>>().join(", ")
}

/// Is a version one of these releases, whatever a distribution has added?
pub(super) fn has_bug(version: &str, affected: &[Series]) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else { return false };
    affected.iter().any(|(a, b, first, last)| (*a, *b) == (major, minor) && (*first..=*last).contains(&patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The patch release decides, whatever a distribution has added.
    #[test]
    fn versions_with_a_bug() {
        let affected = [(1, 6, 29, 35), (1, 7, 14, 21)];
        for version in ["1.6.29", "1.7.21~ds1-2", "1.7.14+unknown"] {
            assert!(has_bug(version, &affected), "{version}");
        }
        for version in ["1.6.28", "1.6.36", "1.7.22", "2.7.20", "1.7", "x"] {
            assert!(!has_bug(version, &affected), "{version}");
        }
    }
}
