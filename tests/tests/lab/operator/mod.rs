//! An operator at work on a healthy node: whatever they type, nobody is accused, neither the node nor they.

mod hand;

use std::time::{Duration, Instant};

use plegtrace_lab::cri::{Call, Pod, Session};
use plegtrace_lab::{Knobs, Node, host};
use plegtrace_tests::packed::Draft;
use plegtrace_tests::program::Running;
use plegtrace_tests::{quiet, recordings};
use serde_json::Value;

use hand::{Shell, Tool, exec, init_of, look_around, sessions};

const LIMIT: Duration = Duration::from_secs(60);
/// How long an operator works, when it is long.
const WORKS: Duration = Duration::from_secs(600);

/// The name of the recording of all of it.
const RECORDED: &str = "operator-with-debuggers";

/// What somebody does beside plegtrace: it ends when dropped.
struct Work {
    shell: Shell,
    calls: Vec<Call>,
    _tools: [Tool; 4],
    _sessions: [Session; 3],
}

impl Work {
    fn begin(node: &Node, pod: &Pod, number: usize) -> Work {
        let shell = Shell::runc_exec(node, &pod.container);
        let tools = Tool::ctr(node, &pod.container, number);
        let sessions = sessions(node, &pod.container, &pod.sandbox);
        let calls = (0..4).map(|_| exec(node, &pod.container)).collect();
        look_around(node, &pod.container);
        Work { shell, calls, _tools: tools, _sessions: sessions }
    }

    fn end(mut self) {
        for call in &mut self.calls {
            call.wait(LIMIT).unwrap().unwrap();
        }
    }
}

/// Looks at the node for so many seconds; recorded, where there is a place for it.
fn look(node: &Node, seconds: &str, draft: Option<&Draft>) -> Running {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let about = ["-o", "json", "-d", seconds, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let mut running = match draft {
        Some(draft) => Running::spawn(recordings::recorder(draft.file()).unwrap().args(about)).unwrap(),
        None => Running::start(&about).unwrap(),
    };
    running.wait_until_armed(LIMIT).unwrap();
    running
}

/// The report of a node on which nobody is accused.
fn healthy(looking: Running) -> Value {
    let ended = looking.finish(LIMIT).unwrap();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let diagnosis = &report["diagnosis"];
    assert_eq!(ended.status.code(), Some(0), "{diagnosis:#}");
    let findings = diagnosis["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["severity"] == "notice"), "{findings:#?}");
    assert_eq!((&report["stuck"], &diagnosis["reasons"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    report
}

/// Long commands that began before plegtrace and beside it, in shells, by containerd's own client and over the CRI, and tools
/// that trace or stop a process of a pod: the node is healthy, and runc is told as typed by a person.
#[test]
fn nobody_is_accused_of_what_an_operator_types() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 3, ..Knobs::default() }).unwrap();
    let (pod, other) = (node.pod("p1").unwrap(), node.pod("p2").unwrap());
    let debugged = node.pod("p3").unwrap();
    let _tools = Tool::debug(init_of(&debugged.container), init_of(&debugged.sandbox));
    let before = Work::begin(&node, &pod, 1);
    let first = before.shell.command();
    let draft = Draft::wanted(RECORDED);
    let looking = look(&node, "16", draft.as_ref());
    let beside = Work::begin(&node, &other, 2);
    let second = beside.shell.command();
    let report = healthy(looking);
    let typed = report["census"]["by_hand"].as_array().unwrap();
    for pid in [first, second] {
        let one = typed.iter().find(|one| one["pid"] == pid).unwrap_or_else(|| panic!("{pid}: {typed:#?}"));
        assert_eq!((&one["typed_in"], &one["command"]["sub"]), (&"bash".into(), &"exec".into()), "{one:#}");
    }
    before.end();
    beside.end();
    if let Some(draft) = draft {
        quiet::keep(RECORDED, draft.file()).unwrap();
    }
}

/// The same for ten minutes, while one look follows the other.
#[test]
#[ignore = "takes ten minutes: cargo xtask soak"]
fn nobody_is_accused_in_ten_minutes_of_work() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 3, exec_probes: true, ..Knobs::default() }).unwrap();
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < WORKS {
        let pod = node.pod(&format!("p{}", 1 + rounds % 3)).unwrap();
        let debugged = node.pod(&format!("p{}", 1 + (rounds + 1) % 3)).unwrap();
        let looking = look(&node, "16", None);
        let tools = Tool::debug(init_of(&debugged.container), init_of(&debugged.sandbox));
        let work = Work::begin(&node, &pod, rounds);
        healthy(looking);
        work.end();
        drop(tools);
        rounds += 1;
        eprintln!("{rounds} looks in {:.0?}: nobody is accused", began.elapsed());
    }
    assert!(rounds > 10, "{rounds}");
}
