//! Targets that go, come back, or are not what they should be.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use plegtrace::decode::{Process, Step};
use plegtrace::input::{Component, Layer};
use plegtrace::target::is_apart;
use plegtrace_lab::held_file::HeldFile;
use plegtrace_lab::{Containerd, Knobs, Node, host, process};
use plegtrace_tests::breakpoints::Sites;
use plegtrace_tests::claim;
use plegtrace_tests::program::{self, Ended, Running};
use plegtrace_tests::watching::Watching;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Kills containerd and runs `program` in its place, with its arguments and environment; gives its process.
fn replace(containerd: &Containerd, program: &Path) -> u32 {
    containerd.daemon().kill().unwrap();
    containerd.daemon().restart_from(program).unwrap();
    process::wait_for("the new containerd's CRI", LIMIT, || {
        Ok(containerd.client().version(Duration::from_secs(2)).ok())
    })
    .unwrap();
    containerd.pid()
}

/// Has containerd run from its own file again, for who comes next. One that failed needs no other.
struct Back<'a>(&'a Containerd);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            replace(self.0, self.0.program());
        }
    }
}

/// Waits until calls of `layer` in the process `pid` are seen that began after `since_ns`.
pub(super) fn wait_for_calls(watching: &Watching, layer: Layer, pid: u32, what: &str) {
    process::wait_for(what, LIMIT, || {
        let seen = watching.seen();
        let count = seen.of_layer(layer).filter(|(call, _)| call.tgid == pid).count();
        Ok((count >= 2).then_some(()))
    })
    .unwrap();
}

#[test]
fn a_restarted_containerd_is_probed_again() {
    host::require_root().unwrap();
    containerd_is_probed_again(&Node::start(&Knobs::default()).unwrap());
}

/// containerd is restarted from the same file, then from another one, while we watch: its spans go on.
pub(super) fn containerd_is_probed_again(node: &Node) {
    let containerd = node.containerd();
    let (kubelet, socket) = (node.kubelet().pid().to_string(), containerd.socket().to_str().unwrap());
    let watching =
        Watching::start(&["-d", "600", "--kubelet-pid", &kubelet, "--runtime-endpoint", socket]).unwrap();
    watching.wait_until_armed().unwrap();
    let first = containerd.pid();
    wait_for_calls(&watching, Layer::Handler, first, "handlers of the first containerd");

    let _back = Back(containerd);
    let same = replace(containerd, containerd.program());
    wait_for_calls(&watching, Layer::Handler, same, "handlers of its successor from the same file");

    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("containerd");
    std::fs::copy(containerd.program(), &copy).unwrap();
    let other = replace(containerd, &copy);
    wait_for_calls(&watching, Layer::Handler, other, "handlers of its successor from another file");
    // The program is replaced on disk, as an upgrade does: the process runs the old one.
    let newer = dir.path().join("newer");
    std::fs::write(&newer, "#!/bin/sh\n").unwrap();
    std::fs::rename(&newer, &copy).unwrap();

    // Another program of that kind starts: plegtrace looks at all of them again, within a second.
    let version = Command::new(containerd.program()).arg("--version").stdout(Stdio::null()).status();
    assert!(version.unwrap().success());
    let relists = || watching.seen().of_layer(Layer::Relist).count();
    let before = relists();
    process::wait_for("relists after that", LIMIT, || Ok((relists() >= before + 3).then_some(()))).unwrap();

    let (snapshot, seen) = watching.interrupt().unwrap();
    for pid in [first, same] {
        let target = snapshot.targets.iter().find(|target| target.fact.pid == pid).unwrap();
        let gone = matches!(target.state, plegtrace::correlate::TracedState::Gone { .. });
        assert!(gone && target.fact.component == Component::Containerd, "{target:?}");
    }
    assert!(seen.of_layer(Layer::Relist).count() > 0);

    let runtime = other.to_string();
    let report = run(&["-d", "4", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime], &[0, 1, 5]);
    let handlers = operations(&report, "server");
    assert!(handlers.iter().any(|name| name == "ListContainers"), "through /proc/PID/exe: {report}");
}

