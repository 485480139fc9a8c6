//! K2: the list of containers is larger than a gRPC message may be.

use crate::{
    correlate::ListOutcome,
    cri::Method,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Reason, Rule, Scene, Source},
    input::{CallError, Component, RuntimeSays},
    stuck::REACH_RELIST,
    words::{self, human},
};

pub(super) static RULE: Rule = Rule {
    id: "K2",
    title: "the list of containers or pods is larger than a gRPC message may be",
    area: Area::Kubelet,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "Each relist asks for all containers and pods, those that have exited included, in one message each. \
            Above 16 MiB (4 MiB before Kubernetes 1.9) the runtime or the kubelet refuses the message. The call fails \
            at once, every time, so no relist gets its list, although nothing hangs and nothing is slow. Labels and \
            annotations count: a few thousand exited containers with large annotations are enough.",
        versions: "all; streaming lists (KEP-5825, alpha in Kubernetes 1.36) remove the limit",
        symptoms: &[
            "ResourceExhausted desc = grpc: trying to send message larger than max",
            "ResourceExhausted desc = grpc: received message larger than max",
            "PLEG is not healthy, while crictl ps answers at once, with that error",
        ],
        evidence: &[
            "the lists of the kubelet fail, and none has been successful since",
            "the runtime answers our own ListContainers or ListPodSandbox with ResourceExhausted (8)",
            "before that (a notice): the last list on the socket had 12 MiB or more",
        ],
        excluded_by: &[
            "the kubelet still gets its lists",
            "lists hang instead of failing (R1, R14), or fail with another error (R15)",
        ],
        next: &[
            "`crictl ps -a` fails in the same way: list exited containers with `ctr -n k8s.io containers ls` (it \
             streams), and remove them one by one with `crictl rm ID`",
            "find who leaves them: ttlSecondsAfterFinished of Jobs, CronJob history limits, terminated-pod-gc-threshold",
            "until then raise max_send_message_size in containerd's configuration; the kubelet's own limit is fixed",
        ],
        trap: "Do not restart kubelet or containerd: that changes nothing, the list is as long as before.",
        sources: &[
            "kubernetes#63858",
            "kubernetes#131407",
            "kubernetes#134750",
            "reproduced with containerd 1.6",
        ],
    },
    examine,
};

/// `ResourceExhausted` (`google.golang.org/grpc/codes`).
const RESOURCE_EXHAUSTED: i32 = 8;
/// The most that containerd sends and a kubelet takes: since Kubernetes 1.9 (`pkg/kubelet/cri/remote`, `maxMsgSize`).
const LIMIT: u64 = 16 << 20;
/// From here on it is worth a word.
const NEAR_LIMIT: u64 = 12 << 20;
/// How grpc-go calls it, on both sides (`rpc_util.go`, `server.go`); it has other errors with this code.
const TOO_LARGE: &str = "message larger than max";

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let fails = scene.reasons().any(|reason| matches!(reason, Reason::ListStale { failing: true, .. }));
    let says = scene.snapshot.census.round.as_ref().and_then(|round| round.says.as_ref());
    let refused = says.filter(|_| fails).and_then(|says| Some((says, refusal(says)?)));
    match refused {
        Some((says, (method, error))) => vec![finding(says, method, error, scene)],
        None => LISTS.iter().filter_map(|method| warning(*method, scene)).collect(),
    }
}

/// What a relist asks for in one message.
const LISTS: [Method; 2] = [Method::ListContainers, Method::ListPodSandbox];

/// The list still fits, and will not for long.
fn warning(method: Method, scene: &Scene<'_>) -> Option<Finding> {
    let row = scene.snapshot.grpc.rows.iter().find(|row| row.method == method.name())?;
    if !(NEAR_LIMIT..LIMIT).contains(&row.answer_bytes) {
        return None;
    }
    let (size, limit) = (human::mebibytes(row.answer_bytes), human::mebibytes(LIMIT));
    let headline =
        format!("the list of {} is close to the limit of a message: {size} of {limit}", what(method));
    let answer = format!("the last {} had {} bytes", method.name(), human::count(row.answer_bytes));
    let finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Wire, answer));
    Some(finding.into_notice().advise(RULE.page.next.iter().copied().skip(1)))
}

fn what(method: Method) -> &'static str {
    if method == Method::ListPodSandbox { "pods" } else { "containers" }
}

/// Our own list, refused for its size.
fn refusal(says: &RuntimeSays) -> Option<(Method, &CallError)> {
    says.calls.iter().find_map(|call| {
        let method = Method::from_name(&call.operation).filter(|method| method.facts().needed_by_relist)?;
        let error = call.error.as_ref()?;
        (error.code == RESOURCE_EXHAUSTED && error.message.contains(TOO_LARGE)).then_some((method, error))
    })
}

/// How many relists have failed since the last good one, and how quickly.
fn failed(scene: &Scene<'_>) -> Option<String> {
    let ended = scene.snapshot.relists.iter().rev().filter(|relist| !relist.root().is_open());
    let failed = ended.take_while(|relist| relist.list == ListOutcome::Failed);
    let mut lengths: Vec<u64> = failed.map(|relist| relist.root().duration_ns(scene.snapshot.now)).collect();
    lengths.sort_unstable();
    let (longest, count) = (*lengths.last()?, lengths.len() as u64);
    let times = human::plural(count, "relist");
    Some(format!("the last {times} failed, none after more than {}: nothing hangs", human::duration(longest)))
}

fn finding(says: &RuntimeSays, method: Method, error: &CallError, scene: &Scene<'_>) -> Finding {
    let what = what(method);
    let snapshot = scene.snapshot;
    let runtime = snapshot.targets.iter().find(|target| target.fact.pid == says.pid);
    let component = runtime.map_or(Component::Containerd, |target| target.fact.component);
    let name = component.name();
    let headline =
        format!("the list of {what} is too large for one message: every {} fails at once", method.name());
    let answer =
        format!("{name} {} refuses our {} too: {}", says.pid, method.name(), words::cut(&error.message, 120));
    let finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Census, answer));
    let finding = match failed(scene) {
        Some(relists) => finding.seen(Evidence::new(Source::Uprobes, relists)),
        None => finding,
    };
    Finding {
        since: snapshot.last_list.age(snapshot.now),
        culprit: Some(Culprit {
            component,
            pid: Some(says.pid),
            container: None,
            words: format!(
                "{name} {}: its list of {what} has outgrown the limit of a gRPC message",
                says.pid
            ),
        }),
        victims: vec!["every relist of the kubelet".to_owned()],
        reach: REACH_RELIST,
        ..finding
    }
    .advise(RULE.page.next.iter().copied())
}
