//! A node on which nothing hangs, but something fails every time, is not healthy; one failure, and what is merely not there any more, is
//! no failing node.

use plegtrace::diagnose::{Failing, Verdict, diagnose};
use plegtrace::input::{ErrorFact, ErrorsFact, Fact, Layer, RuntimeCondition, RuntimeSays};
use plegtrace_common::rec::{CALL_FAILED, CALL_OK};
use plegtrace_tests::recordings::{json_of, text_of};
use plegtrace_tests::story::{CONTAINERD, MS, S, Story, at};

/// A node that lists every second for so long.
fn listing(seconds: u64) -> Story {
    let mut story = Story::node();
    for n in 0..seconds {
        story.relist(n * S, 0);
    }
    story.read_open(seconds * S);
    story
}

/// Calls of the kubelet of this method, with these ends, one every three seconds.
fn calls(story: &mut Story, method: &str, ends: &[u32]) {
    for (n, end) in (0..).zip(ends) {
        let from = n * 3 * S;
        story.begin(Layer::KubeletCall, method, 70, 100, from).end(
            Layer::KubeletCall,
            method,
            70,
            from + 20 * MS,
            *end,
        );
    }
}

fn failing_calls(story: &Story) -> Vec<(&'static str, u64, bool)> {
    let diagnosis = diagnose(&story.snapshot(20 * S));
    let of = |failing: &Failing| match failing {
        Failing::Calls { streak, .. } => (streak.method.name(), streak.failed, streak.succeeded),
        Failing::Condition { .. } => panic!("{failing:?}"),
    };
    assert_eq!(diagnosis.verdict == Verdict::Failing, !diagnosis.failing.is_empty(), "{diagnosis:?}");
    diagnosis.failing.iter().map(of).collect()
}

fn hooked() -> Story {
    let mut story = Story::node();
    // The story's own node has the others.
    for method in ["StartContainer", "ImageStatus"] {
        story.hook(Layer::KubeletCall, method);
    }
    for n in 0..20 {
        story.relist(n * S, 0);
    }
    story.read_open(20 * S);
    story
}

/// Two sandboxes in a row that fail are enough, because the kubelet takes its time to try again; others have to fail three times.
#[test]
fn what_fails_every_time() {
    let ends = |method: &str, ends: &[u32]| {
        let mut story = hooked();
        calls(&mut story, method, ends);
        failing_calls(&story)
    };
    assert_eq!(ends("RunPodSandbox", &[CALL_FAILED]), []);
    assert_eq!(ends("RunPodSandbox", &[CALL_FAILED; 2]), [("RunPodSandbox", 2, false)]);
    assert_eq!(ends("RunPodSandbox", &[CALL_OK, CALL_FAILED, CALL_FAILED]), [("RunPodSandbox", 2, true)]);
    assert_eq!(ends("RunPodSandbox", &[CALL_FAILED, CALL_FAILED, CALL_OK]), []);
    assert_eq!(ends("StartContainer", &[CALL_FAILED; 2]), []);
    assert_eq!(ends("StartContainer", &[CALL_FAILED; 3]), [("StartContainer", 3, false)]);
    // A container that is gone is no failure of the node.
    assert_eq!(ends("ContainerStatus", &[CALL_FAILED; 5]), []);
    assert_eq!(ends("ImageStatus", &[CALL_FAILED; 5]), []);
}

/// A pod that cannot be killed: the kubelet gives up after its grace period and two minutes, and tries again. One such call is enough.
#[test]
fn a_pod_that_cannot_be_killed() {
    let mut story = Story::node();
    story.hook(Layer::KubeletCall, "StopContainer");
    let (from, to) = (10 * S, 160 * S);
    for n in 0..170 {
        story.relist(n * S, 0);
    }
    story.begin(Layer::KubeletCall, "StopContainer", 70, 100, from);
    story.end(Layer::KubeletCall, "StopContainer", 70, to, CALL_FAILED).read_open(170 * S);
    let snapshot = story.snapshot(170 * S);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Failing);
    let text = text_of(&snapshot, true).unwrap();
    assert!(
        text.contains("StopContainer fails every time: 1 of 1") && text.contains("after 2 min 30 s at most"),
        "{text}"
    );
}

