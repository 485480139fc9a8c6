//! Loops of a kubelet, and what they wait for.

use super::{cut, park::short_function};
use crate::{
    correlate::{BusyLoop, LoopWait},
    stuck::LoopStall,
    words::human::count,
};

/// `the sync loop of kubelet 812 (goroutine 35) waits for a device plugin to answer Allocate`.
#[must_use]
pub fn loop_stall(stall: &LoopStall) -> String {
    let others = match stall.goids.len() as u64 {
        0 | 1 => String::new(),
        many => format!(", and {} more like it,", count(many - 1)),
    };
    told(&stall.oldest, &others)
}

/// The same of one loop.
#[must_use]
pub fn busy_loop(one: &BusyLoop) -> String {
    told(one, "")
}

fn told(one: &BusyLoop, others: &str) -> String {
    let (name, pid, goid) = (one.kind.words(), one.pid, one.goid);
    format!("{name} of kubelet {pid} (goroutine {goid}){others} {}", loop_wait(one))
}

/// What it waits for: `waits for the API server`.
#[must_use]
pub fn loop_wait(one: &BusyLoop) -> String {
    match &one.wait {
        LoopWait::Plugin { plugin, method: Some(method) } => {
            format!("waits for a {} to answer {}", plugin.words(), cut(method, 40))
        }
        LoopWait::Plugin { plugin, method: None } => format!("waits for a {} to answer", plugin.words()),
        LoopWait::Lock { by: Some(by) } => format!("waits for a lock in {}", short_function(by)),
        LoopWait::Lock { by: None } => "waits for a lock".to_owned(),
        LoopWait::Api { throttled: false } => "waits for the API server to answer".to_owned(),
        LoopWait::Api { throttled: true } => {
            "waits for its turn to ask the API server (the kubelet limits its own requests)".to_owned()
        }
        LoopWait::Runtime => "waits for the container runtime".to_owned(),
        LoopWait::Program => "waits for a program to end".to_owned(),
        LoopWait::File => format!("waits for a file system{}", place(one)),
        LoopWait::Bus => "waits for an answer over D-Bus".to_owned(),
        LoopWait::Goroutine => format!("waits for another goroutine of the kubelet{}", place(one)),
        LoopWait::Time => "sleeps".to_owned(),
        LoopWait::Unknown => format!("waits{}", place(one)),
    }
}

/// ` in volumemanager.(*volumeManager).x`: the innermost function that is no part of Go itself.
fn place(one: &BusyLoop) -> String {
    // The packages of Go's own library have no dot in the first part of their names.
    let is_go = |frame: &str| {
        !frame.split('/').next().is_some_and(|first| frame.contains('/') && first.contains('.'))
    };
    let place = one.frames[..one.inner.min(one.frames.len())].iter().find(|frame| !is_go(frame));
    place.or(one.frames.first()).map(|frame| format!(" in {}", short_function(frame))).unwrap_or_default()
}
