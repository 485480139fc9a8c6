//! One process of the node, read from `/proc/PID`: what it is, since when it runs, what its command line says.
//!
//! Only `stat` and the `exe` link of a process are read to find out whether it is of interest: neither waits for the
//! memory lock of the target (the link: since Linux 4.1). The command line, which can wait, is asked for of components
//! only, of whomever the caller trusts not to block forever. Every read is bounded.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use plegtrace_common::role::Role;

use super::cmdline::{self, CommandFacts};
use super::identity;
use super::owner::{is_somebody_else, owner};
use super::plain_name::plain_name;

const MAX_STAT: u64 = 4096;
/// What is read at once; most texts are shorter.
const ONE_READ: usize = 8 << 10;
/// Bytes of a command line that are read.
pub(crate) const MAX_CMDLINE: u64 = 64 << 10;

/// A component of the node that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in the pid namespace of the /proc we read.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// What it is to the node.
    pub role: Role,
    /// Name of the program when one executable plays several roles ("k3s", "hyperkube").
    pub multi_call: Option<String>,
    /// The kernel's name of it (15 bytes at most; hostile).
    pub comm: String,
    /// Path of the executable in its mount namespace; `None` without permission.
    pub exe: Option<PathBuf>,
    /// The executable has been deleted or replaced since it was started.
    pub exe_deleted: bool,
    /// Arguments (hostile).
    pub args: Vec<String>,
    /// Scheduling state: R, S, D, T, Z, …
    pub state: char,
    /// Start of the process, CLOCK_BOOTTIME, with the resolution of a clock tick.
    pub started_ns: u64,
    /// It lives in the pid namespace of process 1; `None` when that cannot be told.
    pub host_namespace: Option<bool>,
    /// Inode number of its pid namespace; `None` when that cannot be told.
    pub pid_namespace: Option<u32>,
    /// Its user: 0 only for what root has started; `None` when that cannot be told.
    pub owner: Option<u32>,
    /// It holds the socket that it says it serves, on which somebody listens; `None` when that cannot be told, or nobody
    /// has asked.
    pub holds_socket: Option<bool>,
    /// Sockets and directories.
    pub facts: CommandFacts,
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The kernel's name of the thread. Hostile text.
    pub(crate) comm: String,
    /// Scheduling state.
    pub(crate) state: char,
    /// Parent process.
    pub(crate) parent: u32,
    /// Its session: the pid of who began it, who may have ended since.
    pub(crate) session: u32,
    /// Threads of the process.
    pub(crate) threads: u32,
    /// Start, clock ticks since boot.
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// It has ended and waits for its parent to notice. A leader whose other threads live on is a zombie too.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

impl Process {
    /// Does it run in a container, or in another pid namespace for another reason?
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.host_namespace == Some(false)
    }

    /// Does it belong to another user than root?
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        is_somebody_else(self.owner)
    }

    /// The component that process `pid` is; `None` when it is none, or has ended.
    ///
    /// `forced` overrides what its name says, `arguments` is asked for its command line.
    pub(crate) fn read(
        proc: &Path,
        pid: u32,
        forced: Option<Role>,
        arguments: &dyn Fn(u32) -> Vec<String>,
    ) -> Option<Self> {
        let dir = proc.join(pid.to_string());
        let stat = read_stat(&dir).filter(|stat| !stat.has_ended())?;
        let exe = identity::exe_path(&dir);
        let arguments = || arguments(pid);
        let (role, multi_call, args) = classify(&stat, exe.as_deref(), forced, &arguments)?;
        let args = args.unwrap_or_else(arguments);
        if asks_for_version(&args) {
            return None;
        }
        let pid_namespace = namespace(&dir, "pid");
        let host_namespace =
            pid_namespace.zip(namespace(&proc.join("1"), "pid")).map(|(own, hosts)| own == hosts);
        // What runs in a container may bear any name: its files are not ours to read.
        let fs_root = (host_namespace != Some(false)).then(|| dir.join("root"));
        Some(Self {
            pid,
            parent: stat.parent,
            facts: cmdline::facts(role, &args, fs_root.as_deref()),
            role,
            multi_call,
            exe_deleted: is_deleted(&dir),
            exe,
            args,
            state: stat.state,
            started_ns: ticks_to_ns(stat.start_ticks, clock_ticks()),
            host_namespace,
            pid_namespace,
            owner: owner(&dir),
            holds_socket: None,
            comm: stat.comm,
        })
    }
}

