//! What stands still for a moment, and a machine that stood still as a whole, hold up nobody.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Doubt, Severity, Verdict, diagnose};
use plegtrace::input::{Command, Component, CpuFact, DaemonCpu, Fact, Layer, ProcessFact};
use plegtrace_tests::found::{process, stopped, update};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, S, Story, at};

use super::{SHIM, only};

fn shim(namespace: &str) -> ProcessFact {
    let namespace = Some(namespace.to_owned());
    let command = Command::Shim { action: None, namespace, id: Some("s1".into()) };
    stopped(ProcessFact { command: Some(command), ..process(Component::Shim, SHIM, 1, 0) })
}

/// A node that lists each second, and on which looks at these moments find this shim; one more finds an update that waits for a shim.
fn looked(namespace: &str, looks: &[u64], waits: bool, docker: bool) -> Snapshot {
    let mut story = Story::node();
    if docker {
        story.target(Component::Dockerd, 77, "24.0.7");
    }
    let now = looks.last().unwrap() + 5 * S;
    for n in 0..now / S {
        story.relist(n * S, 0);
    }
    let requests = if waits { vec![update()] } else { Vec::new() };
    for look in looks {
        story.census(*look, &[shim(namespace)], &requests, &[]);
    }
    story.read_open(now).snapshot(now)
}

fn stalls(snapshot: &Snapshot) -> bool {
    let (finding, verdict) = (only(snapshot, "S10"), diagnose(snapshot).verdict);
    assert_eq!(finding.severity == Severity::Stall, verdict == Verdict::Stall, "{finding:#?}");
    verdict == Verdict::Stall
}

/// A debugger, or a dump of its memory, stops a shim for a moment. One look is not enough, unless somebody waits.
#[test]
fn a_shim_that_is_stopped_for_a_moment() {
    let stalls = |looks: &[u64], waits| stalls(&looked("k8s.io", looks, waits, false));
    assert!(!stalls(&[9 * S], false), "nobody looked again");
    assert!(!stalls(&[9 * S, 10 * S], false));
    assert!(stalls(&[9 * S, 12 * S], false));
}

/// An update waits for a shim: it may be this one.
#[test]
fn a_stopped_shim_for_which_somebody_waits() {
    let finding = diagnose(&looked("k8s.io", &[9 * S], true, false));
    assert_eq!(finding.verdict, Verdict::Stall, "{finding:#?}");
}

/// The containers of others stand in namespaces of their own: the kubelet does not wait for them, but Docker's are those of a kubelet that
/// uses Docker.
#[test]
fn a_shim_of_somebody_else() {
    let stalls = |namespace, docker| stalls(&looked(namespace, &[9 * S, 60 * S], false, docker));
    assert_eq!([stalls("default", false), stalls("moby", false)], [false, false]);
    assert_eq!([stalls("moby", true), stalls("k8s.io", false)], [true, true]);
}

/// A sandbox that is being made since 20 s, with a reading of processor time each second; at 25 s the machine stands still for five
/// minutes. `ran`: what kubelet and runtime ran for meanwhile.
fn paused(now: u64, ran: u64) -> Snapshot {
    let (from, to) = (25 * S, 325 * S);
    let mut story = Story::node();
    let cpu = |story: &mut Story, ns: u64, ran_ns: u64| {
        let daemon = |pid| DaemonCpu { pid, ran_ns, threads: 9, ..DaemonCpu::default() };
        let daemons = vec![daemon(KUBELET), daemon(CONTAINERD)];
        story.fact(ns, &Fact::Cpu(CpuFact { at_ns: at(ns).0, daemons, ..CpuFact::default() }));
    };
    let mut spent = 0;
    for ns in (0..=now).step_by(1_000_000_000).filter(|ns| *ns <= from || *ns >= to) {
        if ns == 20 * S {
            story.begin(Layer::Handler, "RunPodSandbox", 500, 100, ns);
        }
        if ns == to {
            spent += ran;
        }
        spent += 30 * MS;
        cpu(&mut story, ns, spent);
        story.relist(ns + MS, 0);
    }
    story.read_open(now).snapshot(now)
}

/// The clock of a virtual machine that was stopped goes on: what was open then is no older for it. Until a moment after, nothing is
/// said.
#[test]
fn a_machine_that_stood_still() {
    let verdict = |now, ran| diagnose(&paused(now, ran)).verdict;
    let after = diagnose(&paused(327 * S, 30 * MS));
    let [Doubt::Paused { ns }] = &after.doubts[..] else { panic!("{after:#?}") };
    assert!(after.verdict == Verdict::CannotTell && (299 * S..300 * S).contains(ns), "{ns}");
    assert_eq!([verdict(337 * S, 30 * MS), verdict(352 * S, 30 * MS)], [Verdict::Healthy, Verdict::Stall]);
    assert!(
        text_of(&paused(327 * S, 30 * MS), true).unwrap().contains("nothing on this machine ran for 5 min")
    );
    // Kubelet and runtime worked all the time: only plegtrace did not get on.
    assert_eq!(verdict(337 * S, 9 * S), Verdict::Stall);
}
