//! Shims in `umount2` of the root of a container that has ended, and in other waits in the kernel: what cannot be deleted meanwhile, what
//! waits behind it, and who is not to blame.

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Diagnosis, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Component, ContainerFact, Fact, GoroutineGroup, MessagesFact, OpenMessageFact, ParkedThreads,
    Pressure, ProcessFact,
};
use plegtrace_tests::found::{about, lists, process, relist, update};
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use super::exits::{ended_with, shim, stop};
use super::unmounts::{ROOT, in_call, parked, unmounting};
use super::{RUNC, SHIM, culprit, ids, none, only, park, runc, syscall};

/// A shim that unmounts the root of c1, and waits in the kernel for something else than the disk under an overlay.
fn waits(stack: &[&str]) -> ProcessFact {
    parked(shim(), in_call("umount2", ROOT, stack))
}

/// Where nobody can say what it is that an unmount waits for.
const LOCKED: [&str; 3] = ["rwsem_down_write_slowpath", "deactivate_super", "cleanup_mnt"];

/// Looks at a shim and containerd, with these goroutines of containerd, at these seconds.
fn behind(shim: &ProcessFact, containerd: &[ParkedThreads], groups: &[GoroutineGroup]) -> Diagnosis {
    let containerd =
        ProcessFact { parked: containerd.to_vec(), ..process(Component::Containerd, CONTAINERD, 1, 0) };
    let mut story = ended_with(shim.clone(), Vec::new()).ended();
    story.ended.clear();
    let (id, sandbox) = ("c2".to_owned(), Some("s2".to_owned()));
    story.containers.push(ContainerFact { id, sandbox, ..ContainerFact::default() });
    for look in [S, 7 * S, 13 * S] {
        story.census(look, &[shim.clone(), containerd.clone()], groups, &[relist()]);
    }
    diagnose(&story.snapshot(13 * S))
}

fn update_of(id: &str) -> GoroutineGroup {
    about(update(), ").UpdateContainerResources", id)
}

fn lists_at(id: &str) -> GoroutineGroup {
    about(lists(), "(*statusStorage).Get", id)
}

/// The update of a container whose root is being unmounted waits for its shim, and all lists for the update: there is no runc to be
/// found and killed, whatever containerd writes to its disk meanwhile.
#[test]
fn r1_names_the_shim_that_unmounts() {
    for shim in [unmounting(), waits(&LOCKED)] {
        for containerd in [vec![], vec![park(syscall("fdatasync", None))]] {
            let diagnosis = behind(&shim, &containerd, &[update_of("c1"), lists_at("c1")]);
            let finding = &diagnosis.findings[0];
            assert_eq!((ids(&diagnosis), finding.rule.id), (vec!["R1"], "R1"), "{diagnosis:#?}");
            assert_eq!((culprit(finding), finding.reach), (Some(SHIM), 3));
            assert_eq!(finding.confidence, Confidence::High, "{:?}", finding.doubts);
            assert!(finding.headline.contains(&format!("shim {SHIM}")), "{}", finding.headline);
            assert!(finding.headline.contains("umount2 of /run/"), "{}", finding.headline);
            let next = finding.next.join("; ");
            assert!(!next.contains("runc update") && !next.contains("kill"), "{next}");
            assert!(finding.victims[0].starts_with("relist"), "{:?}", finding.victims);
            assert!(finding.evidence.iter().any(|seen| seen.text.contains("umount2(")), "{finding:#?}");
            assert_eq!(diagnosis.unexplained().count(), 0, "{:?}", diagnosis.reasons);
            assert!(!diagnosis.excluded.iter().any(|excluded| excluded.what == "disk"));
        }
    }
    let diagnosis = behind(&unmounting(), &[], &[update_of("c1"), lists_at("c1")]);
    assert_eq!(diagnosis.findings[0].also, ["R3"], "the kernel says what it waits for");
}