/// The runtime's own words are the fastest way to the cause; they count only for the failures that are shown.
#[test]
fn the_last_error_in_its_own_words() {
    let id = "5ea0".repeat(16);
    let words =
        format!("failed to set up network for sandbox \"{id}\": plugin \u{1b}[31m failed: no subnet.env");
    let text = |said_at: u64| {
        let mut story = hooked();
        calls(&mut story, "RunPodSandbox", &[CALL_OK, CALL_FAILED, CALL_FAILED]);
        let (service, method) = ("runtime.v1.RuntimeService".to_owned(), "RunPodSandbox".to_owned());
        let error = ErrorFact { service, method, at_ns: at(said_at).0, words: words.clone() };
        story.fact(said_at, &Fact::Errors(ErrorsFact { errors: vec![error] }));
        let snapshot = story.snapshot(20 * S);
        assert_eq!(diagnose(&snapshot).verdict, Verdict::Failing);
        let json: serde_json::Value = serde_json::from_str(&json_of(&snapshot).unwrap()).unwrap();
        let json = json["diagnosis"]["failing"][0]["error"].clone();
        (text_of(&snapshot, true).unwrap(), json)
    };
    let (shown, json) = text(6 * S + 10 * MS);
    let want =
        "  error     failed to set up network for sandbox \"5ea05ea05ea05\": plugin \\x1b[31m failed: no";
    assert!(shown.contains(want) && json == words.as_str(), "{shown}");
    let (shown, json) = text(2 * S);
    assert!(
        !shown.contains("subnet.env") && json.is_null(),
        "of a failure before one that succeeded: {shown}"
    );
}

/// The kubelet ends pods that are gone by then: that they are not there is an answer, not a failure. What else fails to end is one.
#[test]
fn what_is_gone_needs_no_end() {
    let mixed = |method: &str, every_ns: u64, took_ns: u64, words: &[&[&str]]| {
        let mut story = hooked();
        story.hook(Layer::KubeletCall, method);
        for (n, words) in (0..).zip(words) {
            let from = S + n * every_ns;
            story.begin(Layer::KubeletCall, method, 70, 100, from);
            story.end(Layer::KubeletCall, method, 70, from + took_ns, CALL_FAILED);
            let error = |words: &&str| ErrorFact {
                service: "runtime.v1.RuntimeService".to_owned(),
                method: method.to_owned(),
                at_ns: at(from + MS).0,
                words: (*words).to_owned(),
            };
            story
                .fact(from + 2 * MS, &Fact::Errors(ErrorsFact { errors: words.iter().map(error).collect() }));
        }
        !failing_calls(&story).is_empty()
    };
    let takes = |method: &str, every_ns: u64, took_ns: u64, words: Option<&str>| {
        let words: Vec<&str> = words.into_iter().collect();
        mixed(method, every_ns, took_ns, &[&words[..]; 4])
    };
    let failing = |method: &str, every_ns: u64, words: Option<&str>| takes(method, every_ns, MS, words);
    let sandbox = "an error occurred when try to find sandbox \"5ea05ea05ea0\": not found";
    assert!(!failing("StopPodSandbox", 100 * MS, Some(sandbox)));
    let containerd = "an error occurred when try to find container \"5ea05ea05ea0\": not found";
    let crio = "container with ID starting with 5ea0 not found: ID does not exist";
    for gone in [containerd, crio, "Error response from daemon: No such container: 5ea0"] {
        assert!(!failing("StopContainer", 100 * MS, Some(gone)), "{gone}");
        assert!(!failing("StopContainer", 5 * S, Some(gone)), "also when it goes on: {gone}");
        assert!(!failing("ExecSync", S, Some(gone)), "{gone}");
    }
    assert!(failing("StopContainer", 100 * MS, Some("runc kill: operation not permitted")));
    let network = "failed to destroy network for sandbox \"5ea0\": plugin failed (delete): pod x not found";
    assert!(failing("StopPodSandbox", S, Some(network)));
    // What failed counts, whatever was gone afterwards, or for another client.
    assert!(mixed("StopPodSandbox", S, MS, &[&[network], &[network], &[sandbox], &[sandbox]]));
    assert!(!mixed("StopPodSandbox", S, MS, &[&[sandbox], &[network], &[sandbox], &[sandbox]]));
    assert!(mixed("StopPodSandbox", S, MS, &[&[network, sandbox][..]; 4]));
    assert!(
        mixed("StopPodSandbox", 4 * S, MS, &[&[], &[], &[], &[sandbox]]),
        "of most the words were not seen"
    );
    assert!(failing("ExecSync", S, Some("exec: \"ls\": executable file not found in $PATH")));
    assert!(failing("PullImage", S, Some("could not find container registry")), "an image is no container");
    // Nobody saw what the runtime said.
    for ends in ["StopContainer", "StopPodSandbox"] {
        assert!(!failing(ends, 100 * MS, None) && failing(ends, 5 * S, None), "{ends}");
        assert!(takes(ends, 100 * MS, 40 * MS, None), "something was tried: {ends}");
    }
    assert!(failing("StartContainer", 100 * MS, None));
}

/// An image that could not be had after minutes is no call that the kubelet gave up.
#[test]
fn one_pull_that_fails_is_no_failing_node() {
    let mut story = Story::node();
    for n in 0..170 {
        story.relist(n * S, 0);
    }
    story.begin(Layer::KubeletCall, "PullImage", 70, 100, 10 * S);
    story.end(Layer::KubeletCall, "PullImage", 70, 160 * S, CALL_FAILED).read_open(170 * S);
    assert_eq!(diagnose(&story.snapshot(170 * S)).verdict, Verdict::Healthy);
}

