//! [`Facts`]: what the files below a root directory say. Reading never fails: what cannot be read is `None`.

use std::{fs, io, path::Path};

use super::version::KernelVersion;
use crate::target::namespace;

/// Inode of the first user namespace, PROC_USER_INIT_INO (Linux include/linux/proc_ns.h, v6.12).
const INITIAL_USER_NS: u32 = 0xEFFF_FFFD;
/// Inode of the first pid namespace, PROC_PID_INIT_INO (same file).
const INITIAL_PID_NS: u32 = 0xEFFF_FFFC;
/// Nothing read here is longer; a longer file is not what it says it is.
const MAX_BYTES: u64 = 1 << 20;

/// How much of the kernel is locked against root (Linux security/lockdown/lockdown.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Not locked, or locked against changes only, which we make none of.
    Open(&'static str),
    /// Kernel memory may not be read, not by programs either.
    Confidentiality,
    /// This kernel has no lockdown.
    NotBuilt,
    /// The file system that says so is not mounted.
    Unknown,
}

/// Whom /proc shows processes of others (Linux Documentation/filesystems/proc.rst, `hidepid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HidePid {
    /// Everybody.
    Off,
    /// Only those with CAP_SYS_PTRACE.
    On,
}

/// What is known about this machine and this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Processor, as Rust names it.
    pub arch: &'static str,
    /// `uname -r`.
    pub release: Option<String>,
    /// Its numbers.
    pub version: Option<KernelVersion>,
    /// Effective user id.
    pub euid: Option<u32>,
    /// Effective capabilities, one bit each.
    pub capabilities: Option<u64>,
    /// In the first user namespace.
    pub initial_user_ns: Option<bool>,
    /// In the first pid namespace.
    pub initial_pid_ns: Option<bool>,
    /// Kernel lockdown.
    pub lockdown: Lockdown,
    /// The kernel's types can be read; else why not.
    pub btf: Result<(), String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// How /proc is mounted.
    pub hidepid: Option<HidePid>,
}

impl Facts {
    /// Reads the facts below `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let release = text(root, "proc/sys/kernel/osrelease").map(|s| s.trim().to_owned());
        let status = text(root, "proc/self/status").unwrap_or_default();
        Self {
            arch: std::env::consts::ARCH,
            version: release.as_deref().and_then(KernelVersion::parse),
            release,
            euid: field(&status, "Uid:").and_then(|v| v.split_whitespace().nth(1)?.parse().ok()),
            capabilities: field(&status, "CapEff:").and_then(|v| u64::from_str_radix(v.trim(), 16).ok()),
            initial_user_ns: namespace(&root.join("proc/self"), "user").map(|inode| inode == INITIAL_USER_NS),
            initial_pid_ns: namespace(&root.join("proc/self"), "pid").map(|inode| inode == INITIAL_PID_NS),
            lockdown: lockdown(root),
            btf: btf(root),
            perf_event_paranoid: number(root, "proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: number(root, "proc/sys/kernel/unprivileged_bpf_disabled"),
            hidepid: text(root, "proc/self/mountinfo").as_deref().and_then(hidepid),
        }
    }
}

fn text(root: &Path, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(root.join(path)).ok()?;
    io::Read::read_to_end(&mut io::Read::take(file, MAX_BYTES), &mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(root: &Path, path: &str) -> Option<i32> {
    text(root, path)?.trim().parse().ok()
}

/// The value behind `key` at the start of a line.
fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key))
}

/// The file lists the levels and puts the one in force into brackets.
fn lockdown(root: &Path) -> Lockdown {
    match text(root, "sys/kernel/security/lockdown") {
        Some(levels) if levels.contains("[confidentiality]") => Lockdown::Confidentiality,
        Some(levels) if levels.contains("[integrity]") => Lockdown::Open("integrity"),
        Some(levels) if levels.contains("[none]") => Lockdown::Open("none"),
        Some(_) => Lockdown::Unknown,
        None if root.join("sys/kernel/security/lsm").exists() => Lockdown::NotBuilt,
        None => Lockdown::Unknown,
    }
}

