//! What does not move: what it is, since when, where it is parked, and who waits for it.

use std::io;

use super::page::{Page, fold};
use crate::{
    correlate::{Age, Held, Request, Stuck, Waiter, WaitsFor, What},
    input::{
        Command, Component, ContainerFact, FdFact, FdTarget, Holder, Park, PipeFact, SocketFact, SyscallFact,
    },
    render::{
        escape,
        human::{count, duration, plural},
    },
};

/// Functions of a stack that are shown when the report is not verbose.
const SHORT_STACK: usize = 6;
/// Width of the labels.
const LABEL: usize = 8;

/// Writes the section.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let all = &page.snapshot.stuck;
    if all.is_empty() {
        return Ok(());
    }
    page.section("Stuck", &format!("{}, what holds others up first", plural(all.len() as u64, "thing")))?;
    let rows = page.rows(all.len());
    for stuck in &all[..rows] {
        one(page, stuck)?;
    }
    page.more(all.len() - rows)
}

fn one(page: &mut Page<'_>, stuck: &Stuck) -> io::Result<()> {
    let verbose = page.verbose;
    let head = page.paint.title(&format!("{}, {}", what(stuck), age(stuck.since)));
    writeln!(page.out, "  {head}")?;
    if let Some(container) = &stuck.container {
        line(page, "pod", &container_line(container))?;
    }
    for (place, waiter) in stuck.waiters.iter().enumerate() {
        line(page, if place == 0 { "waits" } else { "" }, &waiter_line(waiter))?;
    }
    // Where stopped threads were when they were stopped says little.
    let worth = if matches!(stuck.what, What::Stopped { .. }) { 0 } else { 2 };
    for (place, park) in stuck.parks.iter().take(if verbose { 64 } else { worth }).enumerate() {
        line(page, if place == 0 { "parked" } else { "" }, &park_line(park, verbose))?;
    }
    if !stuck.frames.is_empty() {
        line(page, "stack", &go_stack(&stuck.frames, verbose))?;
    }
    for socket in &stuck.sockets {
        line(page, "socket", &socket_line(socket))?;
    }
    Ok(())
}

fn line(page: &mut Page<'_>, label: &str, text: &str) -> io::Result<()> {
    let label = format!("{label:<LABEL$}");
    for (place, text) in fold(text, page.width - LABEL - 5).iter().enumerate() {
        let label = if place == 0 { page.paint.faint(&label) } else { " ".repeat(LABEL) };
        writeln!(page.out, "    {label} {text}")?;
    }
    Ok(())
}

/// What does not move, in words.
pub(in crate::render) fn what(stuck: &Stuck) -> String {
    match &stuck.what {
        What::Stopped { component, pid, threads } => {
            let of = of_pod(stuck.container.as_ref());
            format!("{} {pid}{of}: {} of {threads} threads stopped", component.name(), threads)
        }
        What::Frozen { component, pid, freezer } => {
            let of = of_pod(stuck.container.as_ref());
            let path = escape::text(&freezer.path);
            format!("{} {pid}{of}: {} in cgroup {path}", component.name(), escape::text(&freezer.state))
        }
        What::Process { command, comm, pid, state } => {
            let of = of_pod(stuck.container.as_ref());
            format!("{} (pid {pid}){of} does not end, state {state}", command_words(command, comm))
        }
        What::Unreaped { comm, pid, parent } => {
            format!(
                "{} {pid} has ended, and its parent {parent} has not asked how",
                escape::text_to(comm, 40)
            )
        }
        What::OutputHeld { pipe, shim } => {
            let of = of_pod(stuck.container.as_ref());
            format!(
                "the output of a command{of} is held open by {}; shim {shim} waits",
                holders(&pipe.writers)
            )
        }
        What::Request(request) => format!("{}: {}", requests(request), waits_for(request)),
    }
}

/// The verdict about it: what, for how long, and how far it reaches.
pub(in crate::render) fn sentence(stuck: &Stuck) -> String {
    let mut text = format!("{}, {}", what(stuck), age(stuck.since));
    let mut operations: Vec<String> = Vec::new();
    for victim in stuck.waiters.iter().filter_map(victim) {
        if !operations.contains(&victim) {
            operations.push(victim);
        }
    }
    if !operations.is_empty() {
        text.push_str("; held up: ");
        text.push_str(&operations.join(", "));
    }
    text
}

fn victim(waiter: &Waiter) -> Option<String> {
    match waiter {
        Waiter::Process { .. } => None,
        Waiter::Requests(request) => Some(escape::text_to(&request.operation, 40)),
        Waiter::Relist { age, .. } => Some(format!("the relist, {}", open_for(*age))),
    }
}