/// A kubelet that was killed is there for as long as it takes to die. Who looks at it then knows that it is not the one to follow,
/// and finds its successor, although the operator has named the first one by its number.
#[test]
fn a_kubelet_that_dies_slowly_is_followed_by_its_successor() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (kubelet, held) = (node.kubelet(), HeldFile::mount(&dir.path().join("held")).unwrap());
    kubelet.daemon().kill().unwrap();
    held.open_in(|| kubelet.daemon().restart()).unwrap();
    let (old, socket) = (kubelet.pid(), node.containerd().socket().to_str().unwrap());
    let about = ["-d", "600", "--kubelet-pid", &old.to_string(), "--runtime-endpoint", socket];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_armed().unwrap();
    wait_for_calls(&watching, Layer::Relist, old, "relists of the first kubelet");
    held.hold();
    process::signal(old, libc::SIGKILL).unwrap();
    let is_told = |step: &Process| step.meta.tgid == old && matches!(step.step, Step::Exit(_));
    process::wait_for("its end", LIMIT, || Ok(watching.seen().processes.iter().any(is_told).then_some(())))
        .unwrap();
    let looked = || watching.seen().open.at_ns;
    for _ in 0..2 {
        let last = looked();
        process::wait_for("a look", LIMIT, || Ok((looked() > last).then_some(()))).unwrap();
    }
    assert!(held.waiting() > 0 && process::identity(old).is_some(), "it is dying");
    held.let_go();
    kubelet.daemon().kill().unwrap();
    kubelet.daemon().restart().unwrap();
    wait_for_calls(&watching, Layer::Relist, kubelet.pid(), "relists of its successor");
}

/// The kubelet is killed and started again while we watch: its relists go on.
pub(super) fn kubelet_is_followed(node: &Node) {
    let kubelet = node.kubelet();
    let (first, socket) = (kubelet.pid(), node.containerd().socket().to_str().unwrap());
    let about = ["-d", "600", "--kubelet-pid", &first.to_string(), "--runtime-endpoint", socket];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_armed().unwrap();
    wait_for_calls(&watching, Layer::Relist, first, "relists of the first kubelet");
    kubelet.daemon().kill().unwrap();
    kubelet.daemon().restart().unwrap();
    let second = kubelet.pid();
    wait_for_calls(&watching, Layer::Relist, second, "relists of its successor");
    let (snapshot, _) = watching.interrupt().unwrap();
    for (pid, gone) in [(first, true), (second, false)] {
        let target = snapshot.targets.iter().find(|target| target.fact.pid == pid).unwrap();
        let is_gone = matches!(target.state, plegtrace::correlate::TracedState::Gone { .. });
        assert!(is_gone == gone && target.fact.component == Component::Kubelet, "{target:?}");
    }
}

/// What plegtrace keeps of root's power: DAC_READ_SEARCH, SYS_PTRACE, SYS_ADMIN, LEASE, SYSLOG, PERFMON, BPF; and on old
/// kernels SYS_RESOURCE.
const KEPT: u64 = 1 << 2 | 1 << 19 | 1 << 21 | 1 << 28 | 1 << 34 | 1 << 38 | 1 << 39 | 1 << 24;
/// And SYS_CHROOT, unless it is known that we are not in a container.
const CONTAINED: u64 = 1 << 18;

#[test]
fn a_confined_plegtrace_follows_its_targets() {
    host::require_root().unwrap();
    confined_plegtrace_follows(&Node::start(&Knobs::default()).unwrap());
}

