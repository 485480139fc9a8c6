//! One temporary directory that holds the whole state of a lab, and the promise that nothing of the lab is left when
//! it goes: by drop, by panic, by Ctrl-C or by SIGKILL of this process.
//!
//! The promise is kept by a janitor: a shell in a process of its own that waits for the end of a pipe and then runs
//! `teardown.sh`. Drop closes the pipe and waits; a killed process closes it too.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::knobs::CgroupDriver;
use crate::{host, logs, process};

/// Prefix of the directories, and of the cgroups and networks named after them.
const PREFIX: &str = "plegtrace-lab-";
/// What the janitor runs.
const TEARDOWN: &str = include_str!("teardown.sh");
/// File with the process that owns the directory: its number and start time.
const OWNER: &str = "owner";
/// How many labs one process can tell apart by name: ten bits.
const LABS_PER_PROCESS: u32 = 1 << 10;
/// 110 busy pods take some 15 s on two cores.
const TEARDOWN_LIMIT: Duration = Duration::from_secs(120);

/// The directory of one lab.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    id: String,
    janitor: Child,
}

impl Scratch {
    /// Makes the directory and starts its janitor, after sweeping what killed labs left.
    ///
    /// # Errors
    ///
    /// When not root, or the directory or the janitor cannot be made.
    pub fn new() -> Result<Scratch> {
        host::require_root()?;
        host::ensure(&["iproute2"])?;
        sweep()?;
        let (dir, id) = fresh_dir()?;
        let owner = process::identity(std::process::id()).context("cannot read our own /proc entry")?;
        fs::write(dir.join(OWNER), owner).context("cannot mark the directory as ours")?;
        let mut janitor = teardown_command(&dir, &id);
        janitor.arg("wait").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let janitor = janitor.spawn().context("cannot start the lab's janitor")?;
        Ok(Scratch { dir, id, janitor })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Eight hexadecimal digits that tell this lab from others on the machine.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Copies the ends of the lab's logs into `$PLEGTRACE_TEST_LOGS/NAME-ID`, as is done by itself when a test panics while it
    /// owns its lab. Gives that directory; none when the variable is not set, or there is no log.
    #[must_use]
    pub fn keep_logs(&self, name: &str) -> Option<PathBuf> {
        logs::keep(&self.dir, &self.id, name)
    }

    /// Parent of the cgroups of all pods. The systemd driver needs a slice.
    #[must_use]
    pub fn cgroup(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => format!("/{PREFIX}{}", self.id),
            CgroupDriver::Systemd => format!("/plegtracelab{}.slice", self.id),
        }
    }

    /// Name of the CNI network, also the prefix of its cached results.
    #[must_use]
    pub fn network(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    /// Name of the bridge device (at most 15 characters).
    #[must_use]
    pub fn bridge(&self) -> String {
        format!("ptlab{}", self.id)
    }

    /// Starts a daemon of the lab with its output in `log`. It and all its descendants carry the mark by which the
    /// janitor finds them; a process group of its own keeps a terminal's Ctrl-C away from it.
    ///
    /// # Errors
    ///
    /// When the log or the process cannot be made.
    pub fn spawn(&self, command: &mut Command, log: &Path) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let out = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        let err = out.try_clone().context("cannot share the log file")?;
        command.env("PLEGTRACE_LAB", &self.dir).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        command.spawn().with_context(|| format!("cannot start {name}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _said = self.keep_logs(&logs::test_name());
        }
        drop(self.janitor.stdin.take());
        match process::wait(&mut self.janitor, TEARDOWN_LIMIT) {
            Ok(status) if status.success() => {}
            Ok(_) => host::progress(&format!("lab {} left something behind, see above", self.id)),
            Err(error) => host::progress(&format!("teardown of lab {} did not end: {error:#}", self.id)),
        }
    }
}

fn teardown_command(dir: &Path, id: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(TEARDOWN).arg("plegtrace-lab-janitor").arg(dir).arg(id);
    // Not marked as ours: it must not kill itself.
    command.env_remove("PLEGTRACE_LAB").current_dir("/");
    command
}

/// Makes a directory whose name no other lab on the machine has; gives it and its id.
fn fresh_dir() -> Result<(PathBuf, String)> {
    let base = std::env::temp_dir();
    for _ in 0..LABS_PER_PROCESS {
        let id = next_id();
        let dir = base.join(format!("{PREFIX}{id}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok((dir, id)),
            // Left by an earlier process of the same number, or made in another process namespace.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot make {}", dir.display())),
        }
    }
    bail!("every lab name of this process is taken in {}; remove the {PREFIX}* there", base.display())
}

/// Process numbers have at most 22 bits (`PID_MAX_LIMIT`); the rest counts the labs of this process.
fn next_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}", (std::process::id() & 0x3f_ffff) << 10 | (count % LABS_PER_PROCESS))
}