/// `default/p3`, when it is known.
fn of_pod(container: Option<&ContainerFact>) -> String {
    let Some(container) = container else { return String::new() };
    match (&container.namespace, &container.pod) {
        (Some(namespace), Some(pod)) => {
            format!(" of {}/{}", escape::text_to(namespace, 63), escape::text_to(pod, 63))
        }
        (None, Some(pod)) => format!(" of pod {}", escape::text_to(pod, 63)),
        _ => format!(" of container {}", short_id(&container.id)),
    }
}

fn container_line(container: &ContainerFact) -> String {
    let mut parts = Vec::new();
    if let Some(pod) = &container.pod {
        let namespace = container.namespace.as_deref().unwrap_or("?");
        parts.push(format!("{}/{}", escape::text_to(namespace, 63), escape::text_to(pod, 63)));
    }
    let name = container.name.as_deref().map(|name| format!("{} ", escape::text_to(name, 63)));
    parts.push(format!("container {}{}", name.unwrap_or_default(), short_id(&container.id)));
    format!("{} (by its {})", parts.join(", "), escape::text_to(&container.source, 20))
}

fn short_id(id: &str) -> String {
    escape::text_to(id.get(..12).unwrap_or(id), 13)
}

/// `runc exec of 51f2e49b8310`, `CNI plugin bridge ADD`.
pub(in crate::render) fn command_words(command: &Command, comm: &str) -> String {
    match command {
        Command::Runc { sub, container, .. } => {
            let of = container.as_deref().map(|id| format!(" of {}", short_id(id)));
            format!("runc {}{}", escape::text_to(sub, 20), of.unwrap_or_default())
        }
        Command::Shim { action, .. } => {
            format!("containerd-shim {}", escape::text_to(action.as_deref().unwrap_or(""), 20))
        }
        Command::Cni { plugin, action, .. } => {
            let action = action.as_deref().unwrap_or("");
            format!("CNI plugin {} {}", escape::text_to(plugin, 40), escape::text_to(action, 20))
        }
        Command::Other { program } if program.is_empty() => escape::text_to(comm, 40),
        Command::Other { program } => escape::text_to(program, 40),
    }
}

fn age(age: Age) -> String {
    format!("{}{}", if age.at_least { "≥ " } else { "" }, duration(age.ns))
}

/// One look at a relist says that it is open, and nothing about its age.
fn open_for(age: Age) -> String {
    if age.at_least && age.ns == 0 { "in flight".to_owned() } else { format!("open {}", self::age(age)) }
}

fn waiter_line(waiter: &Waiter) -> String {
    match waiter {
        Waiter::Process { component: Component::Runc | Component::Helper, command: Some(command), pid } => {
            format!("{} (pid {pid})", command_words(command, "?"))
        }
        Waiter::Process { component, pid, .. } => format!("{} {pid}", component.name()),
        Waiter::Requests(request) => {
            format!("{}, {}: {}", requests(request), age(request.since), waits_for(request))
        }
        Waiter::Relist { pid, age } => format!("relist of kubelet {pid}, {}", open_for(*age)),
    }
}

/// `3 ListContainers in containerd 812 (goroutine 88123)`.
fn requests(request: &Request) -> String {
    let operation = escape::text_to(&request.operation, 40);
    let number = if request.count == 1 { String::new() } else { format!("{} ", count(request.count.into())) };
    let goroutine = match request.goids.as_slice() {
        [only] if request.count == 1 => format!(", goroutine {only}"),
        _ => String::new(),
    };
    format!("{number}{operation} in {} {}{goroutine}", request.component.name(), request.pid)
}

fn waits_for(request: &Request) -> String {
    let mut text = match &request.waits_for {
        WaitsFor::Shim { method: Some(method) } => {
            format!("waits for the answer of a shim to {}", escape::text_to(method, 40))
        }
        WaitsFor::Shim { method: None } => "waits for the answer of a shim".to_owned(),
        WaitsFor::Lock(held) => format!("waits for {}", lock(*held)),
        WaitsFor::Cni => "waits for a network plugin".to_owned(),
        WaitsFor::ExecOutput => "waits for the end of the command's output".to_owned(),
        WaitsFor::Child => "waits for a child process".to_owned(),
        WaitsFor::Runtime { operation: Some(operation) } => {
            format!("waits for {} of the runtime", escape::text_to(operation, 40))
        }
        WaitsFor::Runtime { operation: None } => "waits for the runtime".to_owned(),
        WaitsFor::Unknown => {
            let why = request.wait_reason.as_deref().map(|why| escape::text_to(why, 40));
            let inner = request.frames.first().map(|frame| short_function(frame));
            match (why, inner) {
                (Some(why), Some(inner)) => format!("in {inner} ({why})"),
                (Some(why), None) => why,
                (None, Some(inner)) => format!("in {inner}"),
                (None, None) => "where, cannot be seen".to_owned(),
            }
        }
    };
    if let Some(held) = request.holds {
        text = format!("{text}; holds {}", lock(held));
    }
    text
}

