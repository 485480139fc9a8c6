//! The locks of NRI, the interface by which plugins change containers: goroutine stacks → who waits for which, and holds another.
//!
//! A runtime has one lock around all that it asks NRI (`local`, nri.go of containerd and of CRI-O), and NRI one around all that it
//! asks plugins (`Adaptation`, pkg/adaptation/adaptation.go). A request takes the first, then the second; what a plugin asks for
//! by itself takes the second, then the first.

use super::{Held, WaitsFor};
use crate::{
    decode::MonoNs,
    input::{Component, GoroutineGroup, GoroutinesFact},
};

/// Functions of the runtime, between its requests and NRI.
const LOCAL: &str = "/nri.(*local).";
/// Functions of NRI.
const ADAPTATION: &str = "/nri/pkg/adaptation.(*Adaptation).";
/// Those of them that are about a third lock, which keeps plugins from registering while a request is served.
const SYNC: [&str; 2] = ["BlockPluginSync", "requestPluginSync"];
/// Goroutines of one process that are kept.
const MAX_WAITS: usize = 256;

/// A goroutine that waits for one of NRI's locks and has another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NriWait {
    /// Process.
    pub pid: u32,
    /// What it is to the node.
    pub component: Component,
    /// Goroutine.
    pub goid: u64,
    /// The lock that it waits for.
    pub wants: Held,
    /// The lock that it has.
    pub has: Held,
    /// Full Go names, innermost first.
    pub frames: Vec<String>,
    /// Since when every look found it there: the end of the first, …
    pub since: MonoNs,
    /// … and the begin of the last.
    pub until: MonoNs,
}

/// Where a stack is in NRI: the innermost function of each kind, counted from the innermost of all.
struct Inside {
    local: Option<usize>,
    adaptation: Option<usize>,
}

impl Inside {
    fn of(frames: &[String]) -> Self {
        let place = |part: &str| frames.iter().position(|frame| frame.contains(part));
        Self { local: place(LOCAL), adaptation: place(ADAPTATION) }
    }

    /// The innermost of both.
    fn innermost(&self) -> Option<usize> {
        self.local.into_iter().chain(self.adaptation).min()
    }

    /// The lock that the innermost of them takes.
    fn lock(&self, frames: &[String]) -> Option<Held> {
        let place = self.innermost()?;
        if self.local == Some(place) {
            return Some(Held::Nri);
        }
        let is_sync = SYNC.iter().any(|name| frames[place].ends_with(&format!(".{name}")));
        Some(if is_sync { Held::NriSync } else { Held::NriPlugins })
    }
}

/// Nothing but the wait for a mutex.
fn is_wait(frame: &str) -> bool {
    ["sync.", "internal/sync.", "runtime."].iter().any(|package| frame.starts_with(package))
}

/// What a goroutine in NRI waits for: one of its locks, or a plugin. `at_lock`: it waits for a lock of some kind.
pub(super) fn waits_for(frames: &[String], at_lock: bool) -> Option<WaitsFor> {
    let inside = Inside::of(frames);
    let inner = &frames[..inside.innermost()?];
    if at_lock && inner.iter().all(|frame| is_wait(frame)) {
        return inside.lock(frames).map(WaitsFor::Lock);
    }
    let asks =
        inside.local != inside.innermost() && inner.iter().any(|frame| frame.contains("ttrpc.(*Client)."));
    asks.then_some(WaitsFor::NriPlugin)
}

/// The outermost of NRI's locks that a goroutine has, unless it waits for that.
pub(super) fn holds(frames: &[String], waits_for: &WaitsFor) -> Option<Held> {
    let inside = Inside::of(frames);
    let (outer, held) = match (inside.local, inside.adaptation) {
        (Some(local), Some(adaptation)) if adaptation > local => (adaptation, Held::NriPlugins),
        (Some(local), _) => (local, Held::Nri),
        (None, Some(adaptation)) => (adaptation, Held::NriPlugins),
        (None, None) => return None,
    };
    let takes_no_other = SYNC.iter().any(|name| frames[outer].ends_with(&format!(".{name}")));
    (!takes_no_other && *waits_for != WaitsFor::Lock(held)).then_some(held)
}

