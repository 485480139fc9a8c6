//! `plegtrace watch` on a real node: it waits for a kubelet, writes windows, tells a stall with its evidence, and ends clean;
//! its flame graphs can be read in a browser and add up to the kubelet's own figures, and so does what a real Prometheus scrapes.

mod opened;
mod scraped;

use std::{
    fs,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use plegtrace::{
    commands,
    diagnose::{Verdict, diagnose},
};
use plegtrace_lab::{Node, fault::Kind, host, http, process};
use plegtrace_tests::{
    claim,
    program::{self, Running},
    truth::Scrape,
};
use scraped::Scraped;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const WINDOW: &str = "5s";
/// A stall of this length outweighs everything else in the sums.
const STALL: Duration = Duration::from_secs(8);
/// From the kubelet to the goroutine of containerd that waits.
const WHOLE: &str =
    "relist;kubelet GetPods, list phase;kubelet ListContainers;containerd ListContainers;[waiting];";
const FILES: [&str; 7] =
    ["flame.svg", "flame.folded", "trace.json", "report.txt", "report.json", "state.json", "history.jsonl"];
const RELISTS: &str = "kubelet_pleg_relist_duration_seconds_sum";

/// What `plegtrace check` says: exit code and line.
fn check(dir: &Path) -> (Option<i32>, String) {
    let out = Command::new(program::path().unwrap()).args(["check", "--dir"]).arg(dir).output().unwrap();
    let line = String::from_utf8(out.stdout).unwrap();
    assert!(line.ends_with('\n') && line.len() <= 81, "{line:?}");
    (out.status.code(), line)
}

/// It is run every few seconds; what it takes is told.
fn check_is_quick(dir: &Path) {
    let began = Instant::now();
    check(dir);
    claim::soon_within("check", began.elapsed(), Duration::from_secs(1));
}

fn history(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("history.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The windows of a watch, each looked at once.
#[derive(Default)]
struct Windows {
    seen: usize,
    /// Wall time of relists that ended, seconds.
    relists: f64,
    /// A list has hung where ListContainers waits for a lock.
    hung: bool,
}

impl Windows {
    /// Takes the last window when there is another one.
    fn look(&mut self, dir: &Path) -> bool {
        let count = history(dir).len();
        if count == self.seen {
            return false;
        }
        assert_eq!(count, self.seen + 1, "each window is seen");
        self.seen = count;
        let folded = fs::read_to_string(dir.join("flame.folded")).unwrap();
        for line in folded.lines().filter(|line| !line.starts_with("# ")) {
            let (stack, us) = line.rsplit_once(' ').unwrap();
            if stack.split(';').next() == Some("relist") {
                self.relists += us.parse::<f64>().unwrap() / 1e6;
            }
            // Below the relist, or beside it while several lists hang and it is not certain which one is whose.
            let list = stack.split_once(", open;").is_some_and(|(root, rest)| {
                ["relist", "ListContainers"].contains(&root)
                    && format!(";{rest}").contains(";containerd ListContainers;[waiting];")
            });
            self.hung |= list && stack.contains(";container.(*statusStorage).Get");
        }
        true
    }

    fn wait_for(&mut self, what: &str, dir: &Path, is_it: impl Fn(&Self) -> bool) {
        process::wait_for(what, LIMIT, || {
            self.look(dir);
            Ok(is_it(self).then_some(()))
        })
        .unwrap();
    }
}

/// Does the trace of the last window have a list of containers that has not ended?
fn open_list(dir: &Path) -> bool {
    let trace: Value = serde_json::from_slice(&fs::read(dir.join("trace.json")).unwrap()).unwrap();
    let is_it = |event: &Value| event["name"] == "ListContainers, open";
    trace["traceEvents"].as_array().unwrap().iter().any(is_it)
}

fn scrape(node: &Node) -> f64 {
    let page = Scrape::take(|limit| node.kubelet().metrics(limit)).unwrap();
    page.page.sum(RELISTS, &[])
}

/// From before there is a kubelet to the end of a stall.
#[test]
fn windows_of_a_stall() {
    host::require_root().unwrap();
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("windows");
    let metrics = SocketAddr::from(([127, 0, 0, 1], http::free_port().unwrap()));
    let about =
        ["watch", "--dir", dir.to_str().unwrap(), "--window", WINDOW, "--metrics", &metrics.to_string()];
    let mut watch = Running::start(&about).unwrap();
    // It waits, or observes what is left of an earlier node; nothing is known yet in either case.
    let begun = || Ok((watch.said().contains("waiting: ") || watch.said().contains("armed: ")).then_some(()));
    process::wait_for("it to begin", LIMIT, begun).unwrap();
    watch.signal(libc::SIGHUP).unwrap();
    process::wait_for("a state", LIMIT, || Ok(dir.join("state.json").exists().then_some(()))).unwrap();
    assert_ne!(check(&dir).0, Some(0), "{}", check(&dir).1);
    let node = Node::start(&Kind::LockHostage.knobs()).unwrap();
    watch.wait_until_armed(LIMIT).unwrap();
    node.wait_for_relists(1, LIMIT).unwrap();
    let scraped = Scraped::begin(&node, metrics);
    let before = scrape(&node);

    // Windows of before the kubelet was there weigh nothing.
    let first = history(&dir).len();
    let mut windows = Windows { seen: first, ..Windows::default() };
    windows.wait_for("two windows", &dir, |windows| windows.seen >= first + 2);
    files_are_there(&dir);
    check_is_quick(&dir);
    windows.wait_for("health", &dir, |_| check(&dir).0 == Some(0));
    assert!(check(&dir).1.starts_with("ok: "), "{}", check(&dir).1);

    watch.signal(libc::SIGHUP).unwrap();
    scraped.is_quiet(&mut || _ = windows.look(&dir));

    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    let stalled = Instant::now();
    process::wait_for("a problem", LIMIT, || {
        windows.look(&dir);
        let (code, line) = check(&dir);
        Ok((code == Some(1) && line.contains(": R1 ")).then_some(()))
    })
    .unwrap();
    scraped.accuses("R1", "shim", stalled, &mut || _ = windows.look(&dir));
    scraped.answers(&mut || _ = windows.look(&dir));
    let drawn = || {
        windows.look(&dir);
        Ok(windows.hung.then_some(()))
    };
    process::wait_for("the lock in the flame graph", LIMIT, drawn)
        .unwrap_or_else(|error| panic!("{error}: {}", fs::read_to_string(dir.join("flame.folded")).unwrap()));
    windows.wait_for("the list that hangs in the trace", &dir, |_| open_list(&dir));
    windows.wait_for("a long stall", &dir, |_| stalled.elapsed() >= STALL);
    // The windows do not wait for a browser.
    let picture = temp.path().join("stall.svg");
    fs::copy(dir.join("flame.svg"), &picture).unwrap();
    fault.heal().unwrap();
    windows.wait_for("the relist that hung", &dir, |windows| windows.relists > STALL.as_secs_f64() / 2.0);
    process::wait_for("health", LIMIT, || {
        windows.look(&dir);
        Ok((check(&dir).0 == Some(0)).then_some(()))
    })
    .unwrap();

    scraped.agrees(STALL.as_secs_f64() / 2.0, &mut || _ = windows.look(&dir));
    windows.look(&dir);
    let after = scrape(&node);
    watch.signal(libc::SIGTERM).unwrap();
    let ended = watch.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    windows.look(&dir);
    let (ours, theirs) = (windows.relists, after - before);
    assert!((ours - theirs).abs() <= 0.03 * theirs, "flame graphs {ours} s, kubelet {theirs} s");
    assert_eq!(check(&dir).0, Some(2), "it does not watch any more");
    told(&ended.stdout);
    evidence_of(&dir, "R1");
    opened::is_readable(&picture);
    // Prometheus has the kubelet list, too.
    drop(scraped);
    relist_at_the_lock(&dir, &node, &picture);
    goes_on(&dir, &node);
}

/// All files of a window, for root only.
fn files_are_there(dir: &Path) {
    assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    for name in FILES {
        let about = fs::metadata(dir.join(name)).unwrap();
        assert!(about.len() > 0 && about.permissions().mode() & 0o777 == 0o600, "{name}");
    }
}

/// Two windows of a healthy node, with their files and their state; then what a killed one leaves is gone on with.
pub(super) fn writes_windows(node: &Node) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("windows");
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["watch", "--dir", dir.to_str().unwrap(), "--window", "3s"];
    let about = [&about[..], &["--kubelet-pid", &kubelet, "--runtime-pid", &runtime]].concat();
    let mut watch = Running::start(&about).unwrap();
    watch.wait_until_armed(LIMIT).unwrap();
    claim::works("two windows", || Ok((history(&dir).len() >= 2).then_some(())));
    files_are_there(&dir);
    check_is_quick(&dir);
    claim::works("health", || Ok((check(&dir).0 == Some(0)).then_some(())));
    assert!(check(&dir).1.starts_with("ok: "), "{}", check(&dir).1);
    let folded = || Ok(fs::read_to_string(dir.join("flame.folded"))?.contains("\nrelist;").then_some(()));
    claim::works("a relist in the flame graph", folded);
    watch.signal(libc::SIGTERM).unwrap();
    let ended = watch.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(check(&dir).0, Some(2), "it does not watch any more");
    goes_on(&dir, node);
}

/// A systemd that reads nothing any more, as in D12: who writes to it once more waits.
fn deaf_systemd(socket: &Path) -> UnixDatagram {
    let deaf = UnixDatagram::bind(socket).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    let sent = (0..10_000).find_map(|_| sender.send_to(b"WATCHDOG=1", socket).err());
    assert_eq!(sent.map(|error| error.kind()), Some(std::io::ErrorKind::WouldBlock));
    deaf
}

/// The next ones continue the history, also after one that was killed, which leaves nothing that cannot be read; and they wait for no
/// systemd.
fn goes_on(dir: &Path, node: &Node) {
    let kubelet = node.kubelet().pid().to_string();
    let about = ["watch", "--dir", dir.to_str().unwrap(), "--window", "1s", "--kubelet-pid", &kubelet];
    let socket = dir.with_extension("notify");
    let _deaf = deaf_systemd(&socket);
    for (signal, code) in [(libc::SIGKILL, None), (libc::SIGTERM, Some(0))] {
        let before = history(dir);
        let mut command = Command::new(program::path().unwrap());
        let watch = Running::spawn(command.args(about).env("NOTIFY_SOCKET", &socket)).unwrap();
        let more = || Ok((history(dir).len() > before.len() + 1).then_some(()));
        process::wait_for("two more windows", LIMIT, more)
            .unwrap_or_else(|error| panic!("{error}: {}", watch.said()));
        watch.signal(signal).unwrap();
        let ended = watch.finish(LIMIT).unwrap();
        assert_eq!(ended.status.code(), code, "{ended:?}");
        assert_eq!(history(dir)[..before.len()], before);
        assert!(!check(dir).1.contains("cannot be read"), "{}", check(dir).1);
        let table =
            Command::new(program::path().unwrap()).args(["history", "--dir"]).arg(dir).output().unwrap();
        assert_eq!(table.status.code(), Some(0), "{table:?}");
        assert!(fs::read_to_string(dir.join("flame.svg")).unwrap().trim_end().ends_with("</svg>"));
    }
}

/// A relist that waits for the lock while no other list does is drawn as a whole, from the kubelet down to the lock. Others may
/// come between: then it is not certain which handler is whose, and the next one may do.
fn relist_at_the_lock(dir: &Path, node: &Node, picture: &Path) {
    let kubelet = node.kubelet().pid().to_string();
    let about = ["watch", "--dir", dir.to_str().unwrap(), "--window", "2s", "--kubelet-pid", &kubelet];
    let mut watch = Running::start(&about).unwrap();
    watch.wait_until_armed(LIMIT).unwrap();
    let folded = || fs::read_to_string(dir.join("flame.folded")).unwrap();
    process::wait_for("a relist that waits alone", LIMIT, || {
        // Until it is seen that lists wait, which takes longer than the next relist.
        Kind::LockHostage.inject(node, "p1")?.heal()?;
        let before = folded();
        fs::copy(dir.join("flame.svg"), picture)?;
        let whole = |line: &str| line.starts_with(WHOLE) && line.contains(";container.(*statusStorage).Get;");
        Ok((before.lines().any(whole) && before == folded()).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {}", folded()));
    opened::has_relist_at_lock(picture);
    watch.signal(libc::SIGTERM).unwrap();
    watch.finish(LIMIT).unwrap();
}

/// The stall has begun and ended once.
fn told(stdout: &str) {
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((of("begin"), of("end")), (1, 1), "{stdout}");
    assert!(events.iter().any(|event| event["id"] == "R1" && event["component"] == "shim"), "{stdout}");
}

/// The evidence is a whole recording that gives the same cause, with its report beside it.
pub(super) fn evidence_of(dir: &Path, id: &str) {
    let files = fs::read_dir(dir.join("evidence")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let recording = files.iter().find(|path| path.to_string_lossy().ends_with(&format!("-{id}.plegtrace")));
    let recording = recording.unwrap_or_else(|| panic!("{files:?}"));
    let replayed = commands::replay(fs::File::open(recording).unwrap()).unwrap();
    assert_eq!(replayed.damage.sentences(), [""; 0]);
    let diagnosis = diagnose(&replayed.snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Stall);
    assert_eq!(diagnosis.accused().first().map(|finding| finding.rule.id), Some(id));
    let report = fs::read_to_string(recording.with_extension("txt")).unwrap();
    assert!(report.contains(&format!("STALL {id}")), "{report}");
}

/// A one-shot draws what it has seen.
#[test]
fn a_picture_of_a_one_shot() {
    host::require_root().unwrap();
    let node = Node::start(&plegtrace_lab::Knobs::default()).unwrap();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-q", "-d", "4", "-o", "svg", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let ended = Running::start(&about).unwrap().finish(LIMIT).unwrap();
    for frame in ["relist", "kubelet GetPods, list phase", "containerd ListContainers"] {
        assert!(ended.stdout.contains(&format!("<title>{frame} (")), "{frame}: {}", ended.stdout);
    }
}
