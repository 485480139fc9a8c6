//! Random slow-downs of one component of a real node, and nodes that are merely busy: the first are named by the component,
//! the others are not accused.
//!
//! How slow is slow? A single observation has no past to compare with, so what is normal is the documented figure of each kind
//! ([`plegtrace::cri::Takes`], [`plegtrace::correlate::thresholds`]), and what is slowed down takes 2 to 50 times that. It
//! counts when a witness that is no part of plegtrace has seen it; if it has not, nobody else may be named all the same.

mod busy;
mod judged;
mod kind;
mod witness;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plegtrace_lab::{Knobs, Network, Node, host, process};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::program::{Ended, Running};
use plegtrace_tests::recordings;

use judged::Said;
use kind::Kind;
use witness::{Seen, Witness};

const LIMIT: Duration = Duration::from_secs(120);
/// How long plegtrace looks at a slow node, in seconds.
const OBSERVED: &str = "20";
/// What pods there are, and how many more come while plegtrace looks.
const PODS: usize = 2;
const COME: usize = 4;
/// How many slow-downs, and how many busy nodes.
const ROUNDS: usize = 60;
/// So many of those that count are named by their component, in percent.
const RIGHT: usize = 95;
/// Names of kinds, separated by commas: only those are tried; and how often.
const ONLY: &str = "PLEGTRACE_SLOW_DOWNS";
const TIMES: &str = "PLEGTRACE_ROUNDS";

/// One slow-down and what came of it.
struct Round {
    kind: Kind,
    factor: f64,
    seen: Seen,
    said: Said,
    right: bool,
}

impl Round {
    /// It is slow enough, and somebody else is named or nobody; or it is not, and somebody else is.
    fn is_wrong(&self) -> bool {
        !self.right && (self.seen.is_slow() || self.said.accuses())
    }

    fn line(&self) -> String {
        let Seen { what, count, takes, figure, late, .. } = &self.seen;
        let judged = match (self.is_wrong(), self.seen.is_slow()) {
            (true, _) => "WRONG",
            (false, true) => "right",
            (false, false) if self.said.accuses() => "right, below the figure",
            (false, false) => "not slow by the figures",
        };
        let (kind, verdict, named) = (self.kind.name(), &self.said.verdict, self.said.named());
        format!(
            "| {kind} | {:.1} | {what} {takes:.2?}, {late} of {count} above {figure:.0?} | {verdict} | {named} | {judged} |",
            self.factor
        )
    }
}

fn rounds() -> usize {
    std::env::var(TIMES).map_or(ROUNDS, |text| text.parse().expect("PLEGTRACE_ROUNDS is a number"))
}

/// The kinds that the environment names, else all, as often as each other.
fn kinds(draw: &mut Draw) -> Vec<Kind> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let wanted = |kind: &Kind| only.is_empty() || only.split(',').any(|name| name == kind.name());
    let all: Vec<Kind> = Kind::ALL.into_iter().filter(wanted).filter(|kind| kind.is_possible()).collect();
    assert!(!all.is_empty(), "{ONLY}={only} names no kind");
    let mut drawn: Vec<Kind> = all.into_iter().cycle().take(rounds()).collect();
    draw.shuffle(&mut drawn);
    drawn
}

/// Between 2 and 50, each doubling as likely as the next.
fn factor(draw: &mut Draw) -> f64 {
    const STEPS: u32 = 1000;
    let step = u32::try_from(draw.below(STEPS as usize)).unwrap();
    2.0 * 25_f64.powf(f64::from(step) / f64::from(STEPS - 1))
}

fn node() -> Node {
    let knobs = Knobs { pods: PODS, exec_probes: true, gates: true, ..Knobs::default() };
    let node = Node::start(&Knobs { disk: true, network: Network::Bridge, ..knobs }).unwrap();
    node.wait_for_relists(3, LIMIT).unwrap();
    node
}

/// Observes a node as its operator would, while `during` happens; the same stream gives JSON and text.
fn observe(node: &Node, seconds: &str, during: impl FnOnce()) -> Over {
    let observing = Observing::begin(node, seconds);
    during();
    observing.end()
}

/// An observation whose probes are on.
struct Observing {
    running: Running,
    stream: Stream,
}

/// What it records.
struct Stream(tempfile::TempDir);

/// One that is over.
struct Over {
    ended: Ended,
    stream: Stream,
}

impl Stream {
    fn file(&self) -> PathBuf {
        self.0.path().join("stream")
    }
}

