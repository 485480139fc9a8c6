//! `record` and `report` as an operator meets them: files, pipes, signals, messages, exit codes. Needs no node: what is
//! observed are two processes with the right names, by the census alone.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use plegtrace_lab::process;
use plegtrace_tests::program::{self, Ended, Running};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// User and group `nobody`, by number: every distribution has them so.
const NOBODY: u32 = 65534;

/// A directory with programs that are called kubelet and containerd, which run and sleep.
struct Stage {
    dir: TempDir,
    actors: [Child; 2],
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let actors = ["kubelet", "containerd"].map(|name| {
            let program = dir.path().join(name);
            // By `cp`, because a file that another thread's fork holds open for writing cannot be executed.
            assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
            Command::new(&program).arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
        });
        Self { dir, actors }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `plegtrace record` of the two, by the census.
    fn record(&self, file: &str, more: &[&str]) -> Command {
        let mut command = Command::new(program::path().unwrap());
        let [kubelet, containerd] = [0, 1].map(|n: usize| self.actors[n].id().to_string());
        command.args(["record", "--sources", "census", "--kubelet-pid", &kubelet]);
        command.args(["--runtime-pid", &containerd]).args(more).arg(file).current_dir(self.dir.path());
        command
    }

    /// A recording of the length of one look.
    fn recorded(&self, file: &str, more: &[&str]) -> Ended {
        let ended = run(self.record(file, &[&["-d", "1"], more].concat()));
        assert_eq!(ended.status.code(), Some(5), "{ended:?}");
        assert!(ended.stderr.contains(&format!("plegtrace: recorded to {file}: ")), "{ended:?}");
        ended
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for actor in &mut self.actors {
            let _ = actor.kill();
            let _ = actor.wait();
        }
    }
}

fn run(mut command: Command) -> Ended {
    Running::spawn(&mut command).unwrap().finish(LIMIT).unwrap()
}

fn report(file: &Path, more: &[&str]) -> Ended {
    let mut command = Command::new(program::path().unwrap());
    command.arg("report").arg(file).args(more);
    run(command)
}

