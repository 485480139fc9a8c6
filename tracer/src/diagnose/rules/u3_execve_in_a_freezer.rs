//! U3: a freezer of version 1 does not come to its end, because one thread executes a program meanwhile.

use super::u4_container_left_frozen::thaw;
use crate::{
    correlate::thresholds::RUNC_NS,
    diagnose::{Area, Evidence, Finding, Page, Proof, Rule, Scene, Source, scene::parked_in},
    input::{Command, Component, Freezer, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::{of_pod, what},
};

pub(super) static RULE: Rule = Rule {
    id: "U3",
    title: "the freezer (cgroup v1) and an execve wait for each other",
    area: Area::Runc,
    min_age_ns: RUNC_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "A thread that executes a program waits in the kernel until all other threads of its process have ended. \
            When the freezer of cgroups version 1 has frozen one of those, that one cannot end; and the thread in execve \
            cannot be frozen, so freezer.state stays FREEZING. runc freezes a container while it changes its device rules, \
            just when runc init becomes the container's program. Every runc that looks at the container then waits for the \
            freezer, StopContainer included.",
        versions: "worst in runc 1.0.0-rc91 and rc92; 1.0.0-rc93 to rc95 try again and thaw; the limit of version 1 remains. \
            cgroups version 2 is not affected",
        symptoms: &[
            "unable to freeze",
            "freezer.state says FREEZING",
            "the pod stays Terminating",
            "load average rises",
        ],
        evidence: &[
            "runc init in state D in execve, in the kernel's begin_new_exec (de_thread, flush_old_exec)",
            "another thread of it is frozen: in __refrigerator, or in state D where it slept (Linux 6.1 and later)",
            "freezer.state FREEZING of its cgroup; when it is thawed again, that lowers the confidence",
        ],
        excluded_by: &["the cgroup is one of version 2", "the container is FROZEN as a whole (U4)"],
        next: &["thaw it", "move to cgroups version 2", "upgrade runc"],
        trap: "SIGKILL ends the thread in execve, but not the frozen one: the process stays until its cgroup is thawed.",
        sources: &["runc#2753", "runc PR 2774, 2791", "containerd#4961", "garden-runc#121"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Process { command: Command::Runc { sub, .. }, pid, .. } = &stuck.what else { return None };
    let execs = parked_in(&stuck.parks, ParkedThreads::waits_for_siblings)?;
    let frozen = parked_in(&stuck.parks, ParkedThreads::are_frozen)?;
    let freezer = freezer_of(*pid, scene);
    if freezer.is_some_and(|freezer| freezer.version != 1) || stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let headline = format!(
        "runc {sub} {pid}{pod} cannot become the container's program: its execve waits for thread {} of its own, which \
         is frozen (cgroup v1)",
        frozen.tid
    );
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Runc, stuck, scene);
    let text = format!(
        "thread {} waits in execve for the other threads to end; thread {} is frozen",
        execs.tid, frozen.tid
    );
    finding.evidence.push(Evidence::new(Source::Census, text));
    for other in behind(stuck, scene) {
        finding.behind = finding.behind.or(Some(other.what.pid()));
        finding.victims.push(what(other));
    }
    Some(by_freezer(finding, freezer))
}

/// The freezer over a process, when it is not thawed.
fn freezer_of<'a>(pid: u32, scene: &Scene<'a>) -> Option<&'a Freezer> {
    let mut processes = scene.snapshot.census.processes.iter();
    processes.find(|seen| seen.fact.pid == pid)?.fact.freezer.as_ref()
}

/// Those of runc that do not end either, and are about the same container.
fn behind<'a>(stuck: &'a Stuck, scene: &Scene<'a>) -> impl Iterator<Item = &'a Stuck> {
    let id = stuck.container.as_ref().map(|container| container.id.as_str());
    scene.stuck().filter(move |other| match &other.what {
        StuckKind::Process { command: Command::Runc { container, .. }, pid, .. } => {
            *pid != stuck.what.pid() && id.is_some() && container.as_deref() == id
        }
        _ => false,
    })
}

fn by_freezer(finding: Finding, freezer: Option<&Freezer>) -> Finding {
    let upgrade = "move the node to cgroups version 2, which can end what is frozen; upgrade runc".to_owned();
    let Some(freezer) = freezer else {
        let finding = finding.doubted("its cgroup is thawed: what froze that thread was not seen");
        return finding
            .advise(["find the frozen cgroup below the container's, and thaw it".to_owned(), upgrade]);
    };
    let text =
        format!("cgroup {} is {}: nothing that freezes it comes to its end", freezer.path, freezer.state);
    finding
        .seen(Evidence::new(Source::Census, text))
        .advise([format!("{}, and the same in every cgroup below it", thaw(freezer)), upgrade])
}
