//! Family `process`: birth, change of program and end of watched processes.
//!
//! Roles are inherited over fork and decided anew at exec, see `plegtrace_common::follow`. Whoever is not watched
//! costs one look into the map. A process ends with its last thread; whether its parent has waited for it (a zombie)
//! is a question for the census.

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_uid_gid, bpf_ktime_get_ns},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use plegtrace_common::{
    follow::{Home, after_exec, after_fork, may_be_cni},
    key::Watched,
    kind::RecKind,
    reason::Reason,
    rec::{PROCESS_AGAIN, ProcessRec},
    role::Role,
    settings::NAMES_OF_ROOT,
};

use crate::{
    arguments::{self, Block},
    count, emit, preemption,
    settings::setting,
    task, watch,
};

/// `SIGNAL_GROUP_EXIT` (include/linux/sched/signal.h).
const SIGNAL_GROUP_EXIT: u32 = 4;

/// hook: include/trace/events/sched.h: sched_process_fork(struct task_struct *parent, struct task_struct *child)
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn proc_fork(ctx: RawTracePointContext) -> i32 {
    preemption::without(|| {
        if let Err(reason) = try_fork(&ctx) {
            count::reason(reason);
        }
    });
    0
}

/// hook: include/trace/events/sched.h: sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn proc_exec(ctx: RawTracePointContext) -> i32 {
    #[cfg(feature = "debug-log")]
    aya_log_ebpf::info!(&ctx, "proc_exec of {}", tgid());
    let _ = &ctx;
    preemption::without(exec);
    0
}

/// hook: include/trace/events/sched.h: sched_process_exit(struct task_struct *p); since 6.16 also (bool group_dead)
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn proc_exit(_: RawTracePointContext) -> i32 {
    preemption::without(|| {
        if let Err(reason) = try_exit() {
            count::reason(reason);
        }
    });
    0
}

/// Argument `n` of a raw tracepoint.
#[inline(always)]
fn arg(ctx: &RawTracePointContext, n: usize) -> u64 {
    // SAFETY: `bpf_raw_tracepoint_args` is an array of words, and these tracepoints have at least two.
    unsafe { *ctx.as_ptr().cast::<u64>().add(n) }
}

#[inline(always)]
fn try_fork(ctx: &RawTracePointContext) -> Result<(), Reason> {
    let creator = tgid();
    let Some(watched) = watch::get(creator) else { return Ok(()) };
    if watched.role == Role::Workload as u32 {
        return Ok(());
    }
    let child = arg(ctx, 1);
    let child_tgid: u32 = task::kernel(child, setting!(task_tgid))?;
    let child_pid: u32 = task::kernel(child, setting!(task_pid))?;
    if child_tgid != child_pid {
        return Ok(());
    }
    let now_ns = now();
    let born = after_fork(&watched, parent_of(child), now_ns);
    watch::set(child_tgid, &born);
    let step =
        Step { now_ns, kind: RecKind::Fork, tgid: child_tgid, creator, old_role: watched.role, exit_code: 0 };
    emit::emit(record(&step, &born));
    Ok(())
}

#[inline(always)]
fn exec() {
    let tgid = tgid();
    // Both are always written: else the compiler reads the stack slots of an entry that was not found, without using
    // what it reads, and verifiers before 6.3 refuse that.
    let (known, old) = black_box(match watch::get(tgid) {
        Some(old) => (1, old),
        None => (0, Watched { role: 0, parent_role: 0, since_ns: 0, parent: 0, flags: 0 }),
    });
    let comm = comm();
    let workload = old.role == Role::Workload as u32;
    if known == 0 || workload {
        // Inside a container there may be another node, and programs with any name; so may any user's be called.
        if !is_watched_user() || Role::of_comm(&comm) as u32 == 0 || is_elsewhere() {
            return;
        }
    }
    let before = if workload { Watched { role: 0, parent_role: 0, ..old } } else { old };
    let arguments = Block::arguments();
    let next = after_exec(&before, &comm, arguments.says_init(), home());
    let now_ns = now();
    let watched = Watched {
        role: next.role as u32,
        parent_role: before.parent_role,
        since_ns: if next.flags & PROCESS_AGAIN == 0 { now_ns } else { old.since_ns },
        parent: parent_of(task::current()),
        flags: next.flags,
    };
    watch::set(tgid, &watched);
    let step = Step { now_ns, kind: RecKind::Exec, tgid, creator: 0, old_role: old.role, exit_code: 0 };
    let record = record(&step, &watched);
    if next.role as u32 == Role::Workload as u32 {
        // What a container runs is nobody's business.
        emit::emit(record);
    } else {
        arguments::send(&record, may_be_cni(&watched));
    }
}