/// The goroutines of a runtime that wait for one lock and have another. `before`: those of the look before; `looked`: when this one
/// began and ended.
pub(super) fn waits(
    fact: &GoroutinesFact,
    before: &[NriWait],
    (began, ended): (MonoNs, MonoNs),
) -> Vec<NriWait> {
    let of_group = |group: &GoroutineGroup| {
        let frames = &group.frames;
        let waits = waits_for(frames, super::requests::waits_at_lock(group))?;
        let has = holds(frames, &waits)?;
        let WaitsFor::Lock(wants) = waits else { return None };
        let one = |goid: &u64| {
            let same = before.iter().find(|old| old.goid == *goid && old.frames == *frames);
            let (pid, component) = (fact.pid, fact.component);
            let since = same.map_or(ended, |old| old.since);
            NriWait { pid, component, goid: *goid, wants, has, frames: frames.clone(), since, until: began }
        };
        Some(group.goids.iter().map(one).collect::<Vec<_>>())
    };
    let groups = fact.groups.iter().filter(|_| fact.component.role().is_runtime());
    groups.filter_map(of_group).flatten().take(MAX_WAITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: [&str; 2] = ["sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow"];
    const LOCAL: &str = "github.com/containerd/containerd/pkg/nri.(*local).StopContainer";
    const OF_NRI: &str = "github.com/containerd/nri/pkg/adaptation.(*Adaptation).";

    fn found(frames: &[&str], at_lock: bool) -> (Option<WaitsFor>, Option<Held>) {
        let frames: Vec<String> = frames.iter().map(|frame| (*frame).to_owned()).collect();
        let waits = waits_for(&frames, at_lock);
        let held = holds(&frames, waits.as_ref().unwrap_or(&WaitsFor::Unknown));
        (waits, held)
    }

    /// Both orders, as the stacks of containerd#10085 and containerd#13733 have them.
    #[test]
    fn who_waits_for_which() {
        let of_nri = |name: &str| format!("{OF_NRI}{name}");
        let (state, update, block) =
            (of_nri("StateChange"), of_nri("updateContainers"), of_nri("BlockPluginSync"));
        let lock = |frames: &[&str]| found(&[&WAIT, frames].concat(), true);
        assert_eq!(lock(&[&state, LOCAL]), (Some(WaitsFor::Lock(Held::NriPlugins)), Some(Held::Nri)));
        assert_eq!(lock(&[LOCAL, &update]), (Some(WaitsFor::Lock(Held::Nri)), Some(Held::NriPlugins)));
        assert_eq!(lock(&[LOCAL]), (Some(WaitsFor::Lock(Held::Nri)), None));
        assert_eq!(lock(&[&block]), (Some(WaitsFor::Lock(Held::NriSync)), None));
        assert_eq!(lock(&[&state]), (Some(WaitsFor::Lock(Held::NriPlugins)), None));
        // The lock of one plugin is another one, and so is what the runtime does for NRI.
        let plugin = "github.com/containerd/nri/pkg/adaptation.(*plugin).close";
        assert_eq!(lock(&[plugin, &state, LOCAL]), (None, Some(Held::Nri)));
        assert_eq!(lock(&["x.(*store).Get", LOCAL]), (None, Some(Held::Nri)));
        assert_eq!(
            lock(&["github.com/containerd/containerd/pkg/cri/nri.(*API).StopContainer"]),
            (None, None)
        );
    }

    /// A call of a plugin is one only below NRI; the runtime asks shims with the same client.
    #[test]
    fn who_asks_a_plugin() {
        let client = "github.com/containerd/ttrpc.(*Client).Call";
        let create = format!("{OF_NRI}CreateContainer");
        assert_eq!(found(&[client, &create, LOCAL], false), (Some(WaitsFor::NriPlugin), Some(Held::Nri)));
        assert_eq!(found(&[client, LOCAL, &create], false), (None, Some(Held::NriPlugins)));
        assert_eq!(found(&[client], false), (None, None));
    }
}
