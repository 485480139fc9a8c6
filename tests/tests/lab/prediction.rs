//! plegtrace predicts when the kubelet will report "PLEG is not healthy", also for a stall that began before plegtrace. The
//! witness is the kubelet's own log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plegtrace_lab::{Knobs, Node, fault, host, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// The kubelet is unhealthy after three minutes (pkg/kubelet/pleg/generic.go).
const THRESHOLD: Duration = Duration::from_secs(180);
/// It says so when its sync loop looks next, which asks the stalled runtime for lists in between, and waits so long for each.
const REQUEST: Duration = Duration::from_secs(2);
const NEXT_LOOK: Duration = Duration::from_secs(15);
/// The line is printed a moment after its figure was reckoned.
const SAME: Duration = Duration::from_millis(20);
const DAY: u64 = 24 * 3600;

/// A line of the log: when it was written, as time of the day, and how long ago the last list was then.
#[derive(Clone, Copy, Debug)]
struct Said {
    at: Duration,
    ago: Duration,
}

/// `I1123 11:05:01.123456 … PLEG is not healthy: pleg was last seen active 3m0.9s ago; threshold is 3m0s`.
fn said(line: &str) -> Option<Said> {
    let ago = line.split_once("PLEG is not healthy: pleg was last seen active ")?.1.split_once(" ago")?.0;
    let (minutes, seconds) = ago.strip_suffix('s')?.split_once('m')?;
    let ago = Duration::from_secs(60 * minutes.parse::<u64>().ok()?)
        + Duration::from_secs_f64(seconds.parse().ok()?);
    let clock = line.split_whitespace().nth(1)?;
    let mut parts = clock.split(':');
    let mut next = || parts.next()?.parse::<f64>().ok();
    Some(Said { at: Duration::from_secs_f64(3600.0 * next()? + 60.0 * next()? + next()?), ago })
}

/// The first such line of this kubelet.
fn first_said(node: &Node) -> Said {
    process::wait_for("\"PLEG is not healthy\" in the kubelet's log", THRESHOLD + LIMIT, || {
        Ok(std::fs::read_to_string(node.kubelet().log_path())?.lines().find_map(said))
    })
    .unwrap()
}

/// A moment of UTC, which is the kubelet's time zone here, as time of its day.
fn of_day(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap();
    Duration::new(since.as_secs() % DAY, since.subsec_nanos())
}

/// How far two times of the day lie apart.
fn apart(a: Duration, b: Duration) -> Duration {
    let far = a.abs_diff(b);
    far.min(Duration::from_secs(DAY).saturating_sub(far))
}

fn start(node: &Node, seconds: &str) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-o", "json", "-d", seconds, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let mut running = Running::start(&about).unwrap();
    running.wait_until_armed(LIMIT).unwrap();
    running
}

/// When the last list succeeded, as time of the day, by a report that also predicts what comes of it.
fn last_list(report: &Value) -> Duration {
    let last = &report["last_successful_list"];
    assert_eq!((&last["state"], &last["at_least"]), (&"seen".into(), &false.into()), "{last}");
    let predictions = report["diagnosis"]["predictions"].as_array().unwrap();
    let predicts = |text: &Value| text.as_str().unwrap().starts_with("\"PLEG is not healthy\" at ");
    assert!(predictions.iter().any(predicts), "{predictions:?}");
    let age = Duration::from_nanos(last["age_ns"].as_u64().unwrap());
    let taken: u64 = report["taken_at"]["mono_ns"].as_u64().unwrap();
    assert!(last["start_at"]["mono_ns"].as_u64().unwrap() + age.as_nanos() as u64 <= taken);
    let time = last["start_at"]["time"].as_str().unwrap().split_once('T').unwrap().1.trim_end_matches('Z');
    let mut parts = time.split(':').map(|part| part.parse::<f64>().unwrap());
    let mut next = || parts.next().unwrap();
    Duration::from_secs_f64(3600.0 * next() + 60.0 * next() + next())
}

/// One stall of more than three minutes on a node of its own, seen by a plegtrace that is there before, and by one that comes
/// too late and has nothing but what the kubelet itself keeps.
fn is_predicted() {
    let node = Node::start(&Knobs { pods: 2, request_timeout: REQUEST, ..Knobs::default() }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    let before = start(&node, "60");
    let hostage = fault::lock_hostage(node.containerd(), &node.pod("p1").unwrap()).unwrap();
    let stalled = SystemTime::now();
    let later = start(&node, "40");
    let report = |running: Running| -> Value {
        let ended = running.finish(2 * LIMIT).unwrap();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr))
    };
    let (later, before) = (last_list(&report(later)), last_list(&report(before)));
    let log = first_said(&node);
    hostage.release().unwrap();

    let told = format!("before {before:?}, later {later:?}, stalled {:?}, {log:?}", of_day(stalled));
    eprintln!("{told}");
    for seen in [before, later] {
        assert!(apart(seen + log.ago, log.at) <= SAME, "by the kubelet's own reckoning: {told}");
    }
    assert!((THRESHOLD..THRESHOLD + NEXT_LOOK).contains(&log.ago), "{told}");
}

#[test]
fn the_kubelet_says_so_when_it_was_predicted() {
    host::require_root().unwrap();
    is_predicted();
}

/// Ten predictions, five of them of stalls that had begun before.
#[test]
#[ignore = "takes a quarter of an hour: cargo xtask soak"]
fn five_stalls_end_as_predicted() {
    host::require_root().unwrap();
    (0..5).for_each(|_| is_predicted());
}
