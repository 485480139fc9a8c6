//! [`Networks`]: who wants the lock of the network configuration (go-cni `libcni`), and who has it.
//!
//! `Status` and the set-up and removal of networks read, a reload writes. Go's RWMutex lets no new reader pass a writer that
//! waits, so one reader that does not let go holds up everybody as soon as a reload has come.

use crate::{
    correlate::{Held, Request, WaitsFor, go},
    cri::Method,
    diagnose::{Evidence, Scene, Source},
    input::{Component, GoroutineGroup},
    words,
};

/// The lock of one runtime, for which a `Status` waits.
#[derive(Debug)]
pub(super) struct Networks<'a> {
    pub(super) component: Component,
    pub(super) pid: u32,
    /// The `Status` that waits for the lock, the longest.
    pub(super) status: &'a Request,
    /// Others that wait for it.
    pub(super) waiting: Vec<&'a Request>,
    /// Requests in the set-up or removal of a network, past the lock.
    pub(super) inside: Vec<&'a Request>,
    /// A reload that waits for the lock: its frames.
    pub(super) reload: Option<&'a [String]>,
}

impl<'a> Networks<'a> {
    /// `None` when no `Status` waits for such a lock.
    pub(super) fn of(scene: &Scene<'a>) -> Option<Self> {
        let requests = || scene.snapshot.census.requests.iter();
        let wants = |request: &&Request| request.waits_for == WaitsFor::Lock(Held::Networks);
        let asks = |request: &&Request| request.method() == Some(Method::Status);
        let at_lock = requests().filter(|request| request.component.role().is_runtime()).filter(wants);
        let status = at_lock.filter(asks).max_by_key(|request| request.since.ns)?;
        let others = || requests().filter(|request| request.pid == status.pid && !asks(request));
        Some(Self {
            component: status.component,
            pid: status.pid,
            status,
            waiting: others().filter(wants).collect(),
            inside: others().filter(|request| request.waits_for == WaitsFor::Cni).collect(),
            reload: reload(status.pid, scene).and_then(Result::err),
        })
    }

    /// Who waits, in words.
    pub(super) fn victims(&self) -> Vec<String> {
        let mut all = vec!["the runtime's status in the node's conditions".to_owned()];
        let line = |request: &&Request| format!("{}, at the same lock", words::requests(request));
        all.extend(self.waiting.iter().map(line));
        all
    }

    /// Where `Status` and the reload wait.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let of = |text| Evidence::new(Source::Goroutines, text);
        let status =
            format!("{}: {}", words::requests(self.status), words::go_stack(&self.status.frames, false));
        let reload = self.reload.map(|frames| {
            of(format!("a reload of the configuration waits to write: {}", words::go_stack(frames, true)))
        });
        [of(status)].into_iter().chain(reload).collect()
    }
}

/// A goroutine of this process that reloads the network configuration, up to go-cni's Load: past the lock (`Ok`), or waiting
/// for it (`func (c *libcni) Load`, go-cni cni.go).
pub(super) fn reload<'a>(pid: u32, scene: &Scene<'a>) -> Option<Result<&'a [String], &'a [String]>> {
    let census = &scene.snapshot.census;
    let mut groups = census.goroutines.iter().filter(|fact| fact.pid == pid).flat_map(|fact| &fact.groups);
    groups.find_map(loads)
}

fn loads(group: &GoroutineGroup) -> Option<Result<&[String], &[String]>> {
    let load = group.frames.iter().position(|frame| frame.ends_with("go-cni.(*libcni).Load"))?;
    let frames = &group.frames[..=load];
    Some(if frames.iter().any(|frame| go::is_lock(frame)) { Err(frames) } else { Ok(frames) })
}
