//! Recordings of a real node: the report of the file is the report that was printed, for anybody; what pods keep to
//! themselves is not in it; a full disk leaves what was written.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use plegtrace::commands;
use plegtrace_lab::{Knobs, Node, fault::Kind, host, kubelet::SECRETS, process};
use plegtrace_tests::{
    claim,
    program::{self, Ended, Running},
    recordings::{unpacked, wait_until_late},
};
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// User and group `nobody`, by number: every distribution has them so.
const NOBODY: u32 = 65534;

/// A directory that everybody may enter, with the program in it.
fn open_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("plegtrace");
    host::run(Command::new("cp").arg(program::path().unwrap()).arg(&program)).unwrap();
    for path in [dir.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn record(node: &Node, file: &Path, more: &[&str]) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let file = file.to_str().unwrap();
    let about = ["record", file, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    Running::start(&[&about[..], more].concat()).unwrap()
}

/// What a user without privileges gets of a copy.
fn report(dir: &TempDir, file: &Path, more: &[&str]) -> Ended {
    let copy = file.with_extension("copy");
    fs::copy(file, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new(dir.path().join("plegtrace"));
    command.arg("report").arg(&copy).args(more).current_dir("/").uid(NOBODY).gid(NOBODY);
    Running::spawn(&mut command).unwrap().finish(LIMIT).unwrap()
}

/// Records a fault from its beginning, and twice more when it is late: the report of each file is the one that was printed.
pub(super) fn same_report(node: &Node, kind: Kind) {
    let dir = open_dir();
    let file = |name: &str| dir.path().join(name);
    let mut early = record(node, &file("early"), &["-v", "-d", "600"]);
    early.wait_until_armed(LIMIT).unwrap();
    let fault = kind.inject(node, "p1").unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    wait_until_late(Instant::now()).unwrap();
    let late = [("json", &["-q", "-o", "json"][..]), ("text", &[])];
    let late = late.map(|(name, options)| (name, options, record(node, &file(name), options)));
    let mut runs = Vec::from(late.map(|(name, options, run)| (name, options, run.finish(LIMIT).unwrap())));
    early.signal(libc::SIGINT).unwrap();
    runs.push(("early", &["-v"], early.finish(LIMIT).unwrap()));
    fault.heal().unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
    for (name, options, printed) in runs {
        assert_eq!(printed.status.code(), Some(1), "{kind:?}, {name}: {printed:?}");
        assert_eq!(fs::metadata(file(name)).unwrap().permissions().mode() & 0o777, 0o600);
        let options: Vec<&str> = options.iter().copied().filter(|option| *option != "-q").collect();
        let again = report(&dir, &file(name), &options);
        assert_eq!((again.stdout, again.stderr.as_str()), (printed.stdout, ""), "{kind:?}, {name}");
        assert_eq!(again.status.code(), Some(1));
    }
    // And in the other form, which nobody printed, nothing is missing.
    let document = report(&dir, &file("early"), &["-o", "json"]).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        (&document["diagnosis"]["verdict"], &document["stopped"]),
        (&"stall".into(), &"interrupt".into())
    );
}

/// A stall as it grows, and as somebody finds it who comes too late: text and JSON, byte for byte.
#[test]
fn the_same_report_anywhere() {
    host::require_root().unwrap();
    let node = Node::start(&Kind::Hook.knobs()).unwrap();
    for kind in [Kind::LockHostage, Kind::Hook] {
        same_report(&node, kind);
        node.wait_for_relists(2, LIMIT).unwrap();
    }
}

#[test]
fn what_pods_keep_to_themselves_is_not_in_it() {
    host::require_root().unwrap();
    keeps_no_secret(&Node::start(&Knobs { exec_probes: true, ..Kind::Hook.knobs() }).unwrap());
}

/// A pod comes, is probed and goes while it is recorded. Its name is in the recording; the value of its variable, the
/// argument of its probe and its annotation are not.
pub(super) fn keeps_no_secret(node: &Node) {
    let dir = open_dir();
    let file = dir.path().join("r");
    let mut recorder = record(node, &file, &["-d", "600"]);
    recorder.wait_until_armed(LIMIT).unwrap();
    node.kubelet().add_pod("p9").unwrap();
    let pod = || Ok(node.pod("p9").ok());
    let pod = process::wait_for("the pod", LIMIT, pod).unwrap();
    // The runtime says that it runs before its program does.
    let variable = claim::works("the variable of the pod", || {
        let inside = process::in_cgroup(&pod.container);
        Ok(inside.iter().find_map(|pid| process::variable(*pid, "PLEGTRACE_LAB_SECRET")))
    });
    assert_eq!(variable, SECRETS[0]);
    let command = ["/bin/true", SECRETS[1]];
    node.containerd().client().exec_sync(&pod.container, &command, LIMIT).unwrap();
    // Where containerd keeps what it was sent.
    let find = Command::new("grep")
        .args(["-rlaF", "--include=meta.db", SECRETS[2]])
        .arg(node.containerd().scratch().path())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&find.stdout).contains("meta.db"),
        "the annotation was in a payload: {find:?}"
    );
    node.wait_for_relists(3, LIMIT).unwrap();
    node.kubelet().remove_pod("p9").unwrap();
    process::wait_for("the end of the pod", LIMIT, || Ok(node.pod("p9").is_err().then_some(()))).unwrap();
    recorder.signal(libc::SIGINT).unwrap();
    let printed = recorder.finish(LIMIT).unwrap();
    assert_eq!(printed.status.code(), Some(0), "{}", printed.stdout);

    let all = unpacked(&file).unwrap();
    assert!(all.contains(&pod.container), "the container's id tells what runc worked on");
    assert!(all.contains("\"sub\":\"exec\""), "the probes were seen");
    for secret in SECRETS {
        claim::harm(!all.contains(secret), format_args!("{secret} is in the recording"));
    }
}

/// A tmpfs of one size, which goes with the test.
struct Small(TempDir);

impl Small {
    fn new(size: &str) -> Small {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "plegtrace-lab"]).arg(dir.path());
        host::run(&mut mount).unwrap();
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A disk that gets full ends the observation: with the report, the error, and all that fitted in the file.
#[test]
fn full_disks() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { exec_probes: true, ..Knobs::default() }).unwrap();
    let small = Small::new("16k");
    let file = small.0.path().join("r");
    let ended = record(&node, &file, &["-d", "600"]).finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("cannot write the recording") && ended.stderr.contains("No space left"));
    assert!(ended.stdout.contains("plegtrace 0."), "the report is printed: {ended:?}");
    let replayed = commands::replay(fs::File::open(&file).unwrap()).unwrap();
    assert!(replayed.damage.cut && replayed.damage.places == 0, "{:?}", replayed.damage);
    assert_eq!(replayed.damage.missing, 0);
    assert!(!replayed.snapshot.targets.is_empty());
}