/// `containerd --version` serves nobody.
fn asks_for_version(arguments: &[String]) -> bool {
    matches!(arguments, [_, only] if only == "--version" || only == "version")
}

/// May this process be a component? Without its command line, which is only worth asking for then.
pub(crate) fn may_be_component(proc: &Path, pid: u32, forced: bool) -> bool {
    let dir = proc.join(pid.to_string());
    let Some(stat) = read_stat(&dir).filter(|stat| !stat.has_ended()) else { return false };
    let exe = identity::exe_path(&dir);
    let multi_call =
        exe.as_deref().and_then(Path::file_name).is_some_and(|name| is_multi_call(&name.to_string_lossy()));
    forced || multi_call || classify(&stat, exe.as_deref(), None, &Vec::new).is_some()
}

/// A role with the name of a multi-call program, and the arguments if they had to be read to know.
type Classified = (Role, Option<String>, Option<Vec<String>>);

fn classify(
    stat: &Stat,
    exe: Option<&Path>,
    forced: Option<Role>,
    arguments: &dyn Fn() -> Vec<String>,
) -> Option<Classified> {
    let name = exe.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    if let Some(name) = name.as_deref().filter(|name| is_multi_call(name)) {
        let args = arguments();
        let role = multi_call_role(name, &args).or(forced)?;
        return Some((forced.unwrap_or(role), Some(name.to_owned()), Some(args)));
    }
    let by_name = match &name {
        Some(name) => role_of_program(name),
        // Without permission the kernel's name must do.
        None => role_of_program(&stat.comm),
    };
    // `runc init` runs from a sealed copy of runc whose name differs between versions.
    let init = stat.comm.starts_with("runc:[").then_some(Role::Runc);
    Some((forced.or(by_name).or(init)?, None, None))
}

/// The role of a program by its file name.
pub(crate) fn role_of_program(name: &str) -> Option<Role> {
    Some(match plain_name(name) {
        "kubelet" => Role::Kubelet,
        "containerd" => Role::Containerd,
        "crio" | "cri-o" => Role::Crio,
        "dockerd" => Role::Dockerd,
        "cri-dockerd" => Role::CriDockerd,
        "conmon" | "conmonrs" => Role::Conmon,
        "runc" | "crun" => Role::Runc,
        plain if plain.starts_with("containerd-shim") => Role::Shim,
        _ => return None,
    })
}

/// Can an executable of this name play several roles?
pub(crate) fn is_multi_call(name: &str) -> bool {
    matches!(
        plain_name(name),
        "k3s" | "hyperkube" | "kubelite" | "k3s-server" | "k3s-agent" | "microshift" | "edgecore"
    )
}

/// Which part of a multi-call program this process is: by the name it was called by, else by its first argument.
pub(crate) fn multi_call_role(name: &str, args: &[String]) -> Option<Role> {
    let first = args.first().map(String::as_str).unwrap_or_default();
    // k3s rewrites its own title into "/usr/local/bin/k3s server".
    let mut words = first.split(' ').chain(args.iter().skip(1).map(String::as_str));
    let called = words.next().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if let Some(role) = role_of_program(called) {
        return Some(role);
    }
    match (plain_name(name), words.next().unwrap_or_default()) {
        ("kubelite" | "k3s-server" | "k3s-agent" | "edgecore", _) => Some(Role::Kubelet),
        ("k3s", "server" | "agent") | ("microshift", "run") => Some(Role::Kubelet),
        ("hyperkube", sub) => role_of_program(sub),
        _ => None,
    }
}

