//! When an observation may end before its usual few seconds: what was there before it, was found twice, and is older than
//! what merely stands still for a moment.

use plegtrace::{
    correlate::Snapshot,
    diagnose::diagnose,
    input::{CensusFact, Command, Component, ContainerFact, Fact, GoroutinesFact, ProcessFact},
};
use plegtrace_tests::{
    found::{about, lists, process, relist, stopped, update},
    story::{CONTAINERD, KUBELET, MS, S, Story, at},
};

use super::{CHILD, RUNC, SHIM, cni, ids, none, only, park, runc, syscall};

/// When the first look is taken; everything else on the node is older.
const CAME: u64 = 20 * S;

fn is_proved(snapshot: &Snapshot, id: &str) -> bool {
    let diagnosis = diagnose(snapshot);
    assert_eq!(ids(&diagnosis), [id], "{diagnosis:#?}");
    diagnosis.is_proved(snapshot)
}

/// Looks at these processes, so long after we came; and perhaps relists, each second, that are answered.
fn looked(processes: &[ProcessFact], looks: &[u64], lists: bool) -> Story {
    let mut story = Story::node();
    for second in (0..8).filter(|_| lists) {
        story.relist(CAME + second * S + 100 * MS, 0);
    }
    for look in looks {
        story.census(CAME + look, processes, &[], &[]);
    }
    story
}

/// The kernel knows how old a hook is. Two looks found it, and lists come: nothing more needs to be seen.
#[test]
fn a_hook_is_proved_by_two_looks_and_a_list() {
    let command = Some(Command::Other { program: "/opt/gpu-hook".into() });
    let of_age = |ns: u64| {
        let hook =
            ProcessFact { command: command.clone(), ..process(Component::Helper, CHILD, RUNC, CAME - ns) };
        let shim = process(Component::Shim, SHIM, 1, 0);
        let runc = ProcessFact { started_ns: hook.started_ns, ..runc("create", RUNC, SHIM) };
        [hook, runc, shim]
    };
    let proved = |age: u64, looks: &[u64], lists: bool| {
        let story = looked(&of_age(age), looks, lists);
        is_proved(&story.snapshot(CAME + looks.last().unwrap() + 200 * MS), "U10")
    };
    let twice = [500 * MS, 1_600 * MS];
    assert!(proved(15 * S, &twice, true));
    assert!(!proved(15 * S, &twice[..1], true), "one look");
    assert!(!proved(15 * S, &twice, false), "do lists come?");
}

/// Where a look was cut, or goroutines of a daemon were never read, more may come to light.
#[test]
fn less_than_two_whole_looks_prove_nothing() {
    let shim = [stopped(process(Component::Shim, SHIM, 1, 0))];
    let mut whole = looked(&shim, &[500 * MS, 4 * S], true);
    assert!(is_proved(&whole.snapshot(CAME + 4 * S), "S10"));
    let mut cut = looked(&shim, &[500 * MS], true);
    cut.fact(CAME + 4 * S, &Fact::Process(ProcessFact { at_ns: at(CAME + 4 * S).0, ..shim[0].clone() }));
    let now = at(CAME + 4 * S).0;
    let round = CensusFact { began_ns: now, ended_ns: now, cut: true, ..CensusFact::default() };
    cut.fact(CAME + 4 * S, &Fact::Census(round));
    assert!(!diagnose(&cut.snapshot(CAME + 4 * S)).is_proved(&cut.snapshot(CAME + 4 * S)));
    whole.target(Component::Containerd, CONTAINERD + 1, "1.6.20");
    assert!(!is_proved(&whole.snapshot(CAME + 4 * S), "S10"), "a containerd that was not looked at");
}

/// A debugger holds a process for a moment: so long as two looks have not seen three seconds of it, the observation goes
/// on, and what has passed since the last look counts for nothing.
#[test]
fn what_stands_still_for_a_moment_is_not_proved() {
    let shim = [stopped(process(Component::Shim, SHIM, 1, 0))];
    let cases: [(&[u64], u64, bool); 4] = [
        (&[500 * MS, 1_600 * MS], 1_800 * MS, false),
        (&[500 * MS, 1_600 * MS], 3_900 * MS, false),
        (&[500 * MS, 1_600 * MS, 3_400 * MS], 3_800 * MS, false),
        (&[500 * MS, 1_600 * MS, 3_600 * MS], 3_800 * MS, true),
    ];
    for (looks, now, proved) in cases {
        let snapshot = looked(&shim, looks, true).snapshot(CAME + now);
        assert_eq!(is_proved(&snapshot, "S10"), proved, "{looks:?} {now}");
    }
}

/// A lock hostage is known to be old at the second look, because the kubelet's own clock says when its last list was.
#[test]
fn the_kubelets_clock_proves_what_holds_up_lists() {
    let of =
        |id: &str| ContainerFact { id: id.into(), sandbox: Some("s1".into()), ..ContainerFact::default() };
    let shim = [ProcessFact { container: Some(of("s1")), ..stopped(process(Component::Shim, SHIM, 1, 0)) }];
    let holder = about(update(), ").UpdateContainerResources", "c1");
    let waiter = about(lists(), "(*statusStorage).Get", "c1");
    let proved = |last_list: Option<u64>, looks: &[u64]| {
        let mut story = Story::node();
        story.containers = vec![of("c1")];
        let read = GoroutinesFact {
            at_ns: at(CAME).0,
            took_ns: 0,
            pid: KUBELET,
            component: Component::Kubelet,
            go_version: "go1.15".into(),
            total: 1,
            unread: 0,
            groups: Vec::new(),
            groups_left_out: 0,
            last_list_ns: last_list.map(|ns| at(ns).0),
        };
        story.fact(CAME, &Fact::Goroutines(read));
        for look in looks {
            story.census(CAME + look, &shim, &[holder.clone(), waiter.clone()], &[relist()]);
        }
        is_proved(&story.snapshot(CAME + looks.last().unwrap() + 200 * MS), "R1")
    };
    let twice = [500 * MS, 1_600 * MS];
    assert!(proved(Some(CAME - 10 * S), &twice));
    assert!(!proved(Some(CAME - 10 * S), &twice[..1]), "one look");
    assert!(!proved(Some(CAME - S), &twice), "a list a moment ago");
    assert!(!proved(None, &twice), "its clock was not found");
}

/// A plugin that was young at the last look is not late because time has passed: it may have ended since.
#[test]
fn nobody_grows_late_unseen() {
    let story = |looks: &[u64]| {
        let mut story = Story::node();
        for look in looks {
            story.census(*look, &[cni(CHILD, park(syscall("clock_nanosleep", None)))], &[], &[]);
        }
        story.snapshot(11 * S)
    };
    none(&story(&[3 * S, 6 * S]));
    only(&story(&[3 * S, 6 * S, 11 * S]), "N1");
}
