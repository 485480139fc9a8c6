//! O4: a cgroup of the node has as many processes and threads as it may have.

use crate::{
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, ProcessFact, TaskLimit},
    words::human,
};

pub(super) static RULE: Rule = Rule {
    id: "O4",
    title: "a cgroup has no more room for processes and threads: daemons in it cannot start any",
    area: Area::Overload,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "The number of processes and threads in a cgroup can be limited (TasksMax of a systemd unit, podPidsLimit of \
            the kubelet, pids.max). Once there are that many, fork and clone fail with EAGAIN for all in it. A shim cannot start \
            runc, runc cannot start its init; a Go program that needs a thread ends at once. Who has used the room up is \
            mostly somebody else in the same cgroup, which leaks.",
        versions: "all",
        symptoms: &[
            "fork/exec: resource temporarily unavailable",
            "runtime: failed to create new OS thread (have 512 already; errno=11)",
            "cgroup: fork rejected by pids controller in ... (kernel log)",
        ],
        evidence: &[
            "pids.current of a cgroup over a daemon, shim or runc is pids.max, and pids.events counts refused forks",
        ],
        excluded_by: &["the cgroup has room again"],
        next: &[
            "find the leak: `systemd-cgtop -o tasks`, or `ps -eLo cgroup,comm | sort | uniq -c | sort -n | tail`",
            "raise the limit: `systemctl set-property containerd TasksMax=infinity`, or podPidsLimit for a pod",
            "see the kernel's own limits: `sysctl kernel.pid_max kernel.threads-max`",
        ],
        trap: "Do not just restart the daemon: that helps for as long as it takes to fill up again.",
        sources: &["k8s#79466", "k8s#51977", "containerd#3781"],
    },
    examine,
};

/// Whose trouble it is, the worst first.
fn rank(component: Component) -> u8 {
    match component {
        Component::Kubelet => 0,
        _ if component.role().is_runtime() => 1,
        Component::Shim => 2,
        _ => 3,
    }
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let mut full: Vec<(&ProcessFact, &TaskLimit)> = Vec::new();
    for seen in &scene.snapshot.census.processes {
        full.extend(seen.fact.task_limit.as_ref().map(|limit| (&seen.fact, limit)));
    }
    full.sort_by_key(|(fact, limit)| (&limit.path, rank(fact.component), fact.pid));
    full.chunk_by(|(_, one), (_, other)| one.path == other.path).map(finding).collect()
}

/// One cgroup, with those of the node that are in it.
fn finding(all: &[(&ProcessFact, &TaskLimit)]) -> Finding {
    let (first, limit) = all[0];
    let name = |fact: &ProcessFact| format!("{} {}", fact.component.name(), fact.pid);
    let room = format!(
        "cgroup {} has {} of {} processes and threads",
        limit.path,
        human::count(limit.tasks),
        human::count(limit.limit)
    );
    let headline = format!("{} cannot start a process or thread: its {room}", name(first));
    let mut finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Census, room.clone()));
    finding = if limit.refused > 0 {
        let times = human::plural(limit.refused, "time");
        finding.seen(Evidence::new(Source::Census, format!("the kernel has refused another one {times}")))
    } else {
        finding.doubted("nobody has asked for another one yet")
    };
    finding.victims = all.iter().skip(1).map(|(fact, _)| name(fact)).collect();
    let words = format!("whoever fills {}", limit.path);
    finding.culprit = Some(Culprit {
        component: first.component,
        pid: Some(first.pid),
        container: first.container.clone(),
        words,
    });
    // What fails does not hang.
    finding.into_notice().advise(RULE.page.next.iter().copied())
}