/// Reads `/proc/PID/stat`. The name in it may contain anything, also parentheses and newlines.
pub(crate) fn read_stat(dir: &Path) -> Option<Stat> {
    parse_stat(&String::from_utf8_lossy(&read_bounded(&dir.join("stat"), MAX_STAT)?))
}

/// The text of `/proc/PID/stat`.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let (front, back) = text.rsplit_once(')')?;
    let comm = front.split_once('(')?.1.to_owned();
    let mut fields = back.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 6, 20 and 22 of the line (man 5 proc); state is field 3. The session may be 0 or, in theory, -1.
    let session = fields.nth(1)?.parse().unwrap_or(0);
    let threads = fields.nth(13)?.parse().ok()?;
    let start_ticks = fields.nth(1)?.parse().ok()?;
    Some(Stat { comm, state, parent, session, threads, start_ticks })
}

/// Reads a command line; waits for the memory lock of the process.
pub(crate) fn read_args(dir: &Path) -> Vec<String> {
    split_args(&read_bounded(&dir.join("cmdline"), MAX_CMDLINE).unwrap_or_default())
}

/// The content of `/proc/PID/cmdline` or `environ` as words; each ends with a zero byte.
pub(crate) fn split_args(bytes: &[u8]) -> Vec<String> {
    let trimmed = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if trimmed.is_empty() {
        return Vec::new();
    }
    trimmed.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

fn read_bounded(path: &Path, max: u64) -> Option<Vec<u8>> {
    read_whole(File::open(path).ok()?, max).ok()
}

/// A text of /proc as one answer of the kernel. An empty buffer would be tried with 32 bytes first, and the command line
/// of a process that ends before the next read would be those.
pub(crate) fn read_whole(file: File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ONE_READ);
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_deleted(dir: &Path) -> bool {
    let link = std::fs::read_link(dir.join("exe"));
    link.is_ok_and(|link| link.to_string_lossy().ends_with(" (deleted)"))
}

/// Inode number of a namespace of the process whose folder in `/proc` this is: the number in `pid:[4026531836]`
/// (namespaces(7)).
pub(crate) fn namespace(dir: &Path, kind: &str) -> Option<u32> {
    let link = std::fs::read_link(dir.join("ns").join(kind)).ok()?;
    link.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// Clock ticks as nanoseconds.
pub(crate) fn ticks_to_ns(ticks: u64, per_second: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / per_second.max(1))
}

/// Clock ticks per second.
pub(crate) fn clock_ticks() -> u64 {
    // SAFETY: sysconf has no memory effects.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
    }

    /// A name with parentheses and spaces does not move the fields.
    #[test]
    fn stat_with_a_hostile_name() {
        let line = "42 (a) R 1 (b) S 7 1 2 0 -1 4 1 2 3 4 5 6 7 8 20 0 9 0 12345 1 2 3\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.parent, stat.session, stat.threads, stat.start_ticks),
            ("a) R 1 (b", 'S', 7, 2, 9, 12345)
        );
        let ended = |state, threads| Stat { state, threads, ..stat.clone() }.has_ended();
        assert!(ended('Z', 1) && !ended('Z', 2) && !ended('S', 1));
        assert_eq!(parse_stat("42 (x) S 7"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(ticks_to_ns(12345, 100), 123_450_000_000);
    }

    /// A text is one read: a pipe of packets throws away what a read leaves of one.
    #[test]
    fn a_text_is_one_read() {
        use std::io::Write as _;
        use std::os::fd::FromRawFd as _;
        let mut ends = [0; 2];
        // SAFETY: pipe2 fills two numbers; each descriptor gets one owner.
        let [from, mut to] = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_DIRECT), 0);
            ends.map(|fd| File::from_raw_fd(fd))
        };
        let line = [b'x'; 200];
        to.write_all(&line).unwrap();
        drop(to);
        assert_eq!(read_whole(from, MAX_CMDLINE).unwrap(), line);
    }

    /// One executable, several roles.
    #[test]
    fn multi_call_programs() {
        let role = |name, line| multi_call_role(name, &args(line));
        assert_eq!(role("k3s", "/usr/local/bin/k3s server|"), Some(Role::Kubelet));
        assert_eq!(role("k3s", "/usr/local/bin/k3s|agent"), Some(Role::Kubelet));
        assert_eq!(role("k3s", "containerd|-c|/x"), Some(Role::Containerd));
        assert_eq!(role("k3s", "kubectl|get|pods"), None);
        assert_eq!(role("hyperkube", "/hyperkube|kubelet|--v=2"), Some(Role::Kubelet));
        assert_eq!(role("hyperkube", "/hyperkube|kube-proxy"), None);
        assert_eq!(role("kubelite", "/snap/kubelite|--x"), Some(Role::Kubelet));
        assert_eq!(role(".k3s-wrapped", "/nix/store/x-k3s/bin/k3s|server"), Some(Role::Kubelet));
        assert_eq!(role(".k3s-wrapped", "containerd|-c|/x"), Some(Role::Containerd));
        assert_eq!(role("microshift", "microshift|run"), Some(Role::Kubelet));
        assert_eq!(role("microshift", "microshift|version"), None);
        assert_eq!(role("edgecore", "/usr/local/bin/edgecore"), Some(Role::Kubelet));
        assert!([".k3s-wrapped", "microshift", "edgecore"].iter().all(|name| is_multi_call(name)));
    }

    /// Names are compared whole, but for what distributions put around them.
    #[test]
    fn program_names() {
        assert_eq!(role_of_program("containerd-shim-runc-v2"), Some(Role::Shim));
        assert_eq!(role_of_program("containerd-stress"), None);
        assert_eq!(role_of_program("kubelet"), Some(Role::Kubelet));
        assert_eq!(role_of_program("kubelet2"), None);
        assert_eq!(role_of_program("kubelet-1.36"), Some(Role::Kubelet));
        assert_eq!(role_of_program("containerd-1.7"), Some(Role::Containerd));
        assert_eq!(role_of_program("docker-containerd"), Some(Role::Containerd));
        assert_eq!(role_of_program("docker-containerd-shim"), Some(Role::Shim));
    }

    /// The configuration of a containerd counts, but not of one in a container.
    #[test]
    fn configuration_of_the_node_only() {
        let proc = tempfile::tempdir().unwrap();
        let dir = |pid: u32| proc.path().join(pid.to_string());
        for (pid, namespace) in [(1, "pid:[1]"), (7, "pid:[1]"), (8, "pid:[2]")] {
            std::fs::create_dir_all(dir(pid).join("root/etc/containerd")).unwrap();
            std::fs::create_dir(dir(pid).join("ns")).unwrap();
            std::os::unix::fs::symlink(namespace, dir(pid).join("ns/pid")).unwrap();
            let stat = format!("{pid} (containerd) S 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 9 0 7 1 2 3\n");
            std::fs::write(dir(pid).join("stat"), stat).unwrap();
            let config = "[grpc]\naddress = '/run/own.sock'\n";
            std::fs::write(dir(pid).join("root/etc/containerd/config.toml"), config).unwrap();
        }
        let serves = |pid| {
            let read = Process::read(proc.path(), pid, None, &|_| vec!["containerd".to_owned()]);
            read.unwrap().facts.serves.unwrap()
        };
        assert_eq!(serves(7), PathBuf::from("/run/own.sock"));
        assert_eq!(serves(8), PathBuf::from("/run/containerd/containerd.sock"), "what it has by default");
    }

    /// This very process is read like any other.
    #[test]
    fn own_process() {
        let read = |role| {
            let arguments = |pid: u32| read_args(Path::new(&format!("/proc/{pid}")));
            Process::read(Path::new("/proc"), std::process::id(), role, &arguments)
        };
        let me = read(Some(Role::Helper)).unwrap();
        assert_eq!(me.args, std::env::args().collect::<Vec<_>>());
        assert!(me.started_ns > 0 && !me.exe_deleted && me.exe.is_some());
        assert_eq!(read(None), None);
    }
}
