use std::sync::Arc;

use super::*;
use crate::{
    decode::Parked,
    input::{Component, Layer},
    span::{GoroutinePark, Label, Leg, SpanId, SpanKind, Tree, sample},
};

/// A span of the sample in another layer, of a component.
fn call(layer: Layer, component: Component, start: u64, end: u64, depth: u32) -> Span {
    let mut span = sample::span(start, Some(end), depth);
    let SpanKind::Call(hook) = &span.kind else { unreachable!() };
    let mut hook = (**hook).clone();
    (hook.layer, hook.component) = (layer, component);
    span.kind = SpanKind::Call(hook.into());
    span.id.tgid = component as u32 + 1;
    span
}

fn park(start: u64, end: u64, place: &str) -> GoroutinePark {
    let stack = Arc::from([place.to_owned()]);
    GoroutinePark { start: MonoNs(start), end: MonoNs(end), open: false, reason: 0, stack }
}

fn parts(table: &TimeTable) -> Vec<(Option<Component>, Doing, u64)> {
    table.rows.iter().map(|row| (row.place.component, row.place.doing, row.sum_ns)).collect()
}

/// A relist of 100 with one call of 10 to 90 that containerd answers from 20 to 80.
fn relist(handler: impl FnOnce(&mut Span), client: impl FnOnce(&mut Span)) -> Span {
    let mut answer = call(Layer::Handler, Component::Containerd, 20, 80, 10);
    handler(&mut answer);
    let mut inner = call(Layer::KubeletCall, Component::Kubelet, 10, 90, 20);
    inner.children.push(answer);
    client(&mut inner);
    let root = call(Layer::Relist, Component::Kubelet, 0, 100, 10);
    let mut root = Tree::build(root, Vec::new()).root;
    root.children.push(inner);
    root
}

fn table_of(root: &Span) -> TimeTable {
    let mut table = TimeTable::default();
    table.add(root, MonoNs(100));
    table.sort();
    table
}

/// Without parks only what the calls themselves show has a name.
#[test]
fn calls_alone() {
    let (kubelet, containerd) = (Some(Component::Kubelet), Some(Component::Containerd));
    let table = table_of(&relist(|_| {}, |_| {}));
    assert_eq!(
        parts(&table),
        [
            (containerd, Doing::Inside, 60),
            (None, Doing::Transport(Leg::Whole), 20),
            (kubelet, Doing::Inside, 20)
        ]
    );
    let table = table_of(&relist(|_| {}, |client| client.children.clear()));
    assert_eq!(parts(&table), [(None, Doing::Unanswered, 80), (kubelet, Doing::Inside, 20)]);
}

/// Parks tell a lock and a shim from other waits, and the rest of a goroutine that was followed is running.
#[test]
fn parks_have_places() {
    let (kubelet, containerd) = (Some(Component::Kubelet), Some(Component::Containerd));
    let handler = |span: &mut Span| {
        span.parked = Some(Parked { ns: 45, short_ns: 5, count: 4 });
        span.parks = vec![
            park(25, 40, "sync.(*RWMutex).RLock"),
            park(40, 50, "github.com/containerd/ttrpc.(*Client).dispatch"),
            park(60, 75, "main.other"),
        ];
    };
    let client = |span: &mut Span| {
        span.parked = Some(Parked { ns: 70, short_ns: 0, count: 1 });
        span.parks = vec![park(15, 85, "google.golang.org/grpc.recv")];
    };
    assert_eq!(
        parts(&table_of(&relist(handler, client))),
        [
            (kubelet, Doing::Inside, 20),
            (containerd, Doing::Waits, 20),
            (containerd, Doing::Runs, 15),
            (containerd, Doing::Lock, 15),
            (None, Doing::Transport(Leg::Whole), 10),
            (kubelet, Doing::Runs, 10),
            (Some(Component::Shim), Doing::Inside, 10),
        ]
    );
}

/// Programs have rows of their own, up to a bound; what is beyond it is in the table all the same.
#[test]
fn programs_are_bounded() {
    let mut table = TimeTable::default();
    for n in 0..100 {
        let root = relist(
            |handler| {
                let mut program = sample::span(30, Some(40), 0);
                program.id = SpanId::of_process(n, MonoNs(30));
                let label = Label { component: Component::Runc, operation: format!("runc {n}").into() };
                program.kind = SpanKind::Process(label);
                handler.children.push(program);
            },
            |_| {},
        );
        table.add(&root, MonoNs(100));
    }
    assert_eq!((table.rows.len(), table.wall_ns), (ROWS, 100 * 100));
    assert_eq!(table.rows.iter().map(|row| row.sum_ns).sum::<u64>(), table.wall_ns);
    let named = table.rows.iter().filter(|row| row.place.program.is_some());
    assert!(named.count() > ROWS / 2);
}

/// Those that never come to a place count there as nothing.
#[test]
fn quantiles_of_all() {
    let mut table = TimeTable::default();
    for n in 0..10 {
        let root = relist(
            |_| {},
            |client| {
                if n < 6 {
                    client.children.clear();
                }
            },
        );
        table.add(&root, MonoNs(100));
    }
    let at = |doing, q| {
        let row = table.rows.iter().find(|row| row.place.doing == doing).unwrap();
        table.quantile_ns(row, q)
    };
    assert_eq!([0.0, 0.5, 0.6, 0.61, 1.0].map(|q| at(Doing::Transport(Leg::Whole), q)), [0, 0, 0, 20, 20]);
    assert_eq!([0.0, 0.4, 0.41, 1.0].map(|q| at(Doing::Unanswered, q)), [0, 0, 80, 80]);
}
