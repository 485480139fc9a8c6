//! Family `process`: birth, change of program and end of watched processes.
//!
//! Roles are inherited over fork and decided anew at exec from the kernel's own copy of the program's name.

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use plegtrace_common::{key::Watched, kind::RecKind, reason::Reason, rec::ProcessRec, role::Role};

use crate::{count, emit, settings::setting, task, watch};

/// hook: include/trace/events/sched.h: sched_process_fork(struct task_struct *parent, struct task_struct *child)
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn proc_fork(ctx: RawTracePointContext) -> i32 {
    if let Err(reason) = try_fork(&ctx) {
        count::reason(reason);
    }
    0
}

/// hook: include/trace/events/sched.h: sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn proc_exec(ctx: RawTracePointContext) -> i32 {
    #[cfg(feature = "debug-log")]
    aya_log_ebpf::info!(&ctx, "proc_exec of {}", tgid());
    let _ = &ctx;
    exec();
    0
}

/// hook: include/trace/events/sched.h: sched_process_exit(struct task_struct *p); since 6.16 also (bool group_dead)
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn proc_exit(_: RawTracePointContext) -> i32 {
    exit();
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
    let parent = tgid();
    let Some(watched) = watch::get(parent) else { return Ok(()) };
    let child = arg(ctx, 1);
    let child_tgid: u32 = task::kernel(child, setting!(task_tgid))?;
    let child_pid: u32 = task::kernel(child, setting!(task_pid))?;
    if child_tgid != child_pid {
        return Ok(());
    }
    // runc's own forks are still runc (nsexec stages); any other child is a helper until it says its name by exec.
    let role = if watched.role == Role::Runc as u32 { Role::Runc } else { Role::Helper } as u32;
    watch::set(child_tgid, Watched { role, parent_role: watched.role });
    send(RecKind::Fork, child_tgid, parent, role, watched.role, 0);
    Ok(())
}

#[inline(always)]
fn exec() {
    let tgid = tgid();
    // All three are always written: else the compiler reads the stack slots of an entry that was not found, without
    // using what it reads, and verifiers before 6.3 refuse that.
    let (known, old_role, parent_role) = black_box(match watch::get(tgid) {
        Some(old) => (1, old.role, old.parent_role),
        None => (0, 0, 0),
    });
    let named = Role::of_comm(&comm());
    let by_name = named != Role::None && (known == 1 || setting!(watch_by_name) == 1);
    if by_name {
        watch::set(tgid, Watched { role: named as u32, parent_role });
        send(RecKind::Exec, tgid, 0, named as u32, old_role, 0);
        return;
    }
    if known == 0 {
        return;
    }
    if old_role != Role::Runc as u32 {
        send(RecKind::Exec, tgid, 0, old_role, old_role, 0);
    } else if is_reexec(&comm()) {
        send(RecKind::Exec, tgid, 0, Role::Runc as u32, old_role, 0);
    } else {
        // runc became the workload (or a hook): from here on it is not the runtime's.
        watch::forget(tgid);
        send(RecKind::Exec, tgid, 0, Role::None as u32, old_role, 0);
    }
}

/// runc runs itself again from `/proc/self/exe` (named `exe`), from an open file (named by its number) or from a
/// sealed copy (named `memfd:…`).
#[inline(always)]
fn is_reexec(comm: &[u8; 16]) -> bool {
    let exe = comm[0] == b'e' && comm[1] == b'x' && comm[2] == b'e' && comm[3] == 0;
    let memfd = comm[0] == b'm' && comm[1] == b'e' && comm[2] == b'm' && comm[3] == b'f' && comm[4] == b'd';
    exe || memfd || comm[0].is_ascii_digit()
}

#[inline(always)]
fn exit() {
    let pid_tgid = bpf_get_current_pid_tgid();
    let tgid = (pid_tgid >> 32) as u32;
    if pid_tgid as u32 != tgid {
        return;
    }
    let Some(watched) = watch::get(tgid) else { return };
    let code = task::kernel::<u32>(task::current(), setting!(task_exit_code)).unwrap_or(0);
    watch::forget(tgid);
    send(RecKind::Exit, tgid, 0, watched.role, watched.role, code);
}

#[inline(always)]
fn send(kind: RecKind, tgid: u32, parent: u32, role: u32, old_role: u32, exit_code: u32) {
    // SAFETY: no arguments.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let header = emit::header::<ProcessRec>(kind, now_ns, tgid, tgid);
    emit::emit(ProcessRec { header, parent, role, old_role, exit_code, comm: comm() });
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