/// Removes every lab whose process is gone and whose janitor did not finish. Gives the number of labs removed.
///
/// # Errors
///
/// When the temporary directory cannot be read or a teardown leaves something.
pub fn sweep() -> Result<usize> {
    let base = std::env::temp_dir();
    let mut swept = 0;
    for entry in fs::read_dir(&base).with_context(|| format!("cannot list {}", base.display()))? {
        let path = entry.context("cannot list the temporary directory")?.path();
        let Some(id) =
            path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX).map(str::to_owned))
        else {
            continue;
        };
        if is_orphan(&path) {
            host::progress(&format!("sweeping lab {id}, whose process is gone"));
            host::run(&mut teardown_command(&path, &id))?;
            swept += 1;
        }
    }
    Ok(swept)
}

/// Whether the owner is gone. A directory without a mark is being made this very moment, or is not ours.
fn is_orphan(dir: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(dir.join(OWNER)) else { return false };
    let pid = owner.split(' ').next().and_then(|pid| pid.parse().ok());
    pid.is_none_or(|pid| process::identity(pid).is_none_or(|now| now != owner))
}

/// Ids of the containers and sandboxes that the lab in `dir` has: with a kubelet their cgroups lie outside of the lab's,
/// and the id is all that tells them from others. To be asked for before the lab ends.
#[must_use]
pub fn container_ids(dir: &Path) -> Vec<String> {
    // Those of the CRI and those of Docker.
    let namespaces =
        ["k8s.io", "moby"].map(|name| dir.join("state/io.containerd.runtime.v2.task").join(name));
    let bundles = namespaces.iter().filter_map(|namespace| fs::read_dir(namespace).ok()).flatten();
    let names = bundles.flatten().map(|bundle| bundle.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).collect()
}

/// What is left of the containers `ids`: processes in their cgroups, and these cgroups. For tests.
#[must_use]
pub fn container_leftovers(ids: &[String]) -> Vec<String> {
    let of_container = |path: &str| ids.iter().any(|id| path.contains(id.as_str()));
    let mut left = Vec::new();
    for pid in process::all() {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if of_container(&cgroups) {
            left.push(format!("process {pid} {} of a container", process::name(pid)));
        }
    }
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        // A link to a hierarchy under a second name is no directory.
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for path in entries.filter(is_dir).map(|entry| entry.path()) {
            if of_container(&path.to_string_lossy()) {
                left.push(format!("cgroup {}", path.display()));
            } else {
                dirs.push(path);
            }
        }
    }
    left
}

/// Whether a process without our mark runs in something of the lab: in a cgroup named after it, or on a root file system
/// that lies in its directory, as every container does, also one in a cgroup of another name.
fn is_inside(pid: u32, id: &str) -> bool {
    let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (name, slice) = (format!("{PREFIX}{id}/"), format!("plegtracelab{id}.slice"));
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let cgroups = text("cgroup");
    cgroups.contains(&name)
        || cgroups.contains(&slice)
        || text("mountinfo").lines().filter(is_root).any(|line| line.contains(&name))
}

/// What a lab must not leave: running processes with its mark or in its containers, mounts, cgroups, its bridge, CNI
/// results, logs of pods, its directory. For tests.
#[must_use]
pub fn leftovers(dir: &Path, id: &str) -> Vec<String> {
    let describe = |pid: u32| format!("process {pid} {}", process::name(pid));
    let mut left: Vec<String> = process::marked(dir).into_iter().map(describe).collect();
    left.extend(process::all().into_iter().filter(|&pid| is_inside(pid, id)).map(describe));
    left.extend(container_leftovers(&container_ids(dir)));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below = format!("{}/", dir.display());
    left.extend(mounts.lines().filter(|line| line.contains(&below)).map(|line| format!("mount {line}")));
    let bridge = PathBuf::from(format!("/sys/class/net/ptlab{id}"));
    let group = format!("{PREFIX}{id}");
    let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let cgroups =
        hierarchies.map(|entry| entry.path().join(&group)).chain([Path::new("/sys/fs/cgroup").join(&group)]);
    let paths = cgroups.chain([bridge, dir.to_owned()]).filter(|path| path.exists());
    left.extend(paths.map(|path| format!("path {}", path.display())));
    for dir in ["/var/lib/cni/results", "/var/log/pods", "/var/log/containers"] {
        let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let ours = names.filter(|name| name.to_string_lossy().contains(&group));
        left.extend(ours.map(|name| format!("file {dir}/{}", name.display())));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_fit_a_device_name() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| next_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 8 && format!("ptlab{id}").len() <= 15));
    }

    #[test]
    fn a_directory_is_orphaned_when_its_owner_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_orphan(dir.path()), "no mark: not ours");
        fs::write(dir.path().join(OWNER), process::identity(std::process::id()).unwrap()).unwrap();
        assert!(!is_orphan(dir.path()));
        fs::write(dir.path().join(OWNER), format!("{} 1", std::process::id())).unwrap();
        assert!(is_orphan(dir.path()), "the number was reused by a younger process");
    }

    #[test]
    fn the_teardown_script_is_valid_shell() {
        let status = Command::new("sh").args(["-n", "-c", TEARDOWN]).status().unwrap();
        assert!(status.success());
    }
}
