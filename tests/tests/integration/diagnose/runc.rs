//! Causes in runc, its init and its hooks.

use plegtrace::diagnose::{Confidence, Severity, diagnose};
use plegtrace::input::{
    Command, Component, ContainerFact, FdTarget, Freezer, Holder, ParkedThreads, PipeFact, ProcessFact,
};
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

/// A `runc init` that waits to be started.
pub(super) fn init_at_fifo(parent: u32) -> ProcessFact {
    let fifo = PipeFact { path: Some("/run/runc/c1/exec.fifo".into()), ..PipeFact::default() };
    ProcessFact {
        parked: vec![park(syscall("openat", Some(FdTarget::Pipe(fifo))))],
        ..runc("init", CHILD, parent)
    }
}

/// An init at its FIFO is U2 only when nobody is left.
#[test]
fn u2_needs_an_orphan() {
    let init = init_at_fifo;
    let finding = only(&seen_twice(12 * S, &[init(1)], &[], &[]), "U2");
    assert_eq!(culprit(&finding), Some(CHILD));
    none(&seen_twice(12 * S, &[init(RUNC), runc("create", RUNC, SHIM)], &[], &[]));
    none(&seen_twice(8 * S, &[init(1)], &[], &[]));
}

/// A `runc init` in execve, with another thread frozen, below a freezer.
fn execing(sibling: ParkedThreads, freezer: Option<Freezer>) -> ProcessFact {
    let stack = ["begin_new_exec", "load_elf_binary"].map(str::to_owned).to_vec();
    let exec = ParkedThreads { state: 'D', kernel_stack: stack, ..park(syscall("execve", None)) };
    ProcessFact { state: 'D', parked: vec![exec, sibling], freezer, ..runc("init", CHILD, 1) }
}

fn freezing(version: u8) -> Freezer {
    Freezer { path: "/kubepods/c1".into(), version, state: "FREEZING".into(), own: true }
}

/// A sibling that sleeps in futex(2), with this in its kernel stack.
fn sibling(state: char, function: &str) -> ParkedThreads {
    let kernel_stack = vec![function.to_owned()];
    ParkedThreads { state, tid: 2, kernel_stack, ..park(syscall("futex", None)) }
}

/// An execve that waits for a frozen sibling, as older and newer kernels show it; a sibling that merely sleeps, a cgroup of
/// version 2 and an init that executes nothing are another matter.
#[test]
fn u3_needs_an_execve_and_a_frozen_sibling() {
    let of = |process: ProcessFact| seen_twice(12 * S, &[process], &[], &[]);
    for frozen in [sibling('D', "__refrigerator"), sibling('D', "futex_wait")] {
        let finding = only(&of(execing(frozen, Some(freezing(1)))), "U3");
        assert_eq!((culprit(&finding), finding.confidence), (Some(CHILD), Confidence::High));
        assert!(finding.next[0].contains("echo THAWED"), "{:?}", finding.next);
    }
    let frozen = || sibling('D', "futex_wait");
    assert_eq!(only(&of(execing(frozen(), None)), "U3").confidence, Confidence::Medium, "thawed again");
    none(&of(execing(sibling('S', "futex_wait"), Some(freezing(1)))));
    none(&of(execing(frozen(), Some(freezing(2)))));
    let waits = ProcessFact { parked: vec![frozen()], ..execing(frozen(), Some(freezing(1))) };
    none(&of(waits));
    none(&seen_twice(4 * S, &[execing(frozen(), Some(freezing(1)))], &[], &[]));
}

/// Who waits for that freezer is a victim, when it works on the same container.
#[test]
fn u3_names_who_waits_for_the_freezer() {
    let of_c1 = ContainerFact { id: "c1".into(), ..ContainerFact::default() };
    let init = execing(sibling('D', "__refrigerator"), Some(freezing(1)));
    let init = ProcessFact { container: Some(of_c1), ..init };
    let finding = only(&seen_twice(12 * S, &[init, runc("kill", RUNC, 1)], &[], &[]), "U3");
    assert_eq!((culprit(&finding), finding.behind), (Some(CHILD), Some(RUNC)));
    assert!(finding.victims.iter().any(|victim| victim.starts_with("runc kill of c1")), "{finding:#?}");
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

/// A container that is frozen because its runc waits in the middle of a change is not left frozen; a runc of another container, or one
/// that freezes nothing, changes nothing.
#[test]
fn u4_waits_for_a_runc_that_changes_the_container() {
    let container = || Some(ContainerFact { id: "c1".into(), ..ContainerFact::default() });
    let freezer = Freezer { path: "/kubepods/c1".into(), version: 1, state: "FROZEN".into(), own: true };
    let frozen = ProcessFact {
        freezer: Some(freezer),
        container: container(),
        ..process(Component::Helper, CHILD, SHIM, 0)
    };
    let named = |sub: &str, of: &str| {
        let command = Command::Runc { sub: sub.into(), container: Some(of.into()), bundle: None };
        let runc = ProcessFact { command: Some(command), ..process(Component::Runc, RUNC, SHIM, 0) };
        let all = [frozen.clone(), runc];
        let mut story = Story::node();
        story.census(S, &all, &[], &[]).census(9 * S, &all, &[], &[]);
        ids(&diagnose(&story.snapshot(9 * S))).contains(&"U4")
    };
    assert!(!named("update", "c1"));
    assert!(named("update", "c2") && named("exec", "c1"));
}
