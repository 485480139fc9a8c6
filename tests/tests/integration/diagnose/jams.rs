//! A runtime and a shim that each wait for the other to read (S2).

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Severity, diagnose};
use plegtrace::input::{
    CensusFact, Component, Fact, GoroutineGroup, Holder, ProcessFact, SocketFact, VersionFact,
};
use plegtrace_tests::found::{group, lists, process, relist, stopped, update};
use plegtrace_tests::story::{CONTAINERD, S, Story, at};

use super::{SHIM, culprit, exits, ids, none, only};

/// What containerd and the shim have not read, of each other.
type Unread = (u32, u32);

const MUCH: Unread = (80_000, 30_000);

/// The sockets of containerd and of the shim.
fn processes(unread: Unread) -> [ProcessFact; 2] {
    let holder = |pid, comm: &str| Holder { pid, comm: comm.into(), fd: 9, orphan: false };
    let end = |inode, peer_inode, peer, unread| SocketFact {
        inode,
        unread,
        path: Some("/run/containerd/s/1".into()),
        peer_inode: Some(peer_inode),
        peers: vec![peer],
        ..SocketFact::default()
    };
    let at_runtime = end(70, 71, holder(SHIM, "containerd-shim"), unread.0);
    let at_shim = end(71, 70, holder(CONTAINERD, "containerd"), unread.1);
    // As the census tells them: of an end at which there is nothing to read it says nothing.
    let told = |socket: SocketFact| Some(socket).filter(|socket| socket.unread > 0).into_iter().collect();
    [
        ProcessFact { sockets: told(at_runtime), ..process(Component::Containerd, CONTAINERD, 1, 0) },
        ProcessFact { sockets: told(at_shim), ..exits::shim() },
    ]
}

/// The goroutine of containerd that writes to the shim.
fn writer() -> GoroutineGroup {
    let frames = [
        "internal/poll.runtime_pollWait",
        "internal/poll.(*pollDesc).waitWrite",
        "internal/poll.(*FD).Write",
        "net.(*conn).Write",
        "bufio.(*Writer).Flush",
        "github.com/containerd/ttrpc.(*channel).send",
        "github.com/containerd/ttrpc.(*Client).send",
        "github.com/containerd/ttrpc.(*Client).run",
    ];
    group(&[91], "IO wait", &frames)
}

/// Looks one second after the start and every two seconds from then on, the last of which is that of the report.
fn seen(version: &str, looks: &[[ProcessFact; 2]], goroutines: &[GoroutineGroup]) -> Snapshot {
    let mut story = Story::node();
    let version = VersionFact { program: "containerd".into(), version: version.into() };
    let versions = CensusFact { ended_ns: at(0).0, versions: vec![version], ..CensusFact::default() };
    story.fact(0, &Fact::Census(versions));
    let mut ns = S;
    for look in looks {
        story.census(ns, look, goroutines, &[]);
        ns += 2 * S;
    }
    story.snapshot(ns - 2 * S)
}

/// Both queues as long at three looks, and the goroutine that waits for room.
#[test]
fn s2_from_both_queues() {
    let looks = [processes(MUCH), processes(MUCH), processes(MUCH)];
    let finding = only(&seen("1.4.13~ds1-1~deb11u4", &looks, &[writer()]), "S2");
    assert_eq!((finding.severity, finding.confidence), (Severity::Stall, Confidence::High), "{finding:#?}");
    assert_eq!(culprit(&finding), Some(CONTAINERD));
    let evidence: Vec<&str> = finding.evidence.iter().map(|one| one.text.as_str()).collect();
    for wanted in [
        "80,000 bytes unread from containerd-shim",
        "30,000 bytes unread from containerd ",
        "waitWrite",
        "1.4.13",
    ] {
        assert!(evidence.iter().any(|text| text.contains(wanted)), "no {wanted} in {evidence:#?}");
    }
    assert!(finding.next[0].starts_with("`systemctl restart containerd`"), "{:?}", finding.next);
}

/// What is in flight is read a moment later: two looks at different queues, one look, or looks that follow each other at once prove
/// nothing; nor does one queue alone.
#[test]
fn s2_needs_queues_that_stand() {
    let all = |looks: &[Unread]| looks.iter().copied().map(processes).collect::<Vec<_>>();
    let fine: [&[Unread]; 5] = [
        &[MUCH, MUCH, (80_000, 29_000)],
        &[MUCH, (0, 0), MUCH],
        &[MUCH, MUCH],
        &[(80_000, 0), (80_000, 0), (80_000, 0)],
        &[(0, 30_000), (0, 30_000), (0, 30_000)],
    ];
    for looks in fine {
        none(&seen("1.4.13", &all(looks), &[writer()]));
    }
}

/// A shim that is stopped reads nothing either: that is another cause.
#[test]
fn s2_is_not_said_of_a_stopped_shim() {
    let [containerd, shim] = processes(MUCH);
    let look = [containerd, stopped(shim)];
    let snapshot = seen("1.4.13", &[look.clone(), look.clone(), look], &[writer()]);
    assert_eq!(culprit(&only(&snapshot, "S10")), Some(SHIM));
}

/// Less certain of a version without the known bug, and without the goroutine that writes.
#[test]
fn s2_has_its_doubts() {
    let looks = [processes(MUCH), processes(MUCH), processes(MUCH)];
    let finding = only(&seen("1.7.24", &looks, &[writer()]), "S2");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("none of the versions"), "{:?}", finding.doubts);
    let finding = only(&seen("1.7.16", &looks, &[]), "S2");
    assert_eq!(finding.confidence, Confidence::Medium);
    assert!(finding.doubts[0].contains("no goroutine"), "{:?}", finding.doubts);
}

/// Lists that wait for an update of a container of this shim: one story, and its advice is not to kill containerd by its number.
#[test]
fn r1_behind_a_jam() {
    let mut story = Story::node();
    story.relist(S, 0);
    for ns in [S, 3 * S, 5 * S] {
        story.census(ns, &processes(MUCH), &[writer(), update(), lists()], &[relist()]);
    }
    let diagnosis = diagnose(&story.snapshot(5 * S));
    assert_eq!(ids(&diagnosis)[0], "R1", "{diagnosis:#?}");
    let finding = &diagnosis.findings[0];
    assert!(finding.headline.contains("each wait for the other to read"), "{}", finding.headline);
    assert!(finding.next[0].starts_with("`systemctl restart containerd`"), "{:?}", finding.next);
}
