//! Limits that are used up, told by the census (O5, U11).

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Command, Component, ContainerFact, DescriptorsFact, Fact, InotifyFact, InotifyUser, Scarce,
    SeccompFact, Unanswered,
};
use plegtrace::render::text;
use plegtrace_common::rec::PROCESS_EXECED;
use plegtrace_common::role::Role;
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

use super::{RUNC, SHIM, culprit, none, only};

const AGENT: u32 = 31_000;

fn user(comm: &str, pid: u32, processes: u32, instances: u64) -> InotifyUser {
    let (container, cgroup) = (None, Some(format!("/system.slice/{comm}.service")));
    let own = instances / u64::from(processes);
    InotifyUser { comm: comm.to_owned(), processes, instances, pid, own, container, cgroup }
}

fn inotify(used: u64) -> InotifyFact {
    let users = vec![user("log-agent", AGENT, 1, used - 10), user("systemd-udevd", 300, 10, 10)];
    InotifyFact { limit: 128, used, at_least: false, at_most: false, refused: Some(used >= 127), users }
}

fn round(ns: u64, scarce: Option<Scarce>) -> Fact {
    Fact::Census(CensusFact { began_ns: at(ns).0, ended_ns: at(ns).0, scarce, ..CensusFact::default() })
}

/// A healthy node on which this is scarce.
fn node(scarce: Option<Scarce>) -> Snapshot {
    let mut story = Story::node();
    story.relist(S, 0).read_open(4 * S).fact(4 * S, &round(4 * S, scarce));
    story.snapshot(4 * S)
}

fn of_inotify(fact: InotifyFact) -> Scarce {
    Scarce { inotify: Some(fact), descriptors: Vec::new() }
}

/// All in use is a notice that says who has most of them and what lifts it; the node is not held up by that.
#[test]
fn o5_names_who_has_the_instances() {
    // One of them was taken by a program that is not root any more.
    let snapshot = node(Some(of_inotify(inotify(127))));
    let finding = only(&snapshot, "O5");
    assert_eq!((finding.severity, finding.confidence), (Severity::Notice, Confidence::High));
    assert_eq!(culprit(&finding), Some(AGENT));
    assert!(finding.headline.contains("no inotify instance left of its 128"), "{}", finding.headline);
    let holder = "log-agent 31000 of /system.slice/log-agent.service holds 117";
    assert!(finding.evidence.iter().any(|evidence| evidence.text == holder), "{:?}", finding.evidence);
    let many = "10 processes named systemd-udevd hold 10, 300 of /system.slice/systemd-udevd.service alone 1";
    assert!(finding.evidence.iter().any(|evidence| evidence.text == many), "{:?}", finding.evidence);
    assert!(
        finding.next[0].starts_with("`sysctl -w fs.inotify.max_user_instances=8192`"),
        "{:?}",
        finding.next
    );
    assert_ne!(diagnose(&snapshot).verdict, Verdict::Stall);
}

/// As long as some are left nobody was refused one; what was counted twice perhaps is not certain either.
#[test]
fn o5_says_how_many_are_left() {
    let finding = only(&node(Some(of_inotify(inotify(125)))), "O5");
    assert!(
        finding.headline.ends_with("125 of 128 inotify instances in use: at most 3 left"),
        "{}",
        finding.headline
    );
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("was given another one"), "{:?}", finding.doubts);
    let untried = InotifyFact { refused: None, ..inotify(128) };
    assert_eq!(only(&node(Some(of_inotify(untried))), "O5").confidence, Confidence::Medium);
    let shared = InotifyFact { at_most: true, ..inotify(128) };
    let finding = only(&node(Some(of_inotify(shared))), "O5");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("share"), "{:?}", finding.doubts);
}

/// Nothing is said once there is more room; what could not be read is no finding, and is told as not seen.
#[test]
fn o5_needs_a_look_that_found_it() {
    none(&node(None));
    let mut story = Story::node();
    story.relist(S, 0).read_open(4 * S).fact(2 * S, &round(2 * S, Some(of_inotify(inotify(128)))));
    story.fact(4 * S, &round(4 * S, None));
    none(&story.snapshot(4 * S));
    let mut story = Story::node();
    let refused = Unanswered {
        pid: 0,
        comm: String::new(),
        what: "instances of inotify".to_owned(),
        why: "permission denied".to_owned(),
    };
    let blind = CensusFact { ended_ns: at(4 * S).0, unanswered: vec![refused], ..CensusFact::default() };
    story.relist(S, 0).read_open(4 * S).fact(4 * S, &Fact::Census(blind));
    let snapshot = story.snapshot(4 * S);
    none(&snapshot);
    assert!(report(&snapshot).contains("instances of inotify: permission denied"), "{}", report(&snapshot));
}