fn lock(held: Held) -> &'static str {
    match held {
        Held::ContainerStatus => "a container's status lock",
        Held::SandboxStatus => "a sandbox's status lock",
        Held::Metadata => "the write transaction of the metadata",
        Held::Networks => "the lock of the network configuration",
    }
}

/// `write(fd 9, a pipe whose …) in anon_pipe_write < … (11 threads)`.
fn park_line(park: &Park, verbose: bool) -> String {
    let mut parts = Vec::new();
    if let Some(syscall) = &park.syscall {
        parts.push(syscall_words(syscall));
    }
    if let Some(function) = &park.user_function {
        parts.push(format!("called by {}", escape::text_to(function, 60)));
    }
    if !park.kernel_stack.is_empty() {
        let shown = if verbose { park.kernel_stack.len() } else { SHORT_STACK };
        let stack = park.kernel_stack.iter().filter(|name| verbose || !is_entry(name)).take(shown);
        let stack: Vec<String> = stack.map(|name| escape::text_to(name, 60)).collect();
        parts.push(format!("kernel {}", stack.join(" < ")));
    }
    if parts.is_empty() {
        parts.push("running, or not to be seen".to_owned());
    }
    let number = match park.threads {
        1 => format!("thread {}", park.tid),
        n => plural(n.into(), "thread"),
    };
    format!("{number} in state {}: {}", park.state, parts.join("; "))
}

/// The way from user space into the kernel, which is the same in every stack.
fn is_entry(function: &str) -> bool {
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

fn syscall_words(syscall: &SyscallFact) -> String {
    let name = syscall
        .name
        .as_deref()
        .map_or_else(|| format!("syscall {}", syscall.nr), |name| escape::text_to(name, 40));
    let mut about = Vec::new();
    if let Some(fd) = &syscall.fd {
        about.push(fd_words(fd));
    }
    if let Some(path) = &syscall.path {
        about.push(escape::text(path));
    }
    if about.is_empty() { name } else { format!("{name}({})", about.join(", ")) }
}

fn fd_words(fd: &FdFact) -> String {
    let target = match &fd.target {
        FdTarget::Pipe(pipe) => pipe_words(pipe),
        FdTarget::Socket(socket) => socket_line(socket),
        FdTarget::File { path } => escape::text(path),
        FdTarget::Other { link } => escape::text(link),
    };
    format!("fd {}: {target}", fd.fd)
}

fn pipe_words(pipe: &PipeFact) -> String {
    let name = pipe.path.as_deref().map_or_else(|| format!("pipe {}", pipe.inode), escape::text);
    let doubt = if pipe.incomplete { ", perhaps others" } else { "" };
    format!("{name}, read by {}, written by {}{doubt}", holders(&pipe.readers), holders(&pipe.writers))
}

fn holders(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "nobody".to_owned();
    }
    let one = |holder: &Holder| format!("{} {}", escape::text_to(&holder.comm, 20), holder.pid);
    let mut names: Vec<String> = holders.iter().map(one).collect();
    names.dedup();
    names.truncate(4);
    names.join(", ")
}

fn socket_line(socket: &SocketFact) -> String {
    let path = socket.path.as_deref().map_or_else(|| format!("socket {}", socket.inode), escape::text);
    if socket.listening {
        let waiting = plural(socket.unread.into(), "connection");
        return format!("{path}: {waiting} not accepted (room for {})", socket.backlog);
    }
    let from =
        if socket.peers.is_empty() { String::new() } else { format!(" from {}", holders(&socket.peers)) };
    format!("{path}: {} unread{from}", plural(socket.unread.into(), "byte"))
}

/// The innermost functions without the path of their package.
fn go_stack(frames: &[String], verbose: bool) -> String {
    let shown = if verbose { frames.len() } else { SHORT_STACK };
    let stack: Vec<String> = frames.iter().take(shown).map(|frame| short_function(frame)).collect();
    stack.join(" < ")
}

/// `container.(*statusStorage).Get` of the full name.
fn short_function(frame: &str) -> String {
    escape::text_to(frame.rsplit('/').next().unwrap_or(frame), 80)
}
