//! What hangs in the kernel because a server far away or the kernel itself does not answer.

use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict, diagnose};
use plegtrace::input::{Command, Component, ParkedThreads, ProcessFact};
use plegtrace_tests::found::process;
use plegtrace_tests::story::{S, Story};

use super::{CHILD, RUNC, SHIM, cni, culprit, ids, none, only, park, runc, syscall};

fn in_kernel(call: &str, stack: &[&str]) -> ParkedThreads {
    let kernel_stack = stack.iter().map(|name| (*name).to_owned()).collect();
    ParkedThreads { state: 'D', kernel_stack, ..park(syscall(call, None)) }
}

/// Two looks at these processes, the second at `ns`.
fn looked(processes: &[ProcessFact], ns: u64) -> plegtrace::correlate::Snapshot {
    let mut story = Story::node();
    for round in [ns - 11 * S, ns] {
        story.census(round, processes, &[], &[]);
    }
    story.snapshot(ns)
}

/// The `runc create` of a shim, begun at this time, which waits so.
fn creates(park: ParkedThreads, started: u64) -> [ProcessFact; 2] {
    let created =
        ProcessFact { started_ns: Some(plegtrace_tests::story::at(started).0), ..runc("create", RUNC, SHIM) };
    [ProcessFact { parked: vec![park], ..created }, process(Component::Shim, SHIM, 1, 0)]
}

fn of_runc(park: ParkedThreads, id: &str) -> Finding {
    let finding = only(&looked(&creates(park, 0), 20 * S), id);
    assert_eq!((culprit(&finding), finding.severity), (Some(RUNC), Severity::Stall), "{finding:#?}");
    // No test has seen the others on the real programs yet.
    let sure = if id == "X4" { Confidence::High } else { Confidence::Medium };
    assert_eq!(finding.confidence, sure);
    finding
}

/// Places in the kernel, each with its cause.
fn places() -> [(ParkedThreads, &'static str, &'static str); 9] {
    [
        (
            in_kernel("mkdirat", &["percpu_rwsem_wait", "__percpu_down_read", "__sb_start_write"]),
            "X4",
            "frozen",
        ),
        (in_kernel("write", &["percpu_rwsem_wait", "__percpu_down_read", "vfs_write"]), "X4", "frozen"),
        (
            in_kernel("openat", &["rpc_wait_bit_killable", "__rpc_execute", "nfs4_call_sync"]),
            "X3",
            "network file system",
        ),
        (in_kernel("statx", &["wait_for_response", "cifs_send_recv"]), "X3", "network file system"),
        (
            in_kernel("clone", &["rwsem_down_write_slowpath", "copy_net_ns", "create_new_namespaces"]),
            "X7",
            "network namespace",
        ),
        (
            in_kernel("umount2", &["__wait_rcu_gp", "synchronize_rcu", "namespace_unlock"]),
            "X9",
            "grace period",
        ),
        (
            in_kernel("unshare", &["synchronize_rcu_expedited", "synchronize_net", "copy_net_ns"]),
            "X9",
            "grace period",
        ),
        (in_kernel("bpf", &["wait_for_completion", "rcu_barrier"]), "X9", "grace period"),
        (
            in_kernel("execve", &["schedule_timeout", "audit_log_start", "audit_log_exit"]),
            "X12",
            "audit queue",
        ),
    ]
}

#[test]
fn what_the_kernel_waits_for_is_named() {
    for (park, id, words) in places() {
        let finding = of_runc(park, id);
        assert!(finding.headline.contains(words), "{}", finding.headline);
        let places = finding.evidence.iter().filter(|seen| seen.text.contains("; kernel ")).count();
        assert_eq!(places, 1, "{:?}", finding.evidence);
    }
}

/// Of a hook or a plugin one look at the kernel is not enough to clear it: it is one finding, which names the place in the kernel.
#[test]
fn hooks_and_plugins_are_one_finding_with_the_kernel() {
    for (park, id, _) in places() {
        let command = Some(Command::Other { program: "/opt/gpu-hook".into() });
        let hook =
            ProcessFact { command, parked: vec![park.clone()], ..process(Component::Helper, CHILD, RUNC, 0) };
        let [created, shim] = creates(park_in_wait(), 0);
        for (processes, own) in [(vec![hook, created, shim], "U10"), (vec![cni(CHILD, park)], "N1")] {
            let diagnosis = diagnose(&looked(&processes, 20 * S));
            let [finding] = &diagnosis.findings[..] else { panic!("{:?}", ids(&diagnosis)) };
            assert_eq!(
                (diagnosis.verdict, finding.rule.id, &finding.also[..]),
                (Verdict::Stall, own, &[id][..])
            );
        }
    }
}

fn park_in_wait() -> ParkedThreads {
    ParkedThreads { state: 'S', ..in_kernel("waitid", &["do_wait", "kernel_waitid"]) }
}

/// One look is not enough: what is old may pass through the kernel, and be in another call the next time.
#[test]
fn one_look_at_the_kernel_is_not_enough() {
    let in_other_calls = |first: ParkedThreads, then: Option<ParkedThreads>| {
        let mut story = Story::node();
        story.census(15 * S, &creates(first, 0), &[], &[]);
        if let Some(park) = then {
            story.census(20 * S, &creates(park, 0), &[], &[]);
        }
        let diagnosis = diagnose(&story.snapshot(20 * S));
        assert_eq!(diagnosis.verdict, Verdict::Stall);
        ids(&diagnosis).iter().any(|id| id.starts_with('X'))
    };
    for (park, ..) in places() {
        let mut other = park.clone();
        other.syscall.as_mut().unwrap().args[0] = 7;
        assert!(!in_other_calls(park.clone(), None));
        assert!(!in_other_calls(other, Some(park.clone())));
        assert!(in_other_calls(park.clone(), Some(park)));
    }
}

/// What has just begun may still end, and other waits in the kernel are none of these.
#[test]
fn young_and_other_waits_are_none_of_it() {
    for (park, ..) in places() {
        none(&looked(&creates(park, 16 * S), 20 * S));
    }
    let disk = in_kernel("fsync", &["io_schedule", "jbd2_log_wait_commit", "ext4_sync_file"]);
    let cgroups = [
        "percpu_rwsem_wait",
        "percpu_down_write",
        "cgroup_procs_write_start",
        "kernfs_fop_write_iter",
        "vfs_write",
    ];
    for other in [disk, in_kernel("write", &cgroups)] {
        let named = diagnose(&looked(&creates(other, 0), 20 * S));
        assert!(!ids(&named).iter().any(|id| id.starts_with('X')), "{:?}", ids(&named));
    }
}