/// A kubelet or a runtime that is down does not come up again: both are one finding, with the instances as what keeps it down.
#[test]
fn o5_keeps_daemons_down() {
    let down = |component: Component, left: &str, used| {
        let mut story = Story::blank();
        story.start().presence(component, left);
        if component != Component::Kubelet {
            story.target(Component::Kubelet, KUBELET, "1.20.2");
        }
        story.fact(S, &round(S, Some(of_inotify(inotify(used)))));
        story.snapshot(S)
    };
    let says = |snapshot: &Snapshot, rule| {
        let finding = only(snapshot, rule);
        let evidence = finding
            .evidence
            .iter()
            .any(|evidence| evidence.text.contains("a program that starts now gets none"));
        (evidence, finding.next[0].starts_with("`sysctl -w fs.inotify.max_user_instances=8192`"))
    };
    let unit = "/lib/systemd/system/kubelet.service";
    assert_eq!(says(&down(Component::Kubelet, unit, 128), "K7"), (true, true));
    assert_eq!(says(&down(Component::Kubelet, unit, 126), "K7"), (false, false));
    let unit = "/lib/systemd/system/containerd.service";
    assert_eq!(says(&down(Component::Containerd, unit, 128), "R15"), (true, true));
}

/// A daemon that has as many files open as it may have is named with both figures; a pod by its name.
#[test]
fn o5_names_the_daemon() {
    let full = |open| {
        let fact = DescriptorsFact { pid: CONTAINERD, component: Component::Containerd, open, limit: 1024 };
        only(&node(Some(Scarce { inotify: None, descriptors: vec![fact] })), "O5")
    };
    let finding = full(1024);
    let words = format!("containerd {CONTAINERD} has 1,024 of 1,024 files open");
    assert!(finding.headline.starts_with(&words), "{}", finding.headline);
    assert_eq!((culprit(&finding), finding.confidence), (Some(CONTAINERD), Confidence::High));
    assert!(finding.next[0].starts_with(&format!("`prlimit --pid {CONTAINERD} ")), "{:?}", finding.next);
    assert_eq!(full(1020).confidence, Confidence::Medium);
    let (id, pod, namespace) = ("c1".to_owned(), Some("web".to_owned()), Some("default".to_owned()));
    let container = Some(ContainerFact { id, pod, namespace, ..ContainerFact::default() });
    let users = vec![InotifyUser { container, ..user("tail", AGENT, 1, 128) }];
    let finding = only(&node(Some(of_inotify(InotifyFact { users, ..inotify(128) }))), "O5");
    assert!(finding.evidence[1].text.starts_with("tail 31000 of pod default/web holds 128"), "{finding:?}");
}

/// A filter that the kernel refuses for want of memory is certain when starts fail; that the limit is it, only when root is spared.
#[test]
fn u11_names_the_limit() {
    let fact = |spares_root| Some(SeccompFact { limit: Some(264_241_152), spares_root });
    let found = |seccomp, code: u32| {
        let mut story = Story::node();
        let create = Command::Runc { sub: "create".into(), container: Some("c1".into()), bundle: None };
        story.relist(S, 0).found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim);
        story.fork(SHIM, RUNC, 2 * S).exec(RUNC, Role::Runc, PROCESS_EXECED, 2 * S + MS).told(RUNC, &create);
        story.exit(2 * S + 40 * MS, RUNC, code << 8).read_open(4 * S);
        let round = CensusFact { ended_ns: at(4 * S).0, seccomp, ..CensusFact::default() };
        story.fact(4 * S, &Fact::Census(round));
        story.snapshot(4 * S)
    };
    let finding = only(&found(fact(true), 1), "U11");
    assert_eq!((finding.severity, finding.confidence), (Severity::Notice, Confidence::High));
    assert!(
        finding.headline.contains("net.core.bpf_jit_limit of 252.0 MiB is used up"),
        "{}",
        finding.headline
    );
    assert!(finding.evidence.iter().any(|it| it.text == "runc create has failed 1 time"), "{finding:?}");
    assert!(finding.next[0].starts_with("raise the limit: `sysctl -w net.core.bpf_jit_limit"), "{finding:?}");
    assert_eq!(only(&found(fact(true), 0), "U11").confidence, Confidence::Medium);
    let other = only(&found(fact(false), 1), "U11");
    assert_eq!(other.confidence, Confidence::Medium);
    assert!(!other.headline.contains("bpf_jit_limit"), "{}", other.headline);
    none(&found(None, 1));
}

fn report(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    text::report(
        snapshot,
        &diagnose(snapshot),
        &text::TextOptions { verbose: true, ..text::TextOptions::default() },
        &mut out,
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}
