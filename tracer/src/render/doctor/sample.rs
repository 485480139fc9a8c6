//! A view with one of everything, for tests.

use super::view::{DoctorView, HookRow, Prices, ProgramRow};
use crate::{
    checks::{Check, Report, State},
    input::{Component, Layer, Presence, RefusedFact},
};

/// A path that wants to be an escape sequence.
pub(super) const HOSTILE: &str = "/tmp/\u{1b}[2J\u{202e}evil";

pub(super) fn view() -> DoctorView {
    DoctorView {
        tool_version: "0.1.0".to_owned(),
        node: "n1".to_owned(),
        kernel: "6.1.0".to_owned(),
        report: Report {
            checks: vec![
                Check::new("object", "eBPF programs", State::Ok, "built in"),
                Check::new("privileges", "privileges", State::Fail, "not enough privileges")
                    .hint("run: sudo plegtrace"),
                Check::new("ring_buffer", "BPF ring buffer", State::Unknown, "cannot be asked"),
                Check::new("attach", "attach mode", State::Warn, "perf events"),
            ],
        },
        programs: vec![kubelet(), shim(20), shim(21)],
        presence: vec![Presence {
            component: Component::Crio,
            path: "/run/crio/crio.sock".to_owned(),
            called: false,
        }],
        refused: vec![RefusedFact {
            source: "uprobes".to_owned(),
            component: Some(Component::Kubelet),
            what: "counted-error".to_owned(),
            why: "no such function in this build".to_owned(),
            matters: true,
        }],
    }
}

fn kubelet() -> ProgramRow {
    ProgramRow {
        component: Component::Kubelet,
        pid: 7,
        exe: "/usr/bin/kubelet".to_owned(),
        version: Some("1.20.2".to_owned()),
        go_version: Some("go1.15.15".to_owned()),
        socket: Some("/run/containerd/containerd.sock".to_owned()),
        unproved: None,
        note: None,
        hooks: vec![HookRow {
            operation: "relist".to_owned(),
            service: "pleg.(*GenericPLEG)".to_owned(),
            layer: Layer::Relist,
            symbol: "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist".to_owned(),
            sites: 4,
            prices: Some(Prices { emulated: 1, single_stepped: 3 }),
        }],
    }
}

fn shim(pid: u32) -> ProgramRow {
    ProgramRow {
        component: Component::Shim,
        pid,
        exe: HOSTILE.to_owned(),
        version: None,
        go_version: None,
        socket: None,
        unproved: Some("no test has run on arm64 yet".to_owned()),
        note: None,
        hooks: Vec::new(),
    }
}
