//! A view with one of everything.

use super::view::GoroutinesView;
use crate::input::{Component, GoroutineGroup, GoroutinesFact};

/// A name that would like to be more.
pub(super) const HOSTILE: &str = "a\x1b[31mb\u{202e}";

fn group(count: u32, goids: Vec<u64>, state: &str, frames: &[&str]) -> GoroutineGroup {
    GoroutineGroup {
        count,
        goids,
        fingerprints: Vec::new(),
        state: state.to_owned(),
        wait_reason: None,
        parked_by_ns: None,
        frames: frames.iter().map(|&frame| frame.to_owned()).collect(),
        broken: None,
        subjects: Vec::new(),
    }
}

pub(super) fn view() -> GoroutinesView {
    let mut groups = vec![
        group(
            1200,
            (1..=32).collect(),
            "waiting",
            &["runtime.gopark", "runtime.selectgo", "main.wait", "main.main"],
        ),
        group(1, vec![12], "syscall", &[HOSTILE, "main.recurse", "main.recurse", "main.main"]),
        group(1, vec![14], "running", &[]),
        group(1, vec![2], "waiting", &["runtime.gopark", "runtime.forcegchelper"]),
    ];
    groups[0].wait_reason = Some("select".to_owned());
    groups[0].parked_by_ns = Some(100_000_000_000);
    groups[1].broken = Some("it is deeper than 100 frames".to_owned());
    groups[2].broken = Some("it runs".to_owned());
    groups[3].wait_reason = Some("force gc (idle)".to_owned());
    GoroutinesView {
        tool_version: "0.1.0".to_owned(),
        node: "n1".to_owned(),
        exe: "/usr/bin/containerd".to_owned(),
        now_ns: 300_000_000_000,
        realtime_offset_ns: 1_767_268_631_000_000_000,
        rss_peak_bytes: 30 << 20,
        fact: GoroutinesFact {
            at_ns: 300_000_000_000,
            took_ns: 3_500_000,
            pid: 77,
            component: Component::Containerd,
            go_version: "go1.19.8".to_owned(),
            total: 1236,
            unread: 3,
            groups,
            groups_left_out: 2,
            last_list_ns: Some(258_500_000_000),
        },
    }
}
