//! What goroutines tell of a shim that waits for itself.

use crate::{correlate::go, input::GoroutineGroup};

/// How a shim waits for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimLock {
    /// It handles an exit in the middle of a create, during which it holds the lock that this needs.
    Create,
    /// Its reaper, which notices exits, waits for a reader of exits, that one for the lock of the service, and who holds the
    /// lock for the reaper.
    Reaper,
}

/// Three goroutines that wait for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlock<'a> {
    /// The one that notices exits waits until a reader takes the next one.
    pub(crate) reaper: &'a GoroutineGroup,
    /// The reader waits for a lock.
    pub(crate) reader: &'a GoroutineGroup,
    /// A request waits for the end of the runc that it has started.
    pub(crate) holder: &'a GoroutineGroup,
}

impl<'a> Deadlock<'a> {
    /// When all three are there.
    pub(crate) fn find(groups: &'a [GoroutineGroup]) -> Option<Self> {
        let first = |is: fn(&GoroutineGroup) -> bool| groups.iter().find(|group| is(group));
        Some(Self { reaper: first(is_full)?, reader: first(is_reader)?, holder: first(awaits_exit)? })
    }
}

/// How the shim of these goroutines waits for itself, if it does, and where the goroutine is that tells most of it: at a lock
/// at least.
pub(super) fn find(groups: &[GoroutineGroup]) -> (Option<ShimLock>, Option<&GoroutineGroup>) {
    if let Some(deadlock) = Deadlock::find(groups) {
        return (Some(ShimLock::Reaper), Some(deadlock.reaper));
    }
    // Those that only ask for the lock have the shortest way to it.
    let depth = |group: &&GoroutineGroup| group.frames.iter().filter(|frame| is_service(frame)).count();
    let held_up = groups.iter().filter(|group| serves(group) && at_lock(group)).max_by_key(depth);
    // Whoever waits for a lock that another one holds waits for what that one does: a mount, or a machine that boots for its pod.
    let lock = held_up.filter(|group| handles_exit_in_create(group)).map(|_| ShimLock::Create);
    (lock, held_up)
}

/// Does it wait for a lock?
fn at_lock(group: &GoroutineGroup) -> bool {
    group.frames.iter().take(6).any(|frame| go::is_lock(frame))
}

/// Does it serve a request, or handle an exit?
fn serves(group: &GoroutineGroup) -> bool {
    group.frames.iter().any(|frame| is_service(frame))
}

/// Does it handle an exit in the middle of a create, during which it holds the lock that this needs?
fn handles_exit_in_create(group: &GoroutineGroup) -> bool {
    let has = |name: &str| group.frames.iter().any(|frame| is_service(frame) && frame.contains(name));
    has("(*service).Create") && (has("handleProcessExit") || has("preStart"))
}

/// Is it the reaper, and waits for room to hand an exit on? One of later releases does not wait for long, and not in a send.
fn is_full(group: &GoroutineGroup) -> bool {
    let sends = group.frames.iter().take(4).any(|frame| frame.starts_with("runtime.chansend"));
    let reaps = |frame: &String| frame.ends_with("reaper.Reap") || frame.ends_with("shim.Reap");
    sends && group.frames.iter().any(reaps)
}

/// Is it the one that reads exits and tells of them, and waits for a lock?
fn is_reader(group: &GoroutineGroup) -> bool {
    at_lock(group) && group.frames.iter().any(|frame| is_service(frame) && frame.ends_with(").processExits"))
}

/// Does a request wait for the end of a program, or for the reaper to be told of one?
fn awaits_exit(group: &GoroutineGroup) -> bool {
    let is_reader = group.frames.iter().any(|frame| frame.ends_with(").processExits"));
    serves(group) && !is_reader && group.frames.iter().any(|frame| frame.contains(".(*Monitor)."))
}

/// A function of what a shim does for a task: `runc/task`, `runc/v2` and `runc/v1` up to containerd 1.5, `v2/runc` in 1.2;
/// `runtime/v1/shim` and `linux/shim` of the shims of version 1.
fn is_service(frame: &str) -> bool {
    let packages = ["/task.(*service).", "runc/v2.(*service).", "runc/v1.(*service).", "v2/runc.(*service)."];
    packages.iter().any(|package| frame.contains(package)) || frame.contains("/shim.(*Service).")
}