/// Which container is updated was not seen: it may be this one. An update of another one waits for something else, and without a list
/// behind the update it is no R1.
#[test]
fn r1_of_an_unmount_needs_the_container() {
    let unsure = behind(&unmounting(), &[], &[update(), lists()]);
    let finding = &unsure.findings[0];
    assert_eq!((finding.rule.id, culprit(finding)), ("R1", Some(SHIM)), "{unsure:#?}");
    assert_eq!(finding.confidence, Confidence::Medium);
    let other = behind(&unmounting(), &[], &[update_of("c2"), lists_at("c2")]);
    let alone = other.findings.iter().find(|finding| finding.rule.id == "R1").unwrap();
    assert!(culprit(alone) == Some(CONTAINERD) && alone.confidence == Confidence::Medium, "{alone:#?}");
    let none_behind = behind(&unmounting(), &[], &[update_of("c1")]);
    assert_eq!(ids(&none_behind), ["R3"]);
    assert_eq!(none_behind.findings[0].reach, 2);
}

/// The same end, with a shim that does this at both looks.
fn ended(shim: &ProcessFact, waiting: &[GoroutineGroup]) -> Snapshot {
    ended_with(shim.clone(), waiting.to_vec()).seen()
}

fn s5(shim: &ProcessFact, waiting: &[GoroutineGroup]) -> Finding {
    let finding = only(&ended(shim, waiting), "S5");
    assert_eq!((culprit(&finding), finding.severity), (Some(SHIM), Severity::Stall), "{finding:#?}");
    finding
}

/// A container has ended, its shim unmounts its root, and nobody can say what that waits for: its task cannot be deleted. The shim has
/// reported the end.
#[test]
fn s5_names_the_shim() {
    for stack in [&LOCKED[..], &[]] {
        let alone = s5(&waits(stack), &[]);
        assert_eq!((alone.reach, alone.confidence), (0, Confidence::Low), "{:?}", alone.doubts);
        assert!(alone.headline.contains("cannot delete"), "{}", alone.headline);
        assert!(
            alone.victims[0].starts_with("the kubelet, to which the container still runs"),
            "{:?}",
            alone.victims
        );
        assert!(!alone.next.iter().any(|next| next.contains("kill")), "{:?}", alone.next);
        let stopped = s5(&waits(stack), &[stop()]);
        assert_eq!((stopped.reach, stopped.victims.len()), (2, 2), "{:?}", stopped.victims);
    }
    let diagnosis = diagnose(&ended(&waits(&LOCKED), &[stop()]));
    assert_eq!((diagnosis.verdict, diagnosis.unexplained().count()), (Verdict::Stall, 0));
}

/// What the kernel waits for is told where it is known.
#[test]
fn s5_tells_what_the_unmount_waits_for() {
    let places: [(&[&str], &str); 4] = [
        (&["percpu_rwsem_wait", "__sb_start_write", "sync_filesystem"], "frozen"),
        (&["request_wait_answer", "fuse_sync_fs", "sync_filesystem"], "FUSE"),
        (&["rpc_wait_bit_killable", "nfs_wb_all", "sync_filesystem"], "NFS"),
        (&["__wait_rcu_gp", "synchronize_rcu", "namespace_unlock"], "grace period"),
    ];
    for (stack, word) in places {
        let finding = s5(&waits(stack), &[stop()]);
        assert!(finding.headline.contains(word), "{}", finding.headline);
        assert_eq!(finding.confidence, Confidence::Medium, "{:?}", finding.doubts);
    }
}

/// An unmount that has not lasted as long as containerd waits for it is none, and neither is one in another call at each look, or one
/// of a container that has not ended.
#[test]
fn s5_needs_an_end_and_ten_seconds() {
    let now = waits(&LOCKED);
    let mut other = now.clone();
    other.parked[0].syscall.as_mut().unwrap().args[0] = 7;
    for looks in [[(S, shim()), (13 * S, now.clone())], [(S, other), (13 * S, now.clone())]] {
        let mut story = ended_with(shim(), Vec::new()).ended();
        for (ns, shim) in looks {
            ended_with(shim, vec![stop()]).looks(&mut story, &[ns]);
        }
        none(&story.snapshot(13 * S));
    }
    let mut running = ended_with(now.clone(), Vec::new()).ended();
    running.ended.clear();
    ended_with(now, Vec::new()).looks(&mut running, &[S, 13 * S]);
    none(&running.snapshot(13 * S));
}

fn asks_shim(story: &mut Story, ns: u64, sent: u64, method: &str, answerer: u32) {
    let open = OpenMessageFact {
        start_ns: at(sent).0,
        asker: CONTAINERD,
        answerer,
        service: "containerd.task.v2.Task".into(),
        method: method.into(),
        ..OpenMessageFact::default()
    };
    let fact = MessagesFact { at_ns: at(ns).0, open: vec![open], complete: true };
    story.fact(ns, &Fact::Messages(fact));
}