/// Is the current process in another pid namespace than the node's components?
#[inline(always)]
fn is_elsewhere() -> bool {
    let node = setting!(node_pid_ns);
    node != 0 && task::pid_namespace().is_ok_and(|own| own != node)
}

/// Does the current process belong to a user whose processes are watched by their names?
#[inline(always)]
fn is_watched_user() -> bool {
    match setting!(watch_by_name) {
        0 => false,
        // The lower half is the user, as the first user namespace has him.
        NAMES_OF_ROOT => bpf_get_current_uid_gid() as u32 == 0,
        _ => true,
    }
}

/// Where the current process lives.
#[inline(always)]
fn home() -> Home {
    if is_elsewhere() {
        Home::OwnPids
    } else if has_own_mounts() {
        Home::OwnMounts
    } else {
        Home::Node
    }
}

/// Has the current process other mounts than its parent? Not where the kernel does not tell.
#[inline(always)]
fn has_own_mounts() -> bool {
    let parent = task::kernel::<u64>(task::current(), setting!(task_real_parent)).unwrap_or(0);
    let (own, parents) = (task::mounts(task::current()).unwrap_or(0), task::mounts(parent).unwrap_or(0));
    setting!(nsproxy_mnt_ns) != 0 && own != 0 && parents != 0 && own != parents
}

/// Each thread comes by; the last one is the end of the process. `live` was counted down before this tracepoint
/// (kernel/exit.c, `do_exit`), so two last threads may both find it 0: one of them takes the entry.
#[inline(always)]
fn try_exit() -> Result<(), Reason> {
    let tgid = tgid();
    let Some(watched) = watch::get(tgid) else { return Ok(()) };
    let signal: u64 = task::kernel(task::current(), setting!(task_signal))?;
    if task::kernel::<u32>(signal, setting!(signal_live))? != 0 || !watch::take(tgid) {
        return Err(Reason::ThreadExit);
    }
    let exit_code = exit_code(signal).unwrap_or(0);
    let step =
        Step { now_ns: now(), kind: RecKind::Exit, tgid, creator: 0, old_role: watched.role, exit_code };
    emit::emit(record(&step, &watched));
    Ok(())
}

/// What `wait(2)` tells (kernel/exit.c, `wait_task_zombie`).
#[inline(always)]
fn exit_code(signal: u64) -> Result<u32, Reason> {
    if task::kernel::<u32>(signal, setting!(signal_flags))? & SIGNAL_GROUP_EXIT != 0 {
        return task::kernel(signal, setting!(signal_group_exit_code));
    }
    let leader: u64 = task::kernel(task::current(), setting!(task_group_leader))?;
    task::kernel(leader, setting!(task_exit_code))
}

/// What is in a record and not in the map.
struct Step {
    now_ns: u64,
    kind: RecKind,
    tgid: u32,
    creator: u32,
    old_role: u32,
    exit_code: u32,
}

#[inline(always)]
fn record(step: &Step, watched: &Watched) -> ProcessRec {
    ProcessRec {
        header: emit::header::<ProcessRec>(step.kind, step.now_ns, step.tgid, step.tgid),
        parent: watched.parent,
        creator: step.creator,
        role: watched.role,
        old_role: step.old_role,
        parent_role: watched.parent_role,
        exit_code: step.exit_code,
        since_ns: watched.since_ns,
        flags: watched.flags,
        reserved: 0,
        comm: comm(),
    }
}

/// Parent of a task; 0 when the kernel does not tell.
#[inline(always)]
fn parent_of(task: u64) -> u32 {
    let parent = task::kernel::<u64>(task, setting!(task_real_parent)).unwrap_or(0);
    task::kernel(parent, setting!(task_tgid)).unwrap_or(0)
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Name of the current task as the kernel keeps it.
#[inline(always)]
fn comm() -> [u8; 16] {
    bpf_get_current_comm().unwrap_or([0; 16])
}