/// What has not been tried for long is over.
#[test]
fn a_failure_of_long_ago_is_over() {
    let mut story = hooked();
    calls(&mut story, "RunPodSandbox", &[CALL_FAILED; 2]);
    for n in 20..500 {
        story.relist(n * S, 0);
    }
    story.read_open(500 * S);
    assert_eq!(diagnose(&story.snapshot(500 * S)).verdict, Verdict::Healthy);
}

fn says(name: &str, holds: bool) -> RuntimeSays {
    let condition = |name: &str, holds| RuntimeCondition {
        name: name.into(),
        holds,
        reason: "NetworkPluginNotReady".into(),
        message: "cni plugin not initialized \u{1b}[31m".into(),
        missing: false,
    };
    let conditions = vec![condition("RuntimeReady", true), condition(name, holds)];
    RuntimeSays { pid: CONTAINERD, version: "v1".into(), conditions, ..RuntimeSays::default() }
}

/// The commonest NotReady there is: the runtime has no network. It explains the calls that fail, so it comes first.
#[test]
fn a_runtime_that_is_not_ready() {
    let mut story = hooked();
    calls(&mut story, "RunPodSandbox", &[CALL_FAILED; 4]);
    story.says = Some(says("NetworkReady", false));
    story.census(19 * S, &[], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Failing);
    let [Failing::Condition { pid, condition }, Failing::Calls { .. }] = &diagnosis.failing[..] else {
        panic!("{:?}", diagnosis.failing)
    };
    assert_eq!((*pid, condition.name.as_str()), (CONTAINERD, "NetworkReady"));
    let text = text_of(&snapshot, true).unwrap();
    assert!(
        text.contains("\nFAILING  NetworkReady is false, says the runtime") && text.contains("NotReady"),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}') && text.contains("\n  failing   RunPodSandbox fails every time: 4 of 4"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&json_of(&snapshot).unwrap()).unwrap();
    assert_eq!(json["diagnosis"]["verdict"], "failing");
    assert_eq!(json["diagnosis"]["failing"][0]["name"], "NetworkReady");
    assert_eq!(json["diagnosis"]["failing"][1]["count"], 4);
}

/// A required condition that a runtime does not mention: the kubelet takes it for false.
#[test]
fn a_condition_that_is_missing() {
    let mut story = listing(20);
    let mut says = says("NetworkReady", false);
    says.conditions[1] =
        RuntimeCondition { name: "NetworkReady".into(), missing: true, ..RuntimeCondition::default() };
    story.says = Some(says);
    story.census(19 * S, &[], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    assert_eq!(diagnose(&snapshot).verdict, Verdict::Failing);
    let text = text_of(&snapshot, true).unwrap();
    assert!(
        text.contains("\nFAILING  the runtime (pid 812) does not say whether NetworkReady is true"),
        "{text}"
    );
}

/// What a runtime says beyond what the CRI requires makes no node NotReady: a kubelet that asks by an old version of the CRI is told so by
/// containerd 1.7.
#[test]
fn a_condition_that_is_not_required() {
    let mut story = listing(20);
    let mut says = says("NetworkReady", true);
    says.conditions.push(RuntimeCondition {
        name: "ContainerdHasNoDeprecationWarnings".into(),
        reason: "ContainerdHasDeprecationWarnings".into(),
        message: r#"{"io.containerd.deprecation/cri-api-v1alpha2":"CRI API v1alpha2 is deprecated"}"#.into(),
        ..RuntimeCondition::default()
    });
    story.says = Some(says);
    story.census(19 * S, &[], &[], &[]);
    let snapshot = story.snapshot(20 * S);
    let diagnosis = diagnose(&snapshot);
    assert_eq!((diagnosis.verdict, diagnosis.failing), (Verdict::Healthy, vec![]));
    let text = text_of(&snapshot, true).unwrap();
    assert!(text.contains("runtime   ready, it says (RuntimeReady, NetworkReady);"), "{text}");
}

/// "Healthy" is said of what was watched, by name; whether the runtime is ready is said only when it was asked.
#[test]
fn healthy_names_what_was_watched() {
    let text = |says: Option<RuntimeSays>| {
        let mut story = listing(20);
        story.says = says;
        story.census(19 * S, &[], &[], &[]);
        let snapshot = story.snapshot(20 * S);
        assert_eq!(diagnose(&snapshot).verdict, Verdict::Healthy);
        text_of(&snapshot, true).unwrap()
    };
    let asked = text(Some(says("NetworkReady", true)));
    assert!(asked.contains("runtime   ready, it says (RuntimeReady, NetworkReady)"), "{asked}");
    let not_asked = text(None);
    assert!(not_asked.contains("not asked whether it is ready"), "{not_asked}");
    for text in [asked, not_asked] {
        assert!(!text.contains("not because of the runtime"), "{text}");
        assert!(
            text.contains("watched   relists") && text.contains("not       ") && text.contains("volumes"),
            "{text}"
        );
    }
}
