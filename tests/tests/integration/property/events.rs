//! Events from nowhere.

use plegtrace::decode::{Call, Event, Meta, MonoNs, ParkEvent, Parked, Process, Step};
use plegtrace::input::{
    Command, CommandFact, Fact, InFlight, Liveness, OpenCallFact, ParkerFact, ProcessesFact, WatchedFact,
};
use plegtrace_common::role::Role;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, at};
use proptest::prelude::*;

/// Events from nowhere: any hook, any nesting, any flags, on few goroutines so that they meet.
pub(super) fn call() -> impl Strategy<Value = Call> {
    let depth = prop_oneof![Just(0u32), Just(100), Just(300), Just(900), Just(1000)];
    let tgid = prop_oneof![4 => Just(KUBELET), 2 => Just(CONTAINERD), 1 => Just(3u32)];
    let stream = proptest::option::of(prop_oneof![Just(1u32), Just(3), Just(5)]);
    let times = (0u64..4000, 0u64..2000, any::<bool>());
    (tgid, 1u64..4, 0u32..30, depth, 0u32..32, times, parked(), stream).prop_map(
        |(tgid, goid, hook, depth, flags, (start, len, marked), parked, stream)| {
            let (start, end) = (at(start * MS), at((start + len) * MS));
            let mark = marked.then_some(MonoNs((start.0 + end.0) / 2));
            Call { tgid, goid, hook, depth, flags, start, end, mark, parked, stream }
        },
    )
}

pub(super) fn parked() -> impl Strategy<Value = Option<Parked>> {
    let sums = (0u64..2000, 0u64..500).prop_map(|(ns, short)| (ns * MS, short * MS));
    proptest::option::of(sums.prop_map(|(ns, short_ns)| Parked { ns, short_ns, count: 1 }))
}

/// Parks of the same goroutines, wherever and however long.
pub(super) fn park() -> impl Strategy<Value = Event> {
    let tgid = prop_oneof![4 => Just(KUBELET), 2 => Just(CONTAINERD)];
    let stack = proptest::collection::vec(0u64..9, 0..30);
    (tgid, 1u64..4, 0u64..4000, 0u64..2000, stack).prop_map(|(tgid, goid, start, len, stack)| {
        let (start, end) = (at(start * MS), at((start + len) * MS));
        Event::Park(ParkEvent { tgid, goid, hook: 0, reason: 0, start, end, stack })
    })
}

pub(super) fn parker() -> impl Strategy<Value = ParkerFact> {
    let sums = (0u64..2000, 0u64..500, 0u64..6000);
    (1u64..4, sums, proptest::collection::vec(0u64..9, 0..30)).prop_map(
        |(goid, (ns, short, since), stack)| {
            let (parked_ns, short_ns) = (ns * MS, short * MS);
            let since_ns = if since < 1000 { 0 } else { at(since * MS).0 };
            ParkerFact { tgid: KUBELET, goid, parked_ns, short_ns, since_ns, stack, ..ParkerFact::default() }
        },
    )
}

pub(super) fn open_call() -> impl Strategy<Value = OpenCallFact> {
    let liveness = prop_oneof![Just(Liveness::Alive), Just(Liveness::Over), Just(Liveness::Unknown)];
    (call(), liveness).prop_map(|(call, liveness)| OpenCallFact {
        tgid: call.tgid,
        goid: call.goid,
        hook: call.hook,
        start_ns: call.start.0,
        mark_ns: call.mark.map_or(0, |mark| mark.0),
        depth: call.depth,
        flags: call.flags,
        liveness,
        parked_ns: 0,
        short_ns: 0,
        parks: 0,
        stream: call.stream.unwrap_or(0),
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let parkers = proptest::collection::vec(parker(), 0..5);
    let reading = (proptest::collection::vec(open_call(), 0..12), 0u64..6000, any::<bool>(), parkers)
        .prop_map(|(calls, ms, complete, parkers)| {
            let fact = Fact::InFlight(InFlight { at_ns: at(ms * MS).0, calls, complete, parkers });
            Event::Fact { at: at(ms * MS), fact: Box::new(fact) }
        });
    prop_oneof![20 => call().prop_map(Event::Call), 5 => park(), 1 => reading]
}

/// Steps of few processes, what they were told, and readings of the map, all without rhyme or reason.
pub(crate) fn process_event() -> impl Strategy<Value = Event> {
    let moment = || (0u64..6000).prop_map(|ms| at(ms * MS));
    let role = || (0u32..12).prop_map(Role::from_u32);
    let step = prop_oneof![Just(Step::Fork), Just(Step::Exec), (0u32..600).prop_map(Step::Exit)];
    let pids = (900u32..912, proptest::option::of(900u32..912), proptest::option::of(900u32..912));
    let process = (moment(), proptest::option::of(moment()), step, pids, role(), role(), 0u32..16).prop_map(
        |(at, since, step, (pid, parent, creator), role, parent_role, flags)| {
            let (meta, comm) = (Meta { at, tgid: pid, tid: pid }, "a\u{202e}b".to_owned());
            let old_role = Role::None;
            Event::Process(Process {
                meta,
                step,
                parent,
                creator,
                role,
                old_role,
                parent_role,
                since,
                flags,
                comm,
            })
        },
    );
    let text = || proptest::option::of("[a-z\u{0}-\u{ff}]{0,40}");
    let told = prop_oneof![
        ("[a-z]{0,3}", text(), text()).prop_map(|(sub, container, bundle)| Command::Runc {
            sub,
            container,
            bundle
        }),
        (text(), text()).prop_map(|(action, id)| Command::Shim { action, namespace: None, id }),
        ("[a-z]{1,2}", text(), text()).prop_map(|(plugin, action, container)| Command::Cni {
            plugin,
            action,
            container
        }),
        "[a-z]{1,2}".prop_map(|program| Command::Other { program }),
    ];
    let command = (900u32..912, moment(), told).prop_map(|(pid, since, command)| {
        let fact = CommandFact { pid, since_ns: since.0, unread: false, command };
        Event::Fact { at: since, fact: Box::new(Fact::Command(fact)) }
    });
    let entry = (900u32..916, 0u32..12, 0u32..12, moment(), 895u32..912, 0u32..16).prop_map(
        |(pid, role, parent_role, since, parent, flags)| WatchedFact {
            pid,
            role,
            parent_role,
            since_ns: since.0,
            parent,
            flags,
            known: None,
        },
    );
    let reading = (proptest::collection::vec(entry, 0..12), moment(), any::<bool>()).prop_map(
        |(processes, moment, complete)| {
            let fact = Fact::Processes(ProcessesFact { at_ns: moment.0, processes, complete });
            Event::Fact { at: moment, fact: Box::new(fact) }
        },
    );
    prop_oneof![10 => process, 4 => command, 1 => reading]
}