/// Where the runtime was not asked what it believes, the request that has the task deleted tells that the container has ended; one that
/// has just come may be for a command.
#[test]
fn s5_by_the_request_to_delete() {
    let asked = |sent: u64| {
        let end = ended_with(waits(&LOCKED), Vec::new());
        let mut story = end.ended();
        story.ended.clear();
        end.looks(&mut story, &[S, 13 * S]);
        asks_shim(&mut story, 13 * S, sent, "Delete", SHIM);
        story.snapshot(13 * S)
    };
    let finding = only(&asked(4 * S), "S5");
    assert_eq!((culprit(&finding), finding.severity), (Some(SHIM), Severity::Stall));
    let told = finding.evidence.iter().any(|seen| seen.text.contains("asked of the shim 9.0 s ago"));
    assert!(told, "{:?}", finding.evidence);
    none(&asked(12 * S));
}

/// A shim that waits in the kernel, or of which containerd is having the task deleted, has not lost the exit, whatever the kernel says
/// of where it waits.
#[test]
fn s4_is_not_said_of_a_shim_that_is_in_the_kernel() {
    let is_lost = |snapshot: &Snapshot| ids(&diagnose(snapshot)).contains(&"S4");
    assert!(is_lost(&ended(&shim(), &[stop()])), "it does nothing at all");
    let asleep =
        |state, call, stack: &[&str]| parked(shim(), ParkedThreads { state, ..in_call(call, "/x", stack) });
    assert!(is_lost(&ended(&asleep('S', "futex", &[]), &[stop()])));
    for call in ["fsync", "unlinkat", "openat", "umount2"] {
        assert!(!is_lost(&ended(&asleep('D', call, &["io_schedule"]), &[stop()])), "{call}");
    }
    let asked = |method: &str, answerer| {
        let mut story = ended_with(shim(), vec![stop()]).story();
        asks_shim(&mut story, 12 * S, S, method, answerer);
        is_lost(&story.snapshot(12 * S))
    };
    assert!(!asked("Delete", SHIM));
    assert!(asked("Delete", RUNC) && asked("Wait", SHIM));
}

/// The disk is not cleared of what nobody looked at: a shim or a runc that writes or unmounts, or a node whose tasks wait for a disk
/// most of the time.
#[test]
fn the_disk_is_not_cleared_while_anybody_waits_for_it() {
    let containerd = || ProcessFact {
        parked: vec![park(syscall("futex", None))],
        ..process(Component::Containerd, CONTAINERD, 1, 0)
    };
    let kubelet = || ProcessFact {
        parked: vec![park(syscall("futex", None))],
        ..process(Component::Kubelet, plegtrace_tests::story::KUBELET, 1, 0)
    };
    let is_cleared = |other: ProcessFact, io_full: u32| {
        let mut story = Story::node();
        for look in [S, 2 * S] {
            story.census(look, &[containerd(), kubelet(), other.clone()], &[], &[]);
            // What comes last stands for the round.
            story.frames_mut().pop();
            let pressure = Pressure { io_full_avg10: io_full, io_some_avg10: io_full, ..Pressure::default() };
            let (began_ns, ended_ns) = (at(look).0, at(look).0);
            let round = CensusFact { began_ns, ended_ns, pressure: Some(pressure), ..CensusFact::default() };
            story.fact(look, &Fact::Census(round));
        }
        diagnose(&story.snapshot(2 * S)).excluded.iter().any(|excluded| excluded.what == "disk")
    };
    let idle = || parked(shim(), park(syscall("futex", None)));
    assert!(is_cleared(idle(), 100));
    assert!(!is_cleared(idle(), 8000), "most of the time somebody waits for a disk");
    assert!(!is_cleared(shim(), 100), "nobody knows what the shim does");
    for call in ["fsync", "fdatasync", "umount2", "syncfs"] {
        assert!(!is_cleared(parked(shim(), park(syscall(call, None))), 100), "shim in {call}");
        let runc = parked(runc("create", RUNC, SHIM), park(syscall(call, None)));
        assert!(!is_cleared(runc, 100), "runc in {call}");
    }
    assert!(!is_cleared(unmounting(), 100));
}
