//! N2: network plugins queue for a file lock.

use crate::{
    correlate::ProcessSeen,
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, evidence::in_syscall},
    input::{Command, Component, FdTarget, Holder, SyscallFact},
    stuck::Stuck,
    words::{LONG, command_words, cut, of_pod},
};

use super::n1_cni_plugin_hangs::{LOCKS, plugin};

pub(super) static RULE: Rule = Rule {
    id: "N2",
    title: "network plugins queue for a file lock that one process holds",
    area: Area::Cni,
    min_age_ns: super::n1_cni_plugin_hangs::RULE.min_age_ns,
    proof: Proof::Real,
    page: Page {
        mechanism: "IP address management (host-local and others) takes a file lock for each ADD and DEL. If a \
            holder does not end, every later plugin waits: one process per pod, eventually thousands.",
        versions: "host-local 0.8.6 and others; any plugin with a lock",
        symptoms: &["thousands of host-local processes", "ContainerCreating for every new pod of the node"],
        evidence: &[
            "a CNI plugin older than 10 s that is blocked in flock or fcntl",
            "which process took that lock (/proc/locks) and still has it (/proc/PID/fdinfo)",
        ],
        excluded_by: &[],
        next: &[
            "check what the holder is doing, then kill it: the others continue at once",
            "if the process that took it has exited: `fuser -v` on the lock file shows who holds it now",
        ],
        trap: "Do not kill the waiters: that frees nothing, the next ones queue behind the same holder. And a lock can \
            outlive the process that /proc/locks names, in a child that inherited the open file.",
        sources: &["containernetworking/plugins#561"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect();
    // All that wait for one holder are one finding: the oldest speaks for the rest.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.since.map(|since| since.ns)));
    found
        .dedup_by_key(|finding| finding.culprit.as_ref().map(|culprit| (culprit.pid, culprit.words.clone())));
    let pid = |finding: &Finding| finding.culprit.as_ref().and_then(|culprit| culprit.pid);
    let known: Vec<u32> = found.iter().filter_map(pid).collect();
    let holders = scene.stuck().filter_map(|stuck| by_holder(stuck, scene));
    found.extend(holders.filter(|finding| !pid(finding).is_some_and(|pid| known.contains(&pid))));
    found
}

/// A plugin that hangs with a lock in its hand for which others wait, however short yet.
fn by_holder(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (_, pid) = plugin(stuck)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let waits = |seen: &ProcessSeen| {
        let lock = in_syscall(&seen.fact.parked, &LOCKS)?.syscall.as_ref()?.lock_holder.clone()?;
        let is_plugin = matches!(seen.fact.command, Some(Command::Cni { .. }));
        (is_plugin && seen.fact.pid != pid && lock.pid == pid && lives(&lock)).then_some(lock)
    };
    let mut waiters = scene.snapshot.census.processes.iter().filter_map(|seen| Some((seen, waits(seen)?)));
    let (waiter, holder) = waiters.next()?;
    let command = waiter.fact.command.as_ref()?;
    let (words, more) = (command_words(command, &waiter.fact.comm), waiters.count());
    let all = if more == 0 { words } else { format!("{words} and {more} more") };
    let headline = format!("{all} wait{} for a file lock that {} holds", s_if(more == 0), name(&holder));
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    finding.victims.insert(0, format!("{all} (pid {})", waiter.fact.pid));
    finding.culprit = Some(culprit(&holder, stuck));
    Some(held(finding, &holder))
}

fn s_if(singular: bool) -> &'static str {
    if singular { "s" } else { "" }
}

fn culprit(holder: &Holder, stuck: &Stuck) -> Culprit {
    Culprit {
        component: Component::Helper,
        pid: lives(holder).then_some(holder.pid),
        container: stuck.container.clone(),
        words: format!("{}: it {} the lock", name(holder), if lives(holder) { "holds" } else { "took" }),
    }
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let (words, waiting) = plugin(stuck)?;
    let syscall = in_syscall(&stuck.parks, &LOCKS)?.syscall.as_ref()?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let whose = match &syscall.lock_holder {
        None => "another process holds".to_owned(),
        Some(holder) if lives(holder) => format!("{} holds", name(holder)),
        Some(holder) => format!("{} took but no longer seems to hold", name(holder)),
    };
    let headline = format!("{words}{pod} waits for a file lock that {whose}");
    let mut finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let Some(holder) = &syscall.lock_holder else {
        let finding = finding.doubted("the lock holder was not seen");
        return Some(finding.advise([format!(
            "`grep {waiting} /proc/locks`: the line with the same number without an arrow is the holder's"
        )]));
    };
    finding.victims.insert(0, format!("{words} (pid {waiting}){pod}"));
    finding.culprit = Some(culprit(holder, stuck));
    Some(if lives(holder) { held(finding, holder) } else { left(finding, holder, syscall) })
}

/// The process that took the lock has it.
fn held(finding: Finding, holder: &Holder) -> Finding {
    let seen = Evidence::new(Source::Census, format!("the lock is held by {} (/proc/locks)", name(holder)));
    finding.seen(seen).advise([
        format!("`kill {}`: the waiters continue at once", holder.pid),
        "check what it is doing first: `plegtrace -v`, or its log".to_owned(),
    ])
}

/// A lock lives on in whoever got the open file from the process that took it, whose number may mean another one by now.
fn left(finding: Finding, holder: &Holder, syscall: &SyscallFact) -> Finding {
    let seen =
        format!("the lock was taken by {}, which no longer seems to hold it (/proc/locks)", name(holder));
    let file = match syscall.fd.as_ref().map(|fd| &fd.target) {
        Some(FdTarget::File { path }) => format!(": {}", cut(path, LONG)),
        _ => String::new(),
    };
    finding.seen(Evidence::new(Source::Census, seen)).doubted("the current lock holder was not seen").advise(
        [
            format!("find who has the lock file open (fuser -v FILE, or lslocks){file}"),
            "end that process: the waiters continue at once".to_owned(),
        ],
    )
}

/// Holders that have ended have no name.
fn lives(holder: &Holder) -> bool {
    !holder.comm.is_empty()
}

fn name(holder: &Holder) -> String {
    if lives(holder) {
        format!("{} {}", cut(&holder.comm, 20), holder.pid)
    } else {
        format!("process {}", holder.pid)
    }
}
