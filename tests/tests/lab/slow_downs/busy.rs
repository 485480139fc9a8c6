//! Nodes that are healthy or merely busy: nobody is accused.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use plegtrace_lab::cri::Call;
use plegtrace_lab::{Node, host, image};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::{packed, quiet};

use super::{LIMIT, PODS, add_pods, node, observe, remove_pods, rounds, undisturbed, wait_for_pods};
use crate::slow::Hogs;

/// How long plegtrace looks at each, in seconds.
const OBSERVED: &str = "12";
/// Longer than that.
const LASTS: &str = "15";

/// What keeps a node busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Nothing.
    Idle,
    /// Programs that use all processors.
    Hogs,
    /// Commands as of probes that take long.
    SlowProbes,
    /// A large image is imported, again and again.
    Image,
    /// An operator executes something that lasts.
    Operator,
    /// Pods come.
    Pods,
    /// Pods go. The kubelet ends each more than once, also when it is gone.
    PodsGo,
}

impl Work {
    /// Its recording in `tests/golden/quiet`.
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Hogs => "hogs",
            Self::SlowProbes => "slow-probes",
            Self::Image => "image",
            Self::Operator => "operator",
            Self::Pods => "pods",
            Self::PodsGo => "pods-go",
        }
    }
}

const ALL: [Work; 7] =
    [Work::Idle, Work::Hogs, Work::SlowProbes, Work::Image, Work::Operator, Work::Pods, Work::PodsGo];

/// An import that goes on until it is dropped.
struct Import(Child);

impl Import {
    /// Each time all of it is new, because it is removed in between.
    fn start(node: &Node, archive: &Path) -> Import {
        let ctr = node.containerd().ctr().unwrap();
        let turns = format!(
            "while \"$@\" images import {} && \"$@\" images rm --sync {}; do :; done",
            archive.display(),
            image::LARGE
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &turns, "sh"]).arg(ctr.get_program()).args(ctr.get_args());
        plegtrace_tests::program::end_with_parent(&mut shell);
        Import(shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Commands in a pod that last so long, one for each argument.
fn execs(node: &Node, seconds: &[&'static str]) -> Vec<Call> {
    let container = node.pod("p1").unwrap().container;
    let exec = |seconds: &&'static str| {
        let (container, seconds) = (container.clone(), *seconds);
        Call::start(node.containerd().client(), "ExecSync", move |client| {
            client.exec_sync(&container, &["sleep", seconds], LIMIT).map(drop)
        })
        .unwrap()
    };
    seconds.iter().map(exec).collect()
}

/// Observes the node while it is busy in this way: what was said, when anybody was accused; and whether that was disturbed.
fn accused(node: &Node, work: Work, number: usize, archive: &Path) -> (Option<String>, bool) {
    let (mut calls, mut pods) = (Vec::new(), Vec::new());
    let hogs = (work == Work::Hogs).then(Hogs::start);
    let import = (work == Work::Image).then(|| Import::start(node, archive));
    let leaving = if work == Work::PodsGo { add_pods(node, number) } else { Vec::new() };
    wait_for_pods(node, PODS + leaving.len());
    let over = observe(node, OBSERVED, || match work {
        Work::Idle | Work::Hogs | Work::Image => {}
        Work::SlowProbes => calls = execs(node, &["3", "5", "7", "9"]),
        Work::Operator => calls = execs(node, &[LASTS]),
        Work::Pods => pods = add_pods(node, number),
        Work::PodsGo => leaving.iter().for_each(|name| node.kubelet().remove_pod(name).unwrap()),
    });
    let said = over.said();
    let disturbed = said.is_about_another_lab(node);
    drop((hogs, import));
    calls.iter_mut().for_each(|call| call.wait(LIMIT).unwrap().unwrap());
    remove_pods(node, &pods);
    eprintln!("| {work:?} | {} | {} |", said.verdict, said.named());
    let accused = || format!("{work:?}: {}\n{:#}", said.text, said.report["diagnosis"]);
    if said.accuses() {
        // Of sixty, it is worth to see the first at once.
        eprintln!("{}", accused());
    }
    if packed::is_wanted() && !disturbed && said.verdict == "healthy" {
        quiet::keep(work.name(), &over.stream.file()).unwrap();
    }
    (said.accuses().then(accused), disturbed)
}

/// Who was accused, of so many nodes that do each work as often as any other.
fn wrong(count: usize, draw: &mut Draw) -> Vec<String> {
    let node = node();
    assert_eq!(node.kubelet().running_pods().unwrap().len(), PODS);
    let temp = tempfile::tempdir().unwrap();
    let archive = temp.path().join("large.tar");
    image::write_large(&archive).unwrap();
    let mut works: Vec<Work> = ALL.into_iter().cycle().take(count).collect();
    draw.shuffle(&mut works);
    let each = works.iter().enumerate();
    each.filter_map(|(number, work)| undisturbed(|| accused(&node, *work, number, &archive))).collect()
}

/// Each of them once: nobody is called slow, stalled or failing.
#[test]
fn each_work_accuses_nobody() {
    host::require_root().unwrap();
    let mut draw = Draw::from_environment();
    eprintln!("{draw}");
    let wrong = wrong(ALL.len(), &mut draw);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ALL.len(), wrong.join("\n"));
}

/// Of sixty healthy or busy nodes none is called slow, stalled or failing.
#[test]
#[ignore = "takes twenty minutes: cargo xtask soak"]
fn nobody_is_accused_of_being_busy() {
    host::require_root().unwrap();
    let (rounds, mut draw) = (rounds(), Draw::from_environment());
    eprintln!("{draw}");
    let wrong = wrong(rounds, &mut draw);
    assert!(wrong.is_empty(), "{} of {rounds}:\n{}", wrong.len(), wrong.join("\n"));
}
