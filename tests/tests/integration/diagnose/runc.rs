//! Causes in runc, its init and its hooks.

use plegtrace::diagnose::{Confidence, Severity, diagnose};
use plegtrace::input::{Command, Component, FdTarget, Freezer, Holder, PipeFact, ProcessFact};
use plegtrace_tests::found::process;
use plegtrace_tests::story::{S, Story};

use super::{CHILD, RUNC, SHIM, culprit, holder, ids, none, only, park, runc, seen_twice, syscall};

/// rc93 holds both ends of its pipe; a pipe that somebody else reads is another matter.
#[test]
fn u1_needs_its_own_pipe() {
    let init = |readers: Vec<Holder>, incomplete| {
        let writers = vec![holder(CHILD)];
        let pipe = PipeFact { inode: 4, path: None, readers, writers, incomplete };
        ProcessFact {
            parked: vec![park(syscall("write", Some(FdTarget::Pipe(pipe))))],
            ..runc("init", CHILD, RUNC)
        }
    };
    let create = runc("create", RUNC, SHIM);
    let shim = process(Component::Shim, SHIM, 1, 0);
    let of = |readers, incomplete| {
        seen_twice(10 * S, &[init(readers, incomplete), create.clone(), shim.clone()], &[], &[])
    };
    let finding = only(&of(vec![holder(CHILD)], false), "U1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(CHILD), Confidence::High));
    // Somebody's open files could not be read: that makes it less sure, not untrue.
    let finding = only(&of(vec![holder(CHILD)], true), "U1");
    assert_eq!((culprit(&finding), finding.confidence), (Some(CHILD), Confidence::Medium));
    for incomplete in [false, true] {
        none(&of(vec![holder(CHILD), holder(SHIM)], incomplete));
        none(&of(Vec::new(), incomplete));
    }
}

/// An init at its FIFO is U2 only when nobody is left.
#[test]
fn u2_needs_an_orphan() {
    let fifo = PipeFact { path: Some("/run/runc/c1/exec.fifo".into()), ..PipeFact::default() };
    let init = |parent| ProcessFact {
        parked: vec![park(syscall("openat", Some(FdTarget::Pipe(fifo.clone()))))],
        ..runc("init", CHILD, parent)
    };
    let finding = only(&seen_twice(12 * S, &[init(1)], &[], &[]), "U2");
    assert_eq!(culprit(&finding), Some(CHILD));
    none(&seen_twice(12 * S, &[init(RUNC), runc("create", RUNC, SHIM)], &[], &[]));
    none(&seen_twice(8 * S, &[init(1)], &[], &[]));
}

/// A hook is a child of runc.
#[test]
fn u10_needs_runc_as_its_parent() {
    let hook = |parent| ProcessFact {
        command: Some(Command::Other { program: "nvidia-hook".into() }),
        ..process(Component::Helper, CHILD, parent, 0)
    };
    let node = |parent| [hook(parent), runc("create", RUNC, SHIM), process(Component::Shim, SHIM, 1, 0)];
    let finding = only(&seen_twice(12 * S, &node(RUNC), &[], &[]), "U10");
    assert!(finding.headline.contains("nvidia-hook"), "{}", finding.headline);
    let diagnosis = diagnose(&seen_twice(12 * S, &node(SHIM), &[], &[]));
    assert!(!ids(&diagnosis).contains(&"U10"), "a child of the shim is no hook: {diagnosis:#?}");
}

/// A frozen container is a notice; one that a request waits for is a stall.
#[test]
fn u4_holds_up_only_who_waits() {
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    let snapshot = seen_twice(20 * S, &[frozen], &[], &[]);
    let finding = diagnose(&snapshot).findings.first().cloned();
    // Two looks three seconds apart do not make five.
    assert!(finding.is_none(), "{finding:?}");
    let mut story = Story::node();
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 2, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact { freezer: Some(freezer), ..process(Component::Helper, CHILD, SHIM, 0) };
    story.census(S, std::slice::from_ref(&frozen), &[], &[]).census(9 * S, &[frozen], &[], &[]);
    let finding = only(&story.snapshot(9 * S), "U4");
    assert_eq!((finding.severity, finding.confidence), (Severity::Notice, Confidence::Medium));
    assert!(finding.next[0].contains("cgroup.freeze"), "{:?}", finding.next);
}
