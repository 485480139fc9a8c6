//! Asks one process: what may wait for an `execve` first, then its cgroup, then what needs its memory.

use std::{collections::HashMap, io};

use super::{
    answerers::are_awaited,
    classify::{Interest, Kind, shares_files},
    containers::is_id,
    disk, epoll,
    kept::Kept,
    locks,
    names::{Names, is_go},
    node::{Groups, Node, cgroup},
    other_end, read,
    syscall::{descriptor_of, from_directory, path_address, read_path, reopened},
    tell::Tell,
    threads::{self, MAX_THREADS, Threads},
};
use crate::{
    census::protocol::{Answer, Step},
    input::{Command, Component, ContainerFact, ParkedThreads},
};

/// Functions of user space that are named in one round: each can mean another program to parse.
const MAX_NAMES: usize = 64;
/// The two variables that CNI defines; no other one is looked at.
const CNI: [&str; 2] = ["CNI_COMMAND", "CNI_CONTAINERID"];

/// Asks one process after the other, and remembers what concerns all.
#[derive(Default)]
pub(super) struct Looker {
    names: Option<Names>,
    named: usize,
    /// Programs by file name: Go or not.
    go: HashMap<String, bool>,
    /// Already told: this kernel, or our privileges, do not allow it for anybody.
    no_syscall: bool,
    no_stack: bool,
    /// A thread waits for a program that answers for the kernel.
    pub(super) awaits_answerers: bool,
}

impl Looker {
    /// Tells everything about one process.
    pub(super) fn look(
        &mut self,
        tell: &mut Tell,
        interest: &Interest,
        node: &mut Node,
        kept: &mut Kept,
    ) -> io::Result<()> {
        if interest.kind == Kind::Zombie {
            return Ok(());
        }
        let mut threads = self.threads(tell, interest, node)?;
        self.awaits_answerers |= threads.parks.iter().any(|seen| are_awaited(&seen.park));
        let by_cgroup = cgroup(tell, interest, node)?;
        let told = command(tell, interest)?;
        if told.is_plugin
            && other_end::find(tell, interest, node, kept, &mut threads)?
            && is_same(tell, interest)
        {
            say(tell, interest.pid, &threads)?;
        }
        self.paths(tell, interest, node, &mut threads)?;
        self.functions(tell, interest, &mut threads)?;
        if !is_same(tell, interest) {
            return tell.say(&Answer::Gone { pid: interest.pid });
        }
        let Groups { freezer, container: by_cgroup, cpu, full, io } = by_cgroup.unwrap_or_default();
        if let Some(dir) = cpu.filter(|_| is_daemon(interest)) {
            tell.say(&Answer::CpuGroup { pid: interest.pid, dir })?;
        }
        let parks: Vec<&ParkedThreads> = threads.parks.iter().map(|seen| &seen.park).collect();
        if let Some(disk) = disk::of(tell, interest, &parks, io.as_ref()) {
            tell.say(&Answer::Disk { pid: interest.pid, disk })?;
        }
        if let Some(limit) = full {
            tell.say(&Answer::TaskLimit { pid: interest.pid, limit })?;
        }
        if let Some(freezer) = freezer {
            tell.say(&Answer::Freezer { pid: interest.pid, freezer })?;
        }
        if let Some(container) = container(tell, interest, told, by_cgroup, node)? {
            tell.say(&Answer::Container { pid: interest.pid, container })?;
        }
        Ok(())
    }

    fn threads(&mut self, tell: &mut Tell, interest: &Interest, node: &Node) -> io::Result<Threads> {
        let (pid, comm) = (interest.pid, interest.seen.stat.comm.as_str());
        let whole = tell.ask(pid, comm, Step::Stacks)?;
        let mut threads = threads::look(&tell.process(pid), pid, whole, &node.holders, &node.sockets);
        locks::holders(tell, pid, &mut threads);
        if interest.component == Component::Helper {
            epoll::sockets(tell, pid, node, &mut threads);
        }
        if let Some(error) = threads.no_syscall.as_ref().filter(|_| !self.no_syscall) {
            self.no_syscall = true;
            tell.refused(0, "", "system calls", error)?;
        }
        if let Some(error) = threads.no_stack.as_ref().filter(|_| !self.no_stack) {
            self.no_stack = true;
            tell.refused(0, "", "kernel stacks", error)?;
        }
        let all = interest.seen.stat.threads;
        if threads.seen as usize == MAX_THREADS && all > threads.seen {
            let why = format!("only {MAX_THREADS} of {all} were looked at");
            tell.cut(pid, comm, "threads", why)?;
        }
        if threads.parks_left_out {
            tell.cut(pid, comm, "threads", "they wait in too many different ways".to_owned())?;
        }
        if is_same(tell, interest) {
            say(tell, pid, &threads)?;
        }
        Ok(threads)
    }

