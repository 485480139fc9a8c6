//! N2: network plugins queue for a file lock.

use crate::{
    correlate::Stuck,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, evidence::in_syscall},
    input::{Component, Holder},
    words::{cut, of_pod},
};

use super::n1_cni_plugin_hangs::{LOCKS, plugin};

pub(super) static RULE: Rule = Rule {
    id: "N2",
    title: "network plugins queue for a file lock that one process holds",
    area: Area::Cni,
    min_age_ns: super::n1_cni_plugin_hangs::RULE.min_age_ns,
    proof: Proof::Real,
    page: Page {
        mechanism: "Address management (host-local and others) takes a file lock for each ADD and DEL. A holder that does \
            not end lets every later plugin wait: one process per pod, thousands in the end.",
        versions: "host-local 0.8.6 and others; any plugin with a lock",
        symptoms: &["thousands of host-local processes", "ContainerCreating for every new pod of the node"],
        evidence: &[
            "a CNI plugin older than 10 s that is blocked in flock or fcntl",
            "who holds that lock (/proc/locks)",
        ],
        excluded_by: &[],
        next: &["look at what the holder does, then kill it: the others go on at once"],
        trap: "Killing those that wait frees nothing: the next ones queue up behind the same holder.",
        sources: &["containernetworking/plugins#561"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = scene.stuck().filter_map(|stuck| of(stuck, scene)).collect();
    // All that wait for one holder are one finding: the oldest speaks for the rest.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.since.map(|since| since.ns)));
    found.dedup_by_key(|finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid));
    found
}

fn of(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (words, waiting) = plugin(stuck)?;
    let park = in_syscall(&stuck.parks, &LOCKS)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let holder = park.syscall.as_ref().and_then(|syscall| syscall.lock_holder.as_ref());
    let pod = of_pod(stuck.container.as_ref());
    let whose = holder.map_or_else(|| "another process".to_owned(), name);
    let headline = format!("{words}{pod} waits for a file lock that {whose} holds");
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let Some(holder) = holder else {
        let finding = finding.doubted("who holds the lock was not seen");
        return Some(finding.advise([format!(
            "grep {waiting} /proc/locks: the line with the same number without an arrow is the holder's"
        )]));
    };
    finding.victims.insert(0, format!("{words} (pid {waiting}){pod}"));
    finding.culprit = Some(Culprit {
        component: Component::Helper,
        pid: Some(holder.pid),
        container: stuck.container.clone(),
        words: format!("{whose}: it holds the lock"),
    });
    let held = Evidence::new(Source::Census, format!("the lock is held by {whose} (/proc/locks)"));
    Some(finding.seen(held).advise([
        format!("kill {}: those that wait go on at once", holder.pid),
        "look at what it did first: plegtrace -v, or its log".to_owned(),
    ]))
}

fn name(holder: &Holder) -> String {
    match holder.comm.as_str() {
        "" => format!("process {}, which has ended and left it to a child,", holder.pid),
        comm => format!("{} {}", cut(comm, 20), holder.pid),
    }
}