impl Observing {
    fn begin(node: &Node, seconds: &str) -> Self {
        let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
        let stream = Stream(tempfile::tempdir().unwrap());
        let file = stream.file();
        let mut recorder = recordings::recorder(&file).unwrap();
        recorder.args(["-o", "json", "-d", seconds, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime]);
        let mut running = Running::spawn(&mut recorder).unwrap();
        running.wait_until_armed(LIMIT).unwrap();
        Self { running, stream }
    }

    fn end(self) -> Over {
        Over { ended: self.running.finish(LIMIT).unwrap(), stream: self.stream }
    }
}

impl Over {
    fn said(&self) -> Said {
        let Self { ended, stream } = self;
        let file = stream.file().display().to_string();
        let text = Running::start(&["report", &file]).unwrap().finish(LIMIT).unwrap();
        assert_eq!(ended.status.code(), text.status.code(), "{}\n{}", ended.stderr, text.stderr);
        Said::new(&ended.stdout, &text.stdout)
    }
}

/// Pods that come to the node: the kubelet asks for them at once.
fn add_pods(node: &Node, round: usize) -> Vec<String> {
    let names: Vec<String> = (0..COME).map(|number| format!("r{round}n{number}")).collect();
    names.iter().for_each(|name| node.kubelet().add_pod(name).unwrap());
    names
}

/// Until so many run.
fn wait_for_pods(node: &Node, count: usize) {
    let there = || Ok((node.kubelet().running_pods()?.len() == count).then_some(()));
    process::wait_for(&format!("{count} pods"), LIMIT, there).unwrap();
}

/// Takes them away when they run, and waits until the node is what it was.
fn remove_pods(node: &Node, names: &[String]) {
    wait_for_pods(node, PODS + names.len());
    names.iter().for_each(|name| node.kubelet().remove_pod(name).unwrap());
    wait_for_pods(node, PODS);
    node.wait_for_relists(3, LIMIT).unwrap();
}

/// One round, again when another lab on this machine got in its way.
fn undisturbed<T>(mut round: impl FnMut() -> (T, bool)) -> T {
    loop {
        let (result, disturbed) = round();
        if !disturbed {
            return result;
        }
        eprintln!("another lab on this machine is held up: once more");
    }
}

fn slow_down(node: &Node, kind: Kind, factor: f64, number: usize) -> (Round, bool) {
    let fault = kind.slow_down(node, factor);
    // Both see the same time, as nearly as can be.
    let observing = Observing::begin(node, OBSERVED);
    let witness = Witness::start(node, kind);
    let (mut pods, mut asked) = (Vec::new(), None);
    if kind.shows_in_pods() {
        (pods, asked) = (add_pods(node, number), Some(Instant::now()));
    }
    let over = observing.end();
    let (seen, gates) = match witness {
        Witness::Gate(..) => (None, Some(witness)),
        witness => (Some(witness.seen(node, asked)), None),
    };
    let said = over.said();
    let disturbed = said.is_about_another_lab(node);
    fault.heal().unwrap();
    let at_gates = gates.map(|gates| {
        wait_for_pods(node, PODS + pods.len());
        gates.seen(node, asked)
    });
    let seen = seen.or(at_gates).expect("each witness has seen something");
    remove_pods(node, &pods);
    let right = said.accuses() && said.names(kind, node);
    (Round { kind, factor, seen, said, right }, disturbed)
}

/// Each of sixty random slow-downs that is slow enough is named by its component; nobody else ever is.
#[test]
#[ignore = "takes forty minutes: cargo xtask soak"]
fn the_slow_component_is_named() {
    host::require_root().unwrap();
    let mut draw = Draw::from_environment();
    eprintln!("{draw}");
    let node = node();
    let mut all = Vec::new();
    for (number, kind) in kinds(&mut draw).into_iter().enumerate() {
        let factor = factor(&mut draw);
        let round = undisturbed(|| slow_down(&node, kind, factor, number));
        eprintln!("{}", round.line());
        if round.is_wrong() {
            eprintln!("{}\n{:#}", round.said.text, round.said.report["diagnosis"]);
        }
        all.push(round);
    }
    all.sort_by(|a, b| a.kind.cmp(&b.kind).then(a.factor.total_cmp(&b.factor)));
    eprintln!("| kind | factor | witness (figure) | verdict | component | |\n|---|---|---|---|---|---|");
    all.iter().for_each(|round| eprintln!("{}", round.line()));
    let count = all.iter().filter(|round| round.is_wrong() || round.seen.is_slow()).count();
    let wrong = all.iter().filter(|round| round.is_wrong()).count();
    eprintln!("{count} of {} count, {wrong} of them are wrong", all.len());
    assert!(count > 0 && (count - wrong) * 100 >= count * RIGHT, "{wrong} of {count} are wrong");
}
