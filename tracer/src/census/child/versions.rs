//! What versions the programs of the node say they have: each is run once with `--version` (a shim with `-v`), which prints
//! some lines and does nothing else. Only programs with a known name that belong to root, are writable for nobody else, and live in our own
//! mount namespace are run; systemd tells by the name of its library.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::AsRawFd as _,
        unix::{fs::MetadataExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
};

use super::{read, tell::Tell};
use crate::{
    census::{
        protocol::{Answer, Step},
        text::version,
    },
    input::{Component, VersionFact},
};

/// Longest output that is read.
const MAX_OUTPUT: u64 = 4096;
/// Programs that know this flag.
const KNOWN: &[&str] =
    &["kubelet", "containerd", "crio", "dockerd", "cri-dockerd", "containerd-shim-runc-v2", "runc", "crun"];
/// Where a runtime looks for runc when nobody told it otherwise, in that order.
const RUNC: [&str; 4] = ["/usr/local/sbin/runc", "/usr/local/bin/runc", "/usr/sbin/runc", "/usr/bin/runc"];
/// Where distributions put systemd's own library, whose name carries the version.
const SYSTEMD: [&str; 4] =
    ["/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd"];

/// Tells the version of each program, and of systemd when it is process 1.
pub(super) fn all(tell: &mut Tell, wanted: &[(u32, Component)]) -> io::Result<()> {
    for (pid, component) in wanted {
        let comm = read::stat(&tell.process(*pid)).map(|stat| stat.comm).unwrap_or_default();
        if !tell.is_here() || tell.is_finished(*pid) || !tell.ask(*pid, &comm, Step::Version)? {
            continue;
        }
        let fact = of_process(tell, *pid, *component);
        tell.say(&Answer::Version { pid: *pid, fact })?;
    }
    if is_installed_one_used(wanted) {
        installed_runc(tell)?;
    }
    let systemd = read::stat(&tell.process(1)).is_some_and(|stat| stat.comm == "systemd");
    let version = SYSTEMD.iter().find_map(|dir| systemd_version(&tell.path(dir)));
    if let Some(version) = version.filter(|_| systemd) {
        let fact = VersionFact { program: "systemd".to_owned(), version };
        tell.say(&Answer::Version { pid: 1, fact: Some(fact) })?;
    }
    Ok(())
}

/// Does the node run what is installed under runc's name, as far as can be told? Not when a runc runs, which tells by itself, nor with
/// CRI-O, whose configuration names its programs (`default_runtime` in crio.conf).
fn is_installed_one_used(wanted: &[(u32, Component)]) -> bool {
    !wanted.iter().any(|(_, component)| matches!(component, Component::Runc | Component::Crio))
}

/// No runc runs now: the one that a runtime finds first, unless it is told another.
fn installed_runc(tell: &mut Tell) -> io::Result<()> {
    let found = RUNC.iter().map(Path::new).find(|path| path.exists());
    let Some(path) = found.filter(|_| tell.is_here()) else { return Ok(()) };
    if tell.ask(0, "runc", Step::Version)?
        && let Some(version) = output(path, flag(Component::Runc)).ok().as_deref().and_then(version)
    {
        let fact = VersionFact { program: format!("runc in {}", path.display()), version };
        tell.say(&Answer::Version { pid: 0, fact: Some(fact) })?;
    }
    Ok(())
}

fn of_process(tell: &Tell, pid: u32, component: Component) -> Option<VersionFact> {
    let dir = tell.process(pid);
    let own = tell.process(std::process::id());
    let namespace = |dir: &Path| read::link(&dir.join("ns/mnt"));
    let exe = fs::read_link(dir.join("exe")).ok()?;
    let name = exe.file_name()?.to_str()?;
    let here = namespace(&dir).is_some() && namespace(&dir) == namespace(&own);
    if !KNOWN.contains(&name) || !here {
        return None;
    }
    let version = version(&output(&exe, flag(component)).ok()?)?;
    Some(VersionFact { program: told_as(component, name).to_owned(), version })
}

/// What a version is said to be of: crun is no version of runc.
fn told_as(component: Component, name: &str) -> &str {
    if component == Component::Runc { name } else { component.name() }
}

/// What makes a program print its version and end.
fn flag(component: Component) -> &'static str {
    if component == Component::Shim { "-v" } else { "--version" }
}

/// The first bytes that a program prints for this flag.
///
/// It is run as the open file that was looked at, so nobody can put another one in its place; and the kernel names it by
/// the number of that file, so nobody takes it for a component.
fn output(program: &Path, flag: &str) -> io::Result<String> {
    let file = File::open(program)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != 0 || found.mode() & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.arg(flag).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: prctl with constants is async-signal-safe. It dies with us, and we are killed when it takes too long.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let mut bytes = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    }
    let _ = child.kill();
    child.wait()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `libsystemd-shared-252.so` → 252.
fn systemd_version(dir: &Path) -> Option<String> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.into_iter().find_map(|name| {
        let rest = name.strip_prefix("libsystemd-shared-")?;
        let version = rest.strip_suffix(".so")?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runc that is only installed says nothing of what CRI-O runs, and a version of crun is none of runc.
    #[test]
    fn programs_are_called_by_their_names() {
        let of = |component| is_installed_one_used(&[(1, Component::Kubelet), (2, component)]);
        assert!(of(Component::Containerd) && !of(Component::Crio) && !of(Component::Runc));
        assert_eq!(told_as(Component::Runc, "crun"), "crun");
        assert_eq!(told_as(Component::Shim, "containerd-shim-runc-v2"), "shim");
    }
}