/// Neither the threads of plegtrace nor its children have more of root's power than it needs, nor can they get it back.
/// With that it follows a containerd that is replaced by a file of another user, which wants a lease and new probes.
pub(super) fn confined_plegtrace_follows(node: &Node) {
    let containerd = node.containerd();
    let (kubelet, socket) = (node.kubelet().pid().to_string(), containerd.socket().to_str().unwrap());
    let arguments = ["-d", "600", "-o", "json", "--kubelet-pid", &kubelet, "--runtime-endpoint", socket];
    let mut running = Running::start(&arguments).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    let kept = if is_apart(1) == Some(false) { KEPT } else { KEPT | CONTAINED };
    let children = || process::all().into_iter().filter(|pid| process::parent(*pid) == Some(running.pid()));
    let readers: Vec<u32> = children().collect();
    assert!(!readers.is_empty(), "the reader of the census");
    for pid in readers.into_iter().chain([running.pid()]) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        for task in tasks.map(|task| task.unwrap().path()) {
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let set = |name: &str| u64::from_str_radix(line(name), 16).unwrap();
            let sets = ["CapPrm:", "CapEff:", "CapInh:", "CapBnd:"].map(set);
            let confined = sets.iter().all(|set| set & !kept == 0) && line("NoNewPrivs:") == "1";
            claim::harm(confined, format_args!("more power than it needs: {sets:x?} in {}", task.display()));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("containerd");
    std::fs::copy(containerd.program(), &copy).unwrap();
    std::os::unix::fs::chown(&copy, Some(12_345), None).unwrap();
    let _back = Back(containerd);
    let successor = replace(containerd, &copy);
    let sites = Sites::find(successor, &["transport.(*http2Server).WriteStatus"]).unwrap();
    process::wait_for("probes on the successor", LIMIT, || Ok(sites.all_armed()?.then_some(()))).unwrap();
    running.signal(libc::SIGINT).unwrap();
    let ended = running.finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["stopped"], "interrupt", "{}", ended.stderr);
    claim::harm(sites.armed().unwrap().is_empty(), "something is attached when it has ended");
}

/// An upgraded containerd for which the kernel side has no hooks left is refused, and probed when those of the one before it
/// have rested.
#[test]
fn a_containerd_without_room_is_probed_later() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs::default()).unwrap();
    let containerd = node.containerd();
    let (kubelet, socket) = (node.kubelet().pid().to_string(), containerd.socket().to_str().unwrap());
    let about = ["-d", "600", "--kubelet-pid", &kubelet, "--runtime-endpoint", socket];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_runc_is_probed().unwrap();
    let (_, seen) = watching.interrupt().unwrap();
    let slots = seen.hooks.len().to_string();

    let watching = Watching::start(&[&about[..], &["--hook-slots", &slots]].concat()).unwrap();
    watching.wait_until_runc_is_probed().unwrap();
    wait_for_calls(&watching, Layer::Handler, containerd.pid(), "handlers of the first containerd");
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("containerd");
    std::fs::copy(containerd.program(), &copy).unwrap();
    let pid = replace(containerd, &copy);
    let refused = || watching.seen().refused.iter().any(|it| it.why.starts_with("more than") && it.matters);
    process::wait_for("its refusal", LIMIT, || Ok(refused().then_some(()))).unwrap();
    wait_for_calls(&watching, Layer::Handler, pid, "handlers of its successor");
    let (snapshot, _) = watching.interrupt().unwrap();
    let why =
        format!("more than {slots} hooks; it will be probed as soon as programs that ended have made room");
    let about: Vec<_> = snapshot.refused.iter().filter(|it| it.why.starts_with("more than")).collect();
    assert!(about.iter().all(|it| it.why == why && it.what.ends_with("/containerd")), "{about:#?}");
    assert_eq!(snapshot.hooks.len().to_string(), slots);
}

/// The kubelet is killed while we watch: reported as down, exit code 1.
#[test]
fn a_killed_kubelet_is_a_stall() {
    killed_after("armed: ");
}

/// The kubelet is killed before the kernel side could tell of it: noticed all the same.
#[test]
fn a_kubelet_killed_while_arming_is_a_stall() {
    killed_after("reading the programs' function tables");
}

/// Kills the kubelet when plegtrace has announced `step`.
fn killed_after(step: &str) {
    host::require_root().unwrap();
    let node = Node::start(&Knobs::default()).unwrap();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let mut running = Running::start(&[&["-v", "-o", "json", "-d", "12"], &about[..]].concat()).unwrap();
    running.wait_until_said(step, LIMIT).unwrap();
    process::signal(node.kubelet().pid(), libc::SIGKILL).unwrap();
    let ended = running.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}\n{}", ended.stderr, ended.stdout);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let reasons = report["diagnosis"]["reasons"].as_array().unwrap();
    assert!(
        reasons.iter().any(|reason| reason["kind"] == "down" && reason["component"] == "kubelet"),
        "{}",
        report["diagnosis"]
    );
    assert!(!ended.stdout.contains("the file changed"), "nobody replaced it: {}", report["refused"]);
}

