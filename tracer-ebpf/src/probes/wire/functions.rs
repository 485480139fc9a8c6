//! On the functions of the kernel that send and receive for AF_UNIX stream sockets.
//!
//! Only who uses such a socket passes them, and they are handed the socket, which else has to be found. What the system call was
//! given still says where the bytes are: a call that moves them in another way (`splice`, `sendfile`, io_uring) is passed over, as it
//! is in `calls`.

use aya_ebpf::{
    EbpfContext,
    macros::{fentry, fexit},
    programs::{FEntryContext, FExitContext},
};
use plegtrace_common::reason::Reason;

use super::{
    Found, NUMBER, Way,
    connects::{CONNECT, connected},
    try_enter, try_exit,
};
use crate::{count, task};

/// hook: net/unix/af_unix.c: unix_stream_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
#[fentry]
pub(crate) fn wire_send(ctx: FEntryContext) -> i32 {
    begins(word(&ctx, 0), false)
}

/// hook: net/unix/af_unix.c: unix_stream_recvmsg(struct socket *sock, struct msghdr *msg, size_t size, int flags)
#[fentry]
pub(crate) fn wire_receive(ctx: FEntryContext) -> i32 {
    begins(word(&ctx, 0), true)
}

/// The return of the function of [`wire_send`].
#[fexit]
pub(crate) fn wire_sent(ctx: FExitContext) -> i32 {
    ends(word(&ctx, 0), false, word(&ctx, 3))
}

/// The return of the function of [`wire_receive`].
#[fexit]
pub(crate) fn wire_received(ctx: FExitContext) -> i32 {
    ends(word(&ctx, 0), true, word(&ctx, 4))
}

/// hook: net/unix/af_unix.c: unix_stream_connect(struct socket *sock, struct sockaddr *uaddr, int addr_len, int flags), its return
#[fexit]
pub(crate) fn wire_connected(ctx: FExitContext) -> i32 {
    let regs = task::registers();
    let ended = match task::kernel::<u64>(regs, NUMBER) {
        Ok(CONNECT) => connected(regs, i64::from(word(&ctx, 4) as i32)),
        Ok(_) => Ok(()),
        Err(reason) => Err(reason),
    };
    if let Err(reason) = ended {
        count::reason(reason);
    }
    0
}

#[inline(always)]
fn begins(socket: u64, reads: bool) -> i32 {
    count::system_call();
    let regs = task::registers();
    let begun = match way(regs, reads) {
        Ok(Some(way)) => try_enter(regs, way, Found::Socket(socket)),
        Ok(None) => Ok(()),
        Err(reason) => Err(reason),
    };
    if let Err(reason) = begun {
        count::reason(reason);
    }
    0
}

/// The function returns an `int`.
#[inline(always)]
fn ends(socket: u64, reads: bool, result: u64) -> i32 {
    let regs = task::registers();
    let ended = match way(regs, reads) {
        Ok(Some(way)) => try_exit(regs, way, i64::from(result as i32), Found::Socket(socket)),
        Ok(None) => Ok(()),
        Err(reason) => Err(reason),
    };
    if let Err(reason) = ended {
        count::reason(reason);
    }
    0
}

/// What the system call does, if it is one that reads, or writes, as the function does.
#[inline(always)]
fn way(regs: u64, reads: bool) -> Result<Option<Way>, Reason> {
    Ok(Way::of(task::kernel(regs, NUMBER)?).filter(|way| matches!(way, Way::Read(_)) == reads))
}

/// Argument `n` of the function, or what it returns, which stands behind the last.
#[inline(always)]
fn word(ctx: &impl EbpfContext, n: usize) -> u64 {
    // SAFETY: the context is an array of words, one for each argument (kernel/bpf/trampoline.c), and of an exit one more.
    unsafe { *ctx.as_ptr().cast::<u64>().add(n) }
}