    /// The paths that stuck calls were given.
    fn paths(
        &mut self,
        tell: &mut Tell,
        interest: &Interest,
        node: &Node,
        threads: &mut Threads,
    ) -> io::Result<()> {
        let mut found = false;
        for seen in threads.parks.iter_mut().filter(|seen| !threads::is_rest(&seen.park)) {
            let task = tell.process(interest.pid).join(format!("task/{}", seen.park.tid));
            let Some(call) = seen.park.syscall.as_mut() else { continue };
            let Some(address) = path_address(call).filter(|_| tell.is_here()) else { continue };
            if !tell.ask(interest.pid, &interest.seen.stat.comm, Step::Path)? {
                break;
            }
            // Who has left the call uses that memory for something else, which is none of our business.
            call.path = read_path(interest.pid, address).filter(|_| threads::is_still_in(&task, call));
            if let Some(fd) = reopened(interest.pid, call, &node.holders).filter(|_| call.fd.is_none()) {
                call.fd = descriptor_of(interest.pid, fd, &node.holders, &node.sockets);
            } else if let Some(whole) = from_directory(interest.pid, call, &node.holders) {
                call.path = Some(whole);
            }
            found |= call.path.is_some();
        }
        if found && is_same(tell, interest) {
            say(tell, interest.pid, threads)?;
        }
        Ok(())
    }

    /// Which functions of user space made the calls in which something is stuck.
    fn functions(&mut self, tell: &mut Tell, interest: &Interest, threads: &mut Threads) -> io::Result<()> {
        let stuck =
            |seen: &threads::Seen| !threads::is_rest(&seen.park) && !matches!(seen.park.state, 'R' | 'Z');
        let wanted = matches!(interest.component, Component::Helper | Component::Conmon | Component::Runc);
        let raw = threads.parks.iter().any(|seen| seen.park.kernel_stack.iter().any(|name| is_address(name)));
        let any = wanted && threads.parks.iter().any(stuck);
        if !tell.is_here() || !(any || raw) || self.named >= MAX_NAMES {
            return Ok(());
        }
        if !tell.ask(interest.pid, &interest.seen.stat.comm, Step::Names)? {
            return Ok(());
        }
        let go = any && self.is_go(tell, interest);
        let names = self.names.get_or_insert_with(Names::new);
        for seen in &mut threads.parks {
            for function in seen.park.kernel_stack.iter_mut().filter(|name| is_address(name)) {
                let address = u64::from_str_radix(function.trim_start_matches("0x"), 16).ok();
                if let Some(name) = address.and_then(|address| names.kernel(address)) {
                    *function = name;
                }
            }
            if any && !go && stuck(seen) && self.named < MAX_NAMES {
                self.named += 1;
                seen.park.user_function = seen.pc.and_then(|pc| names.user(interest.pid, pc));
            }
        }
        if is_same(tell, interest) {
            say(tell, interest.pid, threads)?;
        }
        Ok(())
    }

    fn is_go(&mut self, tell: &Tell, interest: &Interest) -> bool {
        let look = || is_go(&tell.process(interest.pid).join("exe")).unwrap_or(true);
        match &interest.seen.program {
            Some(program) => *self.go.entry(program.clone()).or_insert_with(look),
            None => true,
        }
    }
}

fn say(tell: &mut Tell, pid: u32, threads: &Threads) -> io::Result<()> {
    let parked = threads.parks.iter().map(|seen| seen.park.clone()).collect();
    tell.say(&Answer::Threads { pid, threads: threads.seen, stopped: threads.stopped, parked })
}