/// Runs plegtrace to its end, checks the exit code, gives its document.
fn run(arguments: &[&str], codes: &[i32]) -> Value {
    let running = Running::start(&[&["-q", "-o", "json"], arguments].concat()).unwrap();
    let ended = running.finish(LIMIT).unwrap();
    let code = ended.status.code().unwrap();
    assert!(codes.contains(&code), "exit code {code}: {}\n{}", ended.stderr, ended.stdout);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn operations(report: &Value, side: &str) -> Vec<String> {
    let rows = report["operations"].as_array().unwrap().iter().filter(|row| row["side"] == side);
    rows.map(|row| row["operation"].as_str().unwrap().to_owned()).collect()
}

/// A program that is not Go's cannot be probed: one clear sentence, nothing attached, no verdict.
#[test]
fn a_program_that_is_not_go_is_refused() {
    host::require_root().unwrap();
    let mut sleeps = [(); 2].map(|()| Command::new("sleep").arg("600").spawn().unwrap());
    let [kubelet, runtime] = sleeps.each_ref().map(|sleep| sleep.id().to_string());
    let about = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let ended = Running::start(&[&["-o", "json", "-d", "2"], &about[..]].concat()).unwrap().finish(LIMIT);
    for sleep in &mut sleeps {
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let refused = report["refused"].as_array().unwrap();
    for component in ["kubelet", "containerd"] {
        let mut about = refused.iter().filter(|it| it["component"] == component);
        assert!(about.any(|it| it["why"] == "not a Go binary"), "{component}: {}", report["refused"]);
    }
    assert_eq!(report["probes"]["sites"], 0);
}

/// A process that does not exist is a mistake on the command line.
#[test]
fn a_process_that_is_not_there_is_a_usage_error() {
    host::require_root().unwrap();
    let running = Running::start(&["-q", "--runtime-pid", "4194304"]).unwrap();
    let ended = running.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("4194304") && ended.stdout.is_empty(), "{ended:?}");
}

/// Makes the mounts of a machine of its own: nothing in the directories in which a node leaves traces, and a /proc that
/// shows of all processes only the first, whatever others start here meanwhile. The rest of it is the real one.
const MACHINE: &str = "
    for dir in /run /etc/systemd /etc/kubernetes /usr/local/lib/systemd /usr/lib/systemd /lib/systemd /var/lib; do
        [ ! -d $dir ] || mount -t tmpfs none $dir
    done
    mkdir /run/proc
    mount --rbind /proc /run/proc
    mount -t tmpfs none /proc
    for path in /run/proc/[!0-9]* /run/proc/1; do ln -s $path /proc/; done
";

/// Runs plegtrace on a machine of its own, on which nobody else's sockets are seen either, after `prepare`, a shell
/// command.
fn on_a_machine_of_its_own(prepare: &str) -> Ended {
    let script = format!("{MACHINE}\n{prepare}\nexec \"$@\"");
    let program: PathBuf = std::fs::canonicalize(program::path().unwrap()).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-ec", &script, "sh"]).arg(&program).args(["-q", "-d", "1"]);
    Running::spawn(&mut command).unwrap().finish(LIMIT).unwrap()
}

/// A machine without kubelet and runtime: exit code 4, also where a removed package left its directory. What a kubelet
/// really needs makes it a node whose kubelet does not run.
#[test]
fn a_machine_that_is_no_node_has_nothing_to_trace() {
    host::require_root().unwrap();
    let bare = on_a_machine_of_its_own("true");
    assert_eq!(bare.status.code(), Some(4), "{bare:?}");
    assert!(bare.stderr.contains("no kubelet") && bare.stdout.is_empty(), "{bare:?}");
    let left = on_a_machine_of_its_own("mkdir -p /var/lib/kubelet");
    assert_eq!(left.status.code(), Some(4), "{left:?}");
    assert!(left.stderr.contains("/var/lib/kubelet (empty)") && left.stdout.is_empty(), "{left:?}");
    let node =
        on_a_machine_of_its_own("mkdir -p /var/lib/kubelet/pki; touch /var/lib/kubelet/pki/kubelet.crt");
    assert_eq!(node.status.code(), Some(1), "{node:?}");
    assert!(node.stdout.contains("STALL K7"), "{node:?}");
}