fn btf(root: &Path) -> Result<(), String> {
    match fs::File::open(root.join("sys/kernel/btf/vmlinux")) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err("no such file".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Looks at the mount that is seen at `/proc`: the last one there.
fn hidepid(mountinfo: &str) -> Option<HidePid> {
    let line = mountinfo.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let (_, end) = line.split_once(" - ")?;
    let mut words = end.split(' ');
    if words.next() != Some("proc") {
        return None;
    }
    let hidden = words
        .nth(1)?
        .split(',')
        .filter_map(|option| option.strip_prefix("hidepid="))
        .any(|value| !matches!(value, "0" | "off"));
    Some(if hidden { HidePid::On } else { HidePid::Off })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    /// A tree as a node shows it is read completely.
    #[test]
    fn reads_a_node() {
        let dir = tree(&[
            ("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n"),
            ("proc/sys/kernel/perf_event_paranoid", "3\n"),
            ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
            ("proc/self/status", "Name:\tx\nUid:\t1000\t0\t0\t0\nCapInh:\t00\nCapEff:\t000001ffffffffff\n"),
            ("proc/self/mountinfo", "22 27 0:21 / /proc rw,relatime shared:2 - proc proc rw,hidepid=2\n"),
            ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
            ("sys/kernel/btf/vmlinux", "x"),
        ]);
        fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        symlink("user:[4026531837]", dir.path().join("proc/self/ns/user")).unwrap();
        symlink("pid:[4026532000]", dir.path().join("proc/self/ns/pid")).unwrap();
        let facts = Facts::read(dir.path());
        assert_eq!(facts.version, Some(KernelVersion::new(5, 10)));
        assert_eq!((facts.euid, facts.capabilities), (Some(0), Some(0x1ff_ffff_ffff)));
        assert_eq!((facts.initial_user_ns, facts.initial_pid_ns), (Some(true), Some(false)));
        assert_eq!(facts.lockdown, Lockdown::Open("integrity"));
        assert_eq!((facts.btf.clone(), facts.hidepid), (Ok(()), Some(HidePid::On)));
        assert_eq!((facts.perf_event_paranoid, facts.unprivileged_bpf_disabled), (Some(3), Some(2)));
    }

    /// An empty tree gives no facts and no panic.
    #[test]
    fn reads_nothing() {
        let facts = Facts::read(tree(&[]).path());
        assert_eq!((facts.release, facts.version, facts.euid, facts.capabilities), (None, None, None, None));
        assert_eq!((facts.initial_user_ns, facts.initial_pid_ns, facts.hidepid), (None, None, None));
        assert_eq!(facts.lockdown, Lockdown::Unknown);
        assert!(facts.btf.unwrap_err().contains("no such file"));
    }

    /// Nonsense in files is as good as no file.
    #[test]
    fn reads_nonsense() {
        let dir = tree(&[
            ("proc/sys/kernel/osrelease", "\u{1b}[31m"),
            ("proc/self/status", "Uid:\nCapEff:\tzz\n"),
            ("proc/self/mountinfo", "a b c d /proc\n- - - - /proc -\n"),
            ("sys/kernel/security/lockdown", "none integrity\n"),
        ]);
        let facts = Facts::read(dir.path());
        assert_eq!((facts.version, facts.euid, facts.capabilities), (None, None, None));
        assert_eq!((facts.lockdown, facts.hidepid), (Lockdown::Unknown, None));
    }

    /// `hidepid` by number and by name; the mount that lies on top counts.
    #[test]
    fn hidepid_forms() {
        let of = |options: &str| hidepid(&format!("22 27 0:21 / /proc rw - proc proc {options}"));
        assert_eq!(of("rw"), Some(HidePid::Off));
        assert_eq!(of("rw,hidepid=off"), Some(HidePid::Off));
        assert_eq!(of("rw,hidepid=1"), Some(HidePid::On));
        assert_eq!(of("rw,gid=5,hidepid=invisible"), Some(HidePid::On));
        let two = "1 2 0:1 / /proc rw - proc proc rw,hidepid=2\n3 2 0:2 / /proc rw - proc proc rw";
        assert_eq!(hidepid(two), Some(HidePid::Off));
    }

    /// A kernel without lockdown is told from a tree that does not say.
    #[test]
    fn lockdown_not_built() {
        assert_eq!(lockdown(tree(&[("sys/kernel/security/lsm", "capability")]).path()), Lockdown::NotBuilt);
    }
}