/// An address that the kernel could not name.
fn is_address(function: &str) -> bool {
    function.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Is the number still that of the same process?
fn is_same(tell: &Tell, interest: &Interest) -> bool {
    let now = read::stat(&tell.process(interest.pid));
    now.is_some_and(|now| now.start_ticks == interest.seen.stat.start_ticks)
}

/// What a command line tells.
#[derive(Default)]
struct Told {
    container: Option<String>,
    bundle: Option<String>,
    /// It is a network plugin, or something that one started.
    is_plugin: bool,
}

/// Tells what it was told to do.
fn command(tell: &mut Tell, interest: &Interest) -> io::Result<Told> {
    let (pid, comm) = (interest.pid, interest.seen.stat.comm.as_str());
    if !tell.ask(pid, comm, Step::Arguments)? {
        return Ok(Told::default());
    }
    let arguments = match read::arguments(&tell.process(pid)) {
        Ok(arguments) => arguments,
        Err(error) => {
            if is_same(tell, interest) {
                tell.refused(pid, comm, Step::Arguments.words(), &error)?;
            }
            return Ok(Told::default());
        }
    };
    let Some((first, rest)) = arguments.split_first() else { return Ok(Told::default()) };
    let mut variables = Vec::new();
    if interest.component == Component::Helper && tell.ask(pid, comm, Step::Environment)? {
        variables = read::environment(&tell.process(pid)).unwrap_or_default();
    }
    let variable = |name: &str| {
        let mut pairs = variables.iter().filter_map(|variable| variable.split_once('='));
        pairs.find(|(key, _)| *key == name && CNI.contains(key)).map(|(_, value)| value.to_owned())
    };
    let command = Command::parse(interest.seen.program.as_deref().unwrap_or(first), rest, variable);
    let is_plugin = matches!(command, Command::Cni { .. });
    let mut told = Told { container: command.container().map(str::to_owned), bundle: None, is_plugin };
    told.bundle = command.bundle().map(str::to_owned);
    if interest.component == Component::Conmon {
        told = conmon(rest);
    }
    if is_same(tell, interest) {
        tell.say(&Answer::Command { pid, command })?;
    }
    Ok(told)
}

/// conmon has one-letter options with a value each: `-c` is the container, `-b` its bundle.
fn conmon(arguments: &[String]) -> Told {
    let value = |names: [&str; 2]| {
        let at = arguments.iter().position(|word| names.contains(&word.as_str()))?;
        arguments.get(at + 1).cloned()
    };
    let container = value(["-c", "--cid"]).filter(|id| is_id(id));
    Told { container, bundle: value(["-b", "--bundle"]), is_plugin: false }
}

/// Does it answer the node's calls, or make them?
fn is_daemon(interest: &Interest) -> bool {
    interest.component == Component::Kubelet || interest.component.role().is_runtime()
}

/// Whose a process is: by its bundle, by its command line, by whoever started it, by its cgroup.
fn container(
    tell: &mut Tell,
    interest: &Interest,
    told: Told,
    by_cgroup: Option<ContainerFact>,
    node: &mut Node,
) -> io::Result<Option<ContainerFact>> {
    let pid = interest.pid;
    let (mut id, mut source) = (told.container, "command line");
    if interest.component == Component::Shim {
        let bundle = read::link(&tell.process(pid).join("cwd"));
        let name = bundle.as_deref().and_then(|path| path.rsplit('/').next()).filter(|name| is_id(name));
        if let Some(name) = name.filter(|_| bundle.as_deref().is_some_and(is_bundle)) {
            (id, source) = (Some(name.to_owned()), "bundle");
        }
    }
    let works_for_others = matches!(interest.component, Component::Runc | Component::Helper);
    if works_for_others {
        id = id.or_else(|| node.works_for.get(&interest.seen.stat.parent).cloned());
    }
    let Some(id) = id else { return Ok(by_cgroup) };
    let may_read = !node.containers.knows(&id) && shares_files(&tell.path("/proc"), pid);
    if let Some(bundle) = told.bundle.filter(|_| may_read)
        && tell.ask(pid, &interest.seen.stat.comm, Step::Bundles)?
    {
        node.containers.read_one(tell, &bundle, &id);
    }
    if works_for_others {
        node.works_for.insert(pid, id.clone());
    }
    Ok(Some(node.containers.container(&id, source)))
}

/// Where containerd keeps bundles: `…/io.containerd.runtime.v2.task/NAMESPACE/ID`, before 1.2 `…v1.linux…`.
fn is_bundle(path: &str) -> bool {
    path.contains("/io.containerd.runtime.v")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As CRI-O calls it.
    #[test]
    fn conmon_options() {
        let line = "-b /run/containers/storage/overlay-containers/c1/userdata -c c1 --exit-dir /x -n k8s_web";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let told = conmon(&words);
        assert_eq!(told.container.as_deref(), Some("c1"));
        assert_eq!(told.bundle.as_deref(), Some("/run/containers/storage/overlay-containers/c1/userdata"));
        assert!(conmon(&["-c".to_owned()]).container.is_none());
    }
}
