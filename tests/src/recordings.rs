//! Recordings of the faults of the lab, as golden files: which there are, how one is made, how one is read.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use plegtrace::{
    correlate::Snapshot,
    diagnose::diagnose,
    input::Frame,
    recording::{Encoder, Recording},
    render::{
        json,
        text::{self, TextOptions},
    },
};
use plegtrace_lab::{Node, fault::Kind, process};

use crate::program::{self, Running};

/// The faults of which there is a recording; those that need the same node stand together.
pub const FAULTS: [Kind; 6] = [
    Kind::ShimStopped,
    Kind::LockHostage,
    Kind::ContainerdStopped,
    Kind::KubeletStopped,
    Kind::Hook,
    Kind::Cni,
];
/// Everything is late at this age: runc after 5 s, plugins and hooks after 10 s.
pub const LATE: Duration = Duration::from_secs(12);
/// What a recording in the repository may weigh, bytes.
pub const MOST: u64 = 100 << 10;
/// The name of every node in the repository.
const NODE: &std::ffi::CStr = c"n1";
const LIMIT: Duration = Duration::from_secs(60);

/// Where the recordings lie.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/recordings")
}

/// The name of a fault's files, as on the command line of the lab.
#[must_use]
pub fn name(kind: Kind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The report for people, without colours, as it is printed where there is no terminal.
///
/// # Errors
///
/// None: memory takes all.
pub fn text_of(snapshot: &Snapshot, verbose: bool) -> Result<String> {
    let mut out = Vec::new();
    text::report(
        snapshot,
        &diagnose(snapshot),
        &TextOptions { verbose, ..TextOptions::default() },
        &mut out,
    )?;
    Ok(String::from_utf8(out)?)
}

/// The report for programs.
///
/// # Errors
///
/// None: memory takes all.
pub fn json_of(snapshot: &Snapshot) -> Result<String> {
    let mut out = Vec::new();
    json::report(snapshot, &diagnose(snapshot), &mut out)?;
    Ok(String::from_utf8(out)?)
}

/// Waits until a fault that began at `began` is late.
///
/// # Errors
///
/// None, unless the clock stands still.
pub fn wait_until_late(began: Instant) -> Result<()> {
    process::wait_for("a fault that is late", LATE + LIMIT, || Ok((began.elapsed() >= LATE).then_some(())))
}

/// Makes the recordings of `kinds` on real nodes; those that are there are replaced.
///
/// # Errors
///
/// A fault cannot be injected or healed, or its recording is not what it should be.
pub fn make(kinds: &[Kind]) -> Result<()> {
    let mut node: Option<(bool, Node)> = None;
    for kind in kinds {
        let knobs = kind.knobs();
        if node.as_ref().is_none_or(|(gates, _)| *gates != knobs.gates) {
            // Two nodes at once are more than a small machine likes.
            drop(node.take());
            node = Some((knobs.gates, Node::start(&knobs)?));
        }
        let Some((_, node)) = &node else { continue };
        node.wait_for_relists(3, LIMIT)?;
        let fault = kind.inject(node, "p1")?;
        let began = Instant::now();
        let made = wait_until_late(began).and_then(|()| record(node, &folder().join(file(*kind))));
        fault.heal()?;
        made.with_context(|| name(*kind))?;
    }
    Ok(())
}

/// The file of a fault's recording, in [`folder`].
#[must_use]
pub fn file(kind: Kind) -> String {
    format!("{}.plegtrace", name(kind))
}

/// A plegtrace that records into `file`, on a machine that has the name of every node; more arguments may follow.
///
/// # Errors
///
/// There is no program.
pub fn recorder(file: &Path) -> Result<Command> {
    let mut command = Command::new(program::path()?);
    command.args(["record", "--force"]).arg(file);
    // SAFETY: two system calls, which are async-signal-safe.
    unsafe { command.pre_exec(take_name) };
    Ok(command)
}

/// One observation of usual length.
fn record(node: &Node, file: &Path) -> Result<()> {
    fs::create_dir_all(folder()).context("cannot make the folder of recordings")?;
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let mut command = recorder(file)?;
    command.args(["--kubelet-pid", &kubelet, "--runtime-pid", &runtime]);
    let ended = Running::spawn(&mut command)?.finish(LIMIT)?;
    ensure!(ended.status.code() == Some(1), "a stall was to be found: {ended:?}");
    anonymise(file, fs::read_to_string("/proc/sys/kernel/osrelease")?.trim())?;
    let length = fs::metadata(file).context("there is no recording")?.len();
    ensure!(length <= MOST, "the recording has {length} bytes, {MOST} are allowed");
    has_no_home(file)
}

/// A recording in the repository names nobody's home directory.
///
/// # Errors
///
/// It does, or cannot be read.
pub fn has_no_home(file: &Path) -> Result<()> {
    let all = unpacked(file)?;
    let Some(at) = home_in(&all) else { return Ok(()) };
    let path: String = all[at..].chars().take(60).collect();
    bail!("paths of a home are in it, as {path:?}: set PLEGTRACE_CACHE to another place")
}

/// Where a path begins that leads to a home directory. A directory of that name further down is none: containerd has one.
fn home_in(text: &str) -> Option<usize> {
    let homes = [["", "home", ""].join("/"), ["", "root", ""].join("/")];
    let is_inside = |at: usize| text[..at].ends_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
    homes
        .iter()
        .find_map(|home| text.match_indices(home.as_str()).map(|(at, _)| at).find(|at| !is_inside(*at)))
}

/// Makes the build in a kernel's release unreadable wherever the recording names it: it says where the recording was made.
///
/// # Errors
///
/// It cannot be read or written, or is damaged.
pub fn anonymise(file: &Path, release: &str) -> Result<()> {
    let (from, to) = (release.as_bytes(), without_build(release).into_bytes());
    let mut recording = Recording::open(fs::File::open(file)?)?;
    let (mut encoder, mut whole) = (Encoder::new(), Encoder::header());
    let mut take = |frame: Frame| {
        let mut bytes = frame.bytes.to_vec();
        while let Some(at) = bytes.windows(from.len()).position(|part| part == from && from != to) {
            bytes[at..at + from.len()].copy_from_slice(&to);
        }
        whole.extend(encoder.push(&bytes).into_iter().flatten());
    };
    while recording.next_block(&mut take) {}
    ensure!(recording.damage().sentences().is_empty(), "damaged: {:?}", recording.damage());
    whole.extend(encoder.block().into_iter().flatten());
    whole.extend(encoder.end());
    fs::write(file, whole).with_context(|| format!("cannot write {}", file.display()))
}

/// `6.1.0-13-cloud` as `6.1.0-xx-xxxxx`: of the same length, so that nothing else of a record changes.
fn without_build(release: &str) -> String {
    let (version, build) = release.split_at(release.find('-').unwrap_or(release.len()));
    let hidden = build.chars().map(|c| if c.is_ascii_alphanumeric() { 'x' } else { c });
    version.chars().chain(hidden).collect()
}

/// The records of a whole recording, one after the other, what is no text in them made harmless.
///
/// # Errors
///
/// It cannot be read, or is damaged.
pub fn unpacked(file: &Path) -> Result<String> {
    let file = fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let (mut recording, mut all) = (Recording::open(file)?, Vec::new());
    while recording.next_block(&mut |frame| all.extend_from_slice(&frame.bytes)) {}
    ensure!(recording.damage().sentences().is_empty(), "damaged: {:?}", recording.damage());
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// Gives this process a host name of its own.
fn take_name() -> io::Result<()> {
    // SAFETY: no pointers.
    let own = unsafe { libc::unshare(libc::CLONE_NEWUTS) };
    // SAFETY: the name lives for ever and has this length.
    if own == 0 && unsafe { libc::sethostname(NODE.as_ptr(), NODE.count_bytes()) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what begins there.
    #[test]
    fn homes() {
        let path = ["", "root", "x"].join("/");
        assert_eq!(home_in(&format!("\"{path}\"")), Some(1));
        assert_eq!(home_in(&format!("/tmp/lab{path}")), None);
        assert_eq!(home_in(&format!("/tmp/lab{path} {path}")), Some(16));
    }

    /// The version stays.
    #[test]
    fn builds_are_hidden() {
        assert_eq!(without_build("6.1.0-13-cloud_2"), "6.1.0-xx-xxxxx_x");
        assert_eq!(without_build("6.18"), "6.18");
    }
}
