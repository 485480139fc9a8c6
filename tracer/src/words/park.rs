//! Where threads are parked: system calls, descriptors, stacks.

use super::{LONG, cut};
use crate::{
    input::{FdFact, FdTarget, Holder, ParkedThreads, PipeFact, SocketFact, SyscallFact},
    words::human::plural,
};

/// Functions of a stack that are told when the report is not verbose.
const SHORT_STACK: usize = 6;

/// `write(fd 9, a pipe whose …) in anon_pipe_write < … (11 threads)`.
#[must_use]
pub fn park_line(park: &ParkedThreads, verbose: bool) -> String {
    let mut parts = Vec::new();
    if let Some(syscall) = &park.syscall {
        parts.push(syscall_words(syscall));
    }
    if let Some(function) = &park.user_function {
        parts.push(format!("called by {}", cut(function, 60)));
    }
    if !park.kernel_stack.is_empty() {
        let shown = if verbose { park.kernel_stack.len() } else { SHORT_STACK };
        let stack = park.kernel_stack.iter().filter(|name| verbose || !is_entry(name)).take(shown);
        let stack: Vec<String> = stack.map(|name| cut(name, 60)).collect();
        parts.push(format!("kernel {}", stack.join(" < ")));
    }
    if parts.is_empty() {
        parts.push("running, or not visible".to_owned());
    }
    let number = match park.threads {
        1 => format!("thread {}", park.tid),
        n => plural(n.into(), "thread"),
    };
    format!("{number} in state {}: {}", park.state, parts.join("; "))
}

/// The way from user space into the kernel, which is the same in every stack.
#[must_use]
pub fn is_entry(function: &str) -> bool {
    let starts = [
        "do_syscall_64",
        "entry_SYSCALL",
        "__x64_sys_",
        "__se_sys_",
        "__arm64_sys_",
        "el0",
        "invoke_syscall",
    ];
    starts.iter().any(|start| function.starts_with(start))
}

/// `write(fd 9: pipe 4242, read by …)`.
#[must_use]
pub fn syscall_words(syscall: &SyscallFact) -> String {
    let name =
        syscall.name.as_deref().map_or_else(|| format!("syscall {}", syscall.nr), |name| cut(name, 40));
    let mut about = Vec::new();
    if let Some(fd) = &syscall.fd {
        about.push(fd_words(fd));
    }
    if let Some(path) = &syscall.path {
        about.push(cut(path, LONG));
    }
    if about.is_empty() { name } else { format!("{name}({})", about.join(", ")) }
}

fn fd_words(fd: &FdFact) -> String {
    let target = match &fd.target {
        FdTarget::Pipe(pipe) => pipe_words(pipe),
        FdTarget::Socket(socket) => socket_line(socket),
        FdTarget::File { path } => cut(path, LONG),
        FdTarget::Other { link } => cut(link, LONG),
    };
    format!("fd {}: {target}", fd.fd)
}

/// A pipe or FIFO with who holds its ends.
#[must_use]
pub fn pipe_words(pipe: &PipeFact) -> String {
    let name = pipe.path.as_deref().map_or_else(|| format!("pipe {}", pipe.inode), |path| cut(path, LONG));
    let doubt = if pipe.incomplete { ", possibly others" } else { "" };
    format!("{name}, read by {}, written by {}{doubt}", holders(&pipe.readers), holders(&pipe.writers))
}

/// `sleep 4242, sh 4240`, at most four; `nobody`.
#[must_use]
pub fn holders(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "nobody".to_owned();
    }
    let one = |holder: &Holder| format!("{} {}", cut(&holder.comm, 20), holder.pid);
    let mut names: Vec<String> = holders.iter().map(one).collect();
    names.dedup();
    names.truncate(4);
    names.join(", ")
}

/// A socket with what nobody has read or accepted yet.
#[must_use]
pub fn socket_line(socket: &SocketFact) -> String {
    let path =
        socket.path.as_deref().map_or_else(|| format!("socket {}", socket.inode), |path| cut(path, LONG));
    if socket.listening {
        let waiting = plural(socket.unread.into(), "connection");
        return format!("{path}: {waiting} not accepted (room for {})", socket.backlog);
    }
    if socket.pending {
        return format!("{path}: not accepted by {}", holders(&socket.peers));
    }
    let from =
        if socket.peers.is_empty() { String::new() } else { format!(" from {}", holders(&socket.peers)) };
    format!("{path}: {} unread{from}", plural(socket.unread.into(), "byte"))
}

/// The innermost functions without the path of their package.
#[must_use]
pub fn go_stack(frames: &[String], verbose: bool) -> String {
    let shown = if verbose { frames.len() } else { SHORT_STACK };
    let stack: Vec<String> = frames.iter().take(shown).map(|frame| short_function(frame)).collect();
    stack.join(" < ")
}

/// `container.(*statusStorage).Get` of the full name.
#[must_use]
pub fn short_function(frame: &str) -> String {
    cut(frame.rsplit('/').next().unwrap_or(frame), 80)
}
