//! What folded stacks consist of, and that they add up.

use std::sync::Arc;

use super::*;
use crate::{
    correlate::{Phase, ProcessSeen},
    decode::Parked,
    input::{Component, HookFact, ParkedThreads, ProcessFact},
    span::sample,
};

fn call(layer: Layer, component: Component, operation: &str, start: u64, end: Option<u64>) -> Span {
    let mut span = sample::span(start, end, 0);
    if let SpanKind::Call(hook) = &span.kind {
        let hook = HookFact {
            layer,
            component,
            operation: operation.to_owned(),
            symbol: format!("x/y.{operation}"),
            ..(**hook).clone()
        };
        span.kind = SpanKind::Call(Arc::new(hook));
    }
    span
}

/// A relist whose list waits in the runtime for a lock.
fn relist(end: Option<u64>) -> Span {
    let stack = ["sync.(*RWMutex).RLock", "store.(*Store).List", "x/y.ListContainers", "grpc.serve"];
    let park = GoroutinePark {
        start: MonoNs(30_000),
        end: MonoNs(70_000),
        open: false,
        reason: 1,
        stack: stack.map(str::to_owned).to_vec().into(),
    };
    let mut handler =
        call(Layer::Handler, Component::Containerd, "ListContainers", 20_000, end.map(|_| 80_000));
    handler.parked = Some(Parked { ns: 40_000, short_ns: 0, count: 1 });
    handler.known_to = Some(MonoNs(80_000));
    handler.parks.push(park);
    (handler.id.tgid, handler.id.goid) = (2, 2);
    let mut bare =
        call(Layer::KubeletClient, Component::Kubelet, "ListContainers", 10_000, end.map(|_| 90_000));
    bare.children.push(handler);
    let mut client =
        call(Layer::KubeletCall, Component::Kubelet, "ListContainers", 5_000, end.map(|_| 95_000));
    client.children.push(bare);
    let mut root = call(Layer::Relist, Component::Kubelet, "Relist", 0, end);
    root.children.push(client);
    root
}

fn lines(flame: &Flame) -> Vec<String> {
    let line = |stack: &Stack<'_>| {
        let names: Vec<&str> = stack.frames.iter().map(|(frame, _)| &*frame.text).collect();
        format!("{} {}", names.join(";"), stack.ns)
    };
    flame.stacks().iter().map(line).collect()
}

/// From the relist down the chain to the lock; the bare client is the same call, and what surrounds the handler's own
/// function is left out.
#[test]
fn a_relist_that_waits() {
    let mut flame = Flame::default();
    flame.add(&relist(Some(100_000)), MonoNs(0));
    let handler = "relist;kubelet ListContainers;containerd ListContainers";
    let expected = [
        format!("{handler};[running, ready or in a syscall] 20000"),
        format!("{handler};[waiting];store.(*Store).List;sync.(*RWMutex).RLock 40000"),
        "relist;kubelet ListContainers;[unexplained] 30000".to_owned(),
        "relist;[unexplained] 10000".to_owned(),
    ];
    assert_eq!(lines(&flame), expected);
    assert_eq!((flame.total_ns(), flame.relists(), flame.open()), (100_000, 1, 0));
}

/// What has not ended has a root of its own, and lasts until now.
#[test]
fn an_open_relist_stands_apart() {
    let mut flame = Flame::default();
    flame.add(&relist(Some(100_000)), MonoNs(0));
    flame.add(&relist(None), MonoNs(300_000));
    assert_eq!((flame.total_ns(), flame.relists(), flame.open()), (400_000, 1, 1));
    let open: u64 =
        flame.stacks().iter().filter(|s| &*s.frames[0].0.text == "relist, open").map(|s| s.ns).sum();
    assert_eq!(open, 300_000);
}

/// A tree that contradicts itself keeps its length and nothing else.
#[test]
fn contradictions_are_unexplained() {
    let mut root = relist(Some(100_000));
    root.children.push(call(Layer::KubeletCall, Component::Kubelet, "Version", 50_000, Some(60_000)));
    let mut flame = Flame::default();
    flame.add(&root, MonoNs(0));
    assert_eq!(lines(&flame), ["relist;[unexplained] 100000"]);
}

/// What has no room is summed up, counted, and lost nowhere.
#[test]
fn room_is_bounded() {
    let mut flame = Flame::with_room_for(10);
    for n in 0..1000 {
        let mut root = relist(Some(100_000));
        root.children[0] =
            call(Layer::KubeletCall, Component::Kubelet, &format!("M{n}"), 5_000, Some(95_000));
        flame.add(&root, MonoNs(0));
        flame.add(&call(Layer::Handler, Component::Containerd, &format!("M{n}"), 0, Some(7)), MonoNs(0));
    }
    assert_eq!(flame.total_ns(), 1000 * 100_007);
    assert!(flame.folded_away() > 0);
    assert!(flame.nodes.len() <= 10 + 2 * ROOTS + 1, "{}", flame.nodes.len());
    assert!(lines(&flame).iter().any(|line| line.starts_with("relist;(other) ")));
}

/// A handler that waits for a runc.
fn starting() -> Span {
    let mut root = call(Layer::Handler, Component::Containerd, "StartContainer", 0, None);
    let label = crate::span::Label { component: Component::Runc, operation: "runc start".into() };
    let mut runc = sample::span(10, None, 0);
    runc.id = crate::span::SpanId::of_process(77, MonoNs(10));
    (runc.kind, runc.known_to) = (SpanKind::Process(label), Some(MonoNs(90)));
    root.children.push(runc);
    root
}

/// A process that was looked at then, and waited in a write to a pipe.
fn looked_at(pid: u32, at_ns: u64) -> ProcessSeen {
    let parked = ParkedThreads {
        threads: 1,
        tid: pid,
        state: 'S',
        syscall: None,
        kernel_stack: ["pipe_write", "vfs_write", "do_syscall_64"].map(str::to_owned).to_vec(),
        user_function: None,
    };
    let fact = ProcessFact {
        at_ns,
        pid,
        parent: 1,
        started_ns: None,
        component: Component::Runc,
        comm: "runc".to_owned(),
        command: None,
        state: 'S',
        threads: 1,
        stopped: 0,
        freezer: None,
        parked: vec![parked],
        sockets: Vec::new(),
        pipes: Vec::new(),
        container: None,
        by_hand: None,
        detached: false,
        cpu_group: None,
        task_limit: None,
        disk: None,
    };
    ProcessSeen::new(fact, None)
}

/// A runc that runs is in the phase in which it was last seen, and in the kernel where a look found it. A look at an earlier
/// process of the same number says nothing.
#[test]
fn where_an_open_runc_is() {
    let phase = [Phase { operation: "a/systemd.startUnit".to_owned(), start: MonoNs(20), age_ns: 70 }];
    let chain = "StartContainer, open;containerd StartContainer";
    let rest = [format!("{chain};runc start;[unexplained] 10"), format!("{chain};[unexplained] 10")];
    let kernel = ";[in the kernel, as last seen];vfs_write;pipe_write";
    for (at_ns, inside) in [(9, ""), (50, kernel)] {
        let seen = looked_at(77, at_ns);
        let late =
            Late { phases: HashMap::from([(77, phase.as_slice())]), seen: HashMap::from([(77, &seen)]) };
        let mut flame = Flame::default();
        flame.add_with(&starting(), MonoNs(100), &late);
        let place = format!("{chain};runc start;systemd.startUnit{inside} 80");
        let mut expected = vec![place];
        expected.extend(rest.clone());
        assert_eq!(lines(&flame), expected);
    }
}
