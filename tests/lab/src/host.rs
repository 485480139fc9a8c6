//! Turns this machine into facts the lab asks for (root, capabilities, cgroup version, tools), and installs the
//! few Debian packages that must be on the machine itself.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cache;

/// Capability numbers of `linux/capability.h`.
const CAP_SYS_RESOURCE: u32 = 24;

/// `CGROUP2_SUPER_MAGIC` and `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
const CGROUP2_MAGIC: i64 = 0x6367_7270;
const OVERLAYFS_MAGIC: i64 = 0x794c_7630;

/// Fails with one clear sentence unless we are root.
///
/// # Errors
///
/// When the effective user is not root.
pub fn require_root() -> Result<()> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    bail!("the lab needs root (containers, mounts, network namespaces): run it with sudo, or as root in a VM")
}

/// Whether this process may lower oom_score_adj. Many containers and CI guests lack it, and then containerd must run
/// with `restrict_oom_score_adj`, or every RunPodSandbox fails.
#[must_use]
pub fn has_cap_sys_resource() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_capabilities(&status).is_some_and(|set| set & (1 << CAP_SYS_RESOURCE) != 0)
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Whether the machine has only the unified cgroup hierarchy.
#[must_use]
pub fn is_cgroup_v2() -> bool {
    file_system_magic(Path::new("/sys/fs/cgroup")) == Some(CGROUP2_MAGIC)
}

/// Whether `path` is itself on an overlay (a container), where overlayfs cannot be stacked as an upper layer.
#[must_use]
pub fn is_on_overlayfs(path: &Path) -> bool {
    file_system_magic(path) == Some(OVERLAYFS_MAGIC)
}

fn file_system_magic(path: &Path) -> Option<i64> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statfs is a valid value of that plain C struct.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string and the buffer is a statfs, both alive for the call.
    let result = unsafe { libc::statfs(path.as_ptr(), &raw mut stat) };
    (result == 0).then_some(stat.f_type)
}

/// Installs those of the Debian `packages` that this machine does not have, with one line of progress on stderr.
///
/// Only for what cannot be unpacked into the cache; the packages come from the machine's own suite.
///
/// # Errors
///
/// When not root and something is missing, or apt-get fails.
pub fn ensure(packages: &[&str]) -> Result<()> {
    let missing = || packages.iter().copied().filter(|package| !is_installed(package)).collect::<Vec<&str>>();
    if missing().is_empty() {
        return Ok(());
    }
    // Tests that run at the same time need packages at the same time, and apt waits for some of its locks only.
    let _turn = cache::turn("apt")?;
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    require_root().with_context(|| format!("missing packages; as root: apt-get install {list}"))?;
    progress(&format!("installing {list}"));
    if apt_install(&missing)? {
        return Ok(());
    }
    // The lists of a fresh machine are empty or old: refresh them once and try again.
    run(&mut apt_get(&["update", "-qq"]))?;
    if apt_install(&missing)? {
        return Ok(());
    }
    bail!("apt-get could not install packages; try: apt-get install {list}")
}

fn apt_install(packages: &[&str]) -> Result<bool> {
    let mut command = apt_get(&["install", "-y", "-qq", "--no-install-recommends"]);
    command.args(packages).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status().context("cannot run apt-get")?.success())
}

fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(args);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

/// One line of progress, on stderr: stdout belongs to results.
pub fn progress(line: &str) {
    eprintln!("lab: {line}");
}

/// Says aloud that a test could not be done here: one line `SKIP what: why` on stderr, past the test harness (which
/// captures only the print macros), so that skips are seen and can be counted.
pub fn declare_skip(what: &str, why: &anyhow::Error) {
    let mut stderr = std::io::stderr().lock();
    // Without a stderr there is nobody to tell.
    let _ = writeln!(stderr, "SKIP {what}: {why:#}");
}

/// Runs `command` to its end; a failure carries the end of what it printed.
///
/// # Errors
///
/// When it cannot be started or does not exit with 0.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    bail!("{name} failed ({}): {}", output.status, tail(&String::from_utf8_lossy(&text), 12))
}

/// Runs a `command` that leaves a process behind, to its end. Nothing that it printed is told: the output is the heir's
/// too, and has no end.
///
/// # Errors
///
/// When it cannot be started or does not exit with 0.
pub fn run_detached(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    if status.success() { Ok(()) } else { bail!("{name} failed ({status})") }
}

/// The last `lines` lines of `text`, for error messages.
#[must_use]
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let status = "Name:\tx\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n";
        let set = effective_capabilities(status).unwrap();
        assert_eq!(set & (1 << CAP_SYS_RESOURCE), 0, "bit 24 is the one missing in this mask");
        assert_ne!(set & 1, 0);
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn a_failed_command_says_what_it_printed() {
        let error = run(Command::new("sh").args(["-c", "echo first; echo last >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("last"), "{error}");
        assert!(run(&mut Command::new("/nonexistent")).is_err());
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
    }
}
