//! Causes in systemd and D-Bus: whoever does not answer a call is named, by the queues and by what it is doing.

mod errors;
mod waiting;
mod who;

use plegtrace::correlate::Snapshot;
use plegtrace::diagnose::{Confidence, Finding};
use plegtrace::input::{BusFact, BusPeerFact, Fact, OpenBusFact, SYSTEMD};
use plegtrace_tests::story::{S, Story, at};

use super::{RUNC, culprit};

const DAEMON: u32 = 700;

/// A call of `runc` to systemd that the bus has read.
fn call(member: &str) -> OpenBusFact {
    OpenBusFact {
        socket: 9,
        serial: 3,
        start_ns: at(2 * S).0,
        asker: RUNC,
        interface: "org.freedesktop.systemd1.Manager".into(),
        member: member.into(),
        destination: SYSTEMD.into(),
        accepted: Some(true),
        unread_by_bus: Some(0),
        unread: Some(0),
        bus: DAEMON,
        owner: 1,
        comm: "runc".into(),
        ..OpenBusFact::default()
    }
}

/// What a process does, a share of a CPU in percent included.
fn peer(pid: u32, state: char, wchan: &str, percent: u64, unread: Option<u32>) -> (BusPeerFact, u64) {
    let (is_init, comm) = (pid == 1, if pid == 1 { "systemd" } else { "dbus-daemon" }.into());
    (
        BusPeerFact { pid, is_init, comm, state, wchan: wchan.into(), unread, ..BusPeerFact::default() },
        percent,
    )
}

fn idle_bus() -> (BusPeerFact, u64) {
    peer(DAEMON, 'S', "ep_poll", 1, None)
}

fn idle_systemd() -> (BusPeerFact, u64) {
    peer(1, 'S', "ep_poll", 0, Some(0))
}

/// The calls and processes are read each second from the third to the last one.
fn read(story: &mut Story, last: u64, calls: &[OpenBusFact], peers: &[(BusPeerFact, u64)]) {
    for second in 3..=last {
        let ran = |(peer, percent): &(BusPeerFact, u64)| BusPeerFact {
            ran_ns: second * S / 100 * percent,
            ..peer.clone()
        };
        let (open, peers) = (calls.to_vec(), peers.iter().map(ran).collect());
        let reading = BusFact { at_ns: at(second * S).0, open, peers, complete: true, ..BusFact::default() };
        story.fact(second * S, &Fact::BusCalls(reading));
    }
}

fn after(last: u64, call: OpenBusFact, peers: &[(BusPeerFact, u64)]) -> Snapshot {
    let mut story = Story::node();
    story.relist(S, 0);
    story.census(S, &[], &[], &[]);
    read(&mut story, last, &[call], peers);
    story.read_open(last * S);
    story.snapshot(last * S)
}

/// Ten seconds after the call.
fn late(call: OpenBusFact, peers: &[(BusPeerFact, u64)]) -> Snapshot {
    after(12, call, peers)
}

fn confidence(finding: &Finding) -> (Option<u32>, Confidence) {
    (culprit(finding), finding.confidence)
}