/// The report of a recording is the one that was printed with it, byte for byte, also for somebody without privileges.
#[test]
fn the_same_report() {
    let stage = Stage::new();
    for (file, options) in [("text", &["-v"][..]), ("json", &["-o", "json"]), ("plain", &[])] {
        let printed = stage.recorded(file, options);
        assert!(!printed.stdout.is_empty());
        let again = report(&stage.path(file), options);
        assert_eq!((again.stdout.as_str(), again.stderr.as_str()), (printed.stdout.as_str(), ""), "{file}");
        assert_eq!(again.status.code(), printed.status.code());
    }
    let (mine, theirs) = (stage.path("plain"), stage.path("copy"));
    assert_eq!(fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o600);
    fs::copy(&mine, &theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(as_nobody(&theirs).stdout, report(&mine, &[]).stdout);
}

/// `report` by a user without privileges, who can only execute a program that lies in an open place.
fn as_nobody(file: &Path) -> Ended {
    let program = file.with_file_name("plegtrace");
    program::copy(&program::path().unwrap(), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("report").arg(file).current_dir("/");
    // SAFETY: cannot fail and touches nothing.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    run(command)
}

/// Through a pipe: no report where the recording goes, and the same report where it comes out.
#[test]
fn through_pipes() {
    let stage = Stage::new();
    let mut recorder = stage.record("-", &["-d", "1"]);
    let mut recorder =
        recorder.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reporter = Command::new(program::path().unwrap());
    let stdin = recorder.stdout.take().unwrap();
    let reporter = reporter.args(["report", "-", "-o", "json"]).stdin(stdin).output().unwrap();
    let mut said = String::new();
    recorder.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((recorder.wait().unwrap().code(), reporter.status.code()), (Some(5), Some(5)));
    assert!(said.contains("plegtrace: recorded to stdout: ") && reporter.stderr.is_empty(), "{said}");
    let document: Value = serde_json::from_slice(&reporter.stdout).unwrap();
    assert_eq!(document["diagnosis"]["verdict"], "cannot_tell");
}

/// What is there is not overwritten, nor what a link points to; `--force` makes a new file.
#[test]
fn files_that_are_there() {
    let stage = Stage::new();
    let (old, link) = (stage.path("old"), stage.path("link"));
    fs::write(&old, "precious").unwrap();
    symlink(&old, &link).unwrap();
    for (name, force, sentence) in [
        ("old", "--quiet", "exists"),
        ("link", "--force", "not a regular file"),
        (".", "--force", "not a regular file"),
    ] {
        let refused = run(stage.record(name, &["-d", "1", force]));
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
        assert!(
            refused.stderr.starts_with("plegtrace: ") && refused.stderr.contains(sentence),
            "{refused:?}"
        );
        assert_eq!(refused.stderr.contains("hint: replace it with: --force"), name == "old");
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "precious");
    let ended = stage.recorded("old", &["--force"]);
    assert_eq!(report(&old, &[]).stdout, ended.stdout);
    let nowhere = run(stage.record("no/where", &["-d", "1"]));
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    assert!(nowhere.stderr.contains("no/where"));
}

/// When there is nothing to record, there is no file.
#[test]
fn nothing_to_record() {
    let stage = Stage::new();
    let mut command = Command::new(program::path().unwrap());
    // Linux has no process ids beyond 2^22.
    command.args(["record", "--sources", "census", "--kubelet-pid", "4194305"]).arg(stage.path("none"));
    let refused = run(command);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(!stage.path("none").exists());
}

/// Sizes that make no sense are refused with what was typed.
#[test]
fn sizes() {
    for size in ["0", "12Q", "100K", "-1"] {
        let refused = run(Stage::new().record("x", &[&format!("--max-size={size}")]));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains("--max-size"), "{refused:?}");
    }
}

/// Ctrl-C ends a recording as it ends an observation: with a report, and whole.
#[test]
fn interrupts() {
    let stage = Stage::new();
    let mut recorder = Running::spawn(&mut stage.record("r", &["-d", "600"])).unwrap();
    recorder.wait_until_said("inspecting processes", LIMIT).unwrap();
    recorder.signal(libc::SIGINT).unwrap();
    let ended = recorder.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    assert!(ended.stderr.contains("plegtrace: recorded to r: "), "{ended:?}");
    let again = report(&stage.path("r"), &[]);
    assert_eq!((again.stdout, again.stderr.as_str()), (ended.stdout, ""));
}

/// Whoever is killed leaves what was written until then, and the report says that it has no end.
#[test]
fn killed() {
    let stage = Stage::new();
    let mut recorder = Running::spawn(&mut stage.record("r", &["-d", "600", "-q"])).unwrap();
    let written = || Ok(fs::metadata(stage.path("r")).is_ok_and(|file| file.len() > 100).then_some(()));
    process::wait_for("a block in the file", LIMIT, written).unwrap();
    assert!(!recorder.has_ended().unwrap());
    recorder.signal(libc::SIGKILL).unwrap();
    recorder.finish(LIMIT).unwrap();
    let ended = report(&stage.path("r"), &["-o", "json"]);
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    assert!(ended.stderr.starts_with("plegtrace: ") && ended.stderr.contains("it has no end"), "{ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["targets"].as_array().unwrap().len(), 2, "{document}");
    let losses = document["losses"].as_array().unwrap();
    assert!(losses.iter().any(|loss| loss["stage"] == "recording" && loss["reason"] == "cut"), "{losses:?}");
    assert!(report(&stage.path("r"), &["-v"]).stdout.contains("the recording has no end"));
}

/// A file that cannot grow: the error, the report all the same, and a recording that can be read so far.
#[test]
fn no_room() {
    let stage = Stage::new();
    let words = stage.record("r", &["-d", "600"]);
    // One block of 512 bytes: the first second does not fit in. Ignored, SIGXFSZ is the error EFBIG.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]).arg(words.get_program());
    shell.args(words.get_args()).current_dir(stage.dir.path());
    let ended = run(shell);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(
        ended.stderr.contains("plegtrace: cannot write the recording; what was written so far can be read: "),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("File too large") && ended.stdout.contains("plegtrace "), "{ended:?}");
    let again = report(&stage.path("r"), &[]);
    assert_eq!(again.status.code(), Some(5), "{again:?}");
    let mut full = stage.record("-", &[]);
    let full = full.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
    assert_eq!(full.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&full.stderr).contains("No space left on device"));
}

/// What is no recording, or cannot be opened, or came later: one sentence and the exit code of the table.
#[test]
fn foreign_files() {
    let stage = Stage::new();
    stage.recorded("good", &[]);
    let good = fs::read(stage.path("good")).unwrap();
    let mut later = good.clone();
    later[8..10].copy_from_slice(&7_u16.to_le_bytes());
    let crc = crc32(&later[..12]);
    later[12..16].copy_from_slice(&crc.to_le_bytes());
    for (name, bytes, code, sentence) in [
        ("empty", Vec::new(), 2, "not a plegtrace recording"),
        ("text", b"PLEG is not healthy\n".repeat(100), 2, "not a plegtrace recording"),
        ("later", later, 5, "use a newer plegtrace"),
    ] {
        fs::write(stage.path(name), bytes).unwrap();
        let refused = report(&stage.path(name), &[]);
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(code), ""), "{refused:?}");
        assert!(refused.stderr.contains(sentence) && refused.stderr.contains(name), "{refused:?}");
    }
    for (path, sentence) in [("absent", "No such file"), (".", "Is a directory")] {
        let refused = report(&stage.path(path), &[]);
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
        assert!(refused.stderr.contains(sentence), "{refused:?}");
    }
}

/// CRC-32 as in zlib, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// A damaged recording is reported as far as it goes: what is wrong is said, counted as a loss, and forbids "healthy".
#[test]
fn damaged_files() {
    let stage = Stage::new();
    stage.recorded("good", &[]);
    let good = fs::read(stage.path("good")).unwrap();
    for (name, at) in [("middle", good.len() / 2), ("last", good.len() - 1)] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let mut file = fs::File::create(stage.path(name)).unwrap();
        file.write_all(&bytes).unwrap();
        let ended = report(&stage.path(name), &["-v"]);
        assert_eq!(ended.status.code(), Some(5), "{ended:?}");
        assert!(ended.stderr.contains("it is damaged in 1 place"), "{name}: {ended:?}");
        assert!(ended.stdout.contains("recording"), "{name}: {ended:?}");
    }
}
