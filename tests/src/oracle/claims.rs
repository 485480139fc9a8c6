//! What a verdict claims, against what the records say.

use plegtrace::{
    correlate::Snapshot,
    decode::{CallResult, MonoNs},
    diagnose::{Culprit, Diagnosis, Reason, Severity, Verdict},
    input::{Command, Component, Layer, ProcessFact},
    render::text::{self, TextOptions},
};

use super::Oracle;
use crate::story::S;

/// Methods that ask about one thing by its id. That it is gone is an answer.
const LOOKS: [&str; 5] =
    ["ContainerStatus", "PodSandboxStatus", "ImageStatus", "ContainerStats", "PodSandboxStats"];
/// Methods by which the kubelet ends a container or sandbox, of which it also makes some for those that are gone by then, within so long.
const ENDS: [&str; 4] = ["StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"];
const TOGETHER_NS: u64 = 10 * S;
/// Words for a container that is not there.
const NOT_THERE: [&str; 4] =
    ["try to find container", "try to find sandbox", "ID does not exist", "No such container"];
/// So many failures in a row, without a success, are every time.
const MANY: usize = 3;
/// What failed last before that may be over: the kubelet waits no longer between two tries (`MaxContainerBackOff`).
const OVER_NS: u64 = 5 * 60 * S;
/// No short command takes so long: several times what the slowest of them is given.
const LATE_NS: u64 = 30 * S;
/// Nor does a plugin: the kubelet has given up its pod by then (twice `--runtime-request-timeout`).
const PLUGIN_LATE_NS: u64 = 240 * S;
/// Commands of runc that end by themselves.
const SHORT: [&str; 8] = ["create", "start", "kill", "delete", "update", "pause", "resume", "state"];
/// Layers on which CRI calls are seen.
const CALLS: [Layer; 3] = [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler];

impl Oracle {
    /// What in a diagnosis of this snapshot, which was made of the records so far, they do not bear out.
    ///
    /// # Panics
    ///
    /// The report cannot be written.
    #[must_use]
    pub fn contradictions(&self, snapshot: &Snapshot, diagnosis: &Diagnosis) -> Vec<String> {
        match diagnosis.verdict {
            Verdict::Healthy => {
                let mut text = Vec::new();
                let options = TextOptions::default();
                text::report(snapshot, diagnosis, &options, &mut text).expect("memory takes all");
                let text = String::from_utf8_lossy(&text);
                let now = snapshot.now;
                let all = [self.failing(now), self.not_ready(), self.late(now), self.unseen(&text)];
                all.into_iter().flatten().map(|what| format!("HEALTHY, but {what}")).collect()
            }
            Verdict::Stall => self.accused(diagnosis),
            Verdict::Failing | Verdict::Slow | Verdict::CannotTell => Vec::new(),
        }
    }

    /// Methods that fail every time.
    fn failing(&self, now: MonoNs) -> Vec<String> {
        let by_kubelet = |method: &str| self.calls.contains_key(&(Layer::KubeletCall, method.to_owned()));
        let told = self.calls.iter().filter(|((layer, method), _)| {
            // A handler serves others, too.
            !LOOKS.contains(&method.as_str()) && (*layer == Layer::KubeletCall || !by_kubelet(method))
        });
        let streak = |ends: &[(u64, CallResult)]| {
            let mut ends: Vec<_> = ends.iter().filter(|(at, _)| *at <= now.0).collect();
            ends.sort_by_key(|(at, _)| *at);
            let known = ends.into_iter().rev().filter(|(_, result)| *result != CallResult::Unknown);
            let failed: Vec<u64> =
                known.take_while(|(_, result)| *result == CallResult::Failed).map(|(at, _)| *at).collect();
            let is_now = failed.first().is_some_and(|last| now.0 - last <= OVER_NS);
            (is_now && failed.len() >= MANY).then_some(failed)
        };
        told.filter_map(|((layer, method), ends)| {
            let failed = streak(ends).filter(|failed| !self.were_gone(method, failed))?;
            Some(format!("{method} ({layer:?}) failed {} times in a row", failed.len()))
        })
        .collect()
    }

    /// Were calls of this method, which failed then, the last first, about containers that are not there any more?
    fn were_gone(&self, method: &str, failed: &[u64]) -> bool {
        let (Some(last), Some(first)) = (failed.first(), failed.last()) else { return false };
        let words = self.words.get(method).into_iter().flatten().filter(|(at, _)| at >= first);
        let is_gone = |(_, words): &&(u64, String)| NOT_THERE.iter().any(|part| words.contains(part));
        let (gone, other): (Vec<_>, Vec<_>) = words.partition(is_gone);
        // The words of the first come before its end.
        let explained = gone.len() + usize::from(!gone.is_empty());
        let together = ENDS.contains(&method) && last - first < TOGETHER_NS;
        other.len() < MANY && (together || failed.len().saturating_sub(explained) < MANY)
    }

    /// Conditions of the runtime that do not hold.
    fn not_ready(&self) -> Vec<String> {
        let required = |name: &str| matches!(name, "RuntimeReady" | "NetworkReady");
        let fails = self.conditions.iter().filter(|condition| !condition.holds && required(&condition.name));
        fails.map(|condition| format!("{} is false", condition.name)).collect()
    }

    /// Children of the node that should have ended long ago: by their own records, or by the last look.
    fn late(&self, now: MonoNs) -> Vec<String> {
        let is_late = |command: &Command, age: u64| late_after_ns(command).is_some_and(|limit| age > limit);
        let followed = self.children.iter().filter(|(pid, (since, command))| {
            *since != 0 && is_late(command, now.0.saturating_sub(*since)) && !self.is_foreign(**pid)
        });
        let looked = self.found.values().filter(|process| {
            let age = process.at_ns.saturating_sub(process.started_ns.unwrap_or(u64::MAX));
            let is_child = process.command.as_ref().is_some_and(|command| is_late(command, age));
            is_child && process.state != 'Z' && !self.is_foreign(process.pid)
        });
        let followed = followed.map(|(pid, (_, command))| format!("{command:?} of process {pid} runs on"));
        let looked =
            looked.map(|it: &ProcessFact| format!("{:?} of process {} was found", it.command, it.pid));
        followed.chain(looked).collect()
    }

    /// Sources that it rests on, or names, and does not have.
    fn unseen(&self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut needs = |holds: bool, what: &str| {
            if !holds {
                wrong.push(what.to_owned());
            }
        };
        let kubelets: Vec<u32> = self.of(Component::Kubelet).collect();
        needs(!kubelets.is_empty(), "no kubelet runs");
        needs(self.has_probes(&[Layer::Relist]), "no probe is on relists");
        let calls = self.has_probes(&CALLS) || self.sees_requests && !self.is_refused("wire");
        needs(calls, "no probe is on CRI calls");
        needs(self.open.as_ref().is_some_and(|open| open.complete), "what is open is not known");
        let lists = kubelets.iter().any(|pid| self.relists.contains(pid) || self.has_open(*pid, "Relist"));
        needs(lists, "no list of the kubelet was seen");
        let watched = text.lines().find_map(|line| line.trim_start().strip_prefix("watched  "));
        let watched = watched.unwrap_or_default();
        needs(!watched.is_empty(), "what was watched is not said");
        needs(!watched.contains("CRI calls") || calls, "CRI calls are said to be watched");
        let programs = self.sees_programs && !self.is_refused("processes");
        needs(!watched.contains("runc") || programs, "runc is said to be watched");
        needs(!watched.contains("network plugins") || programs, "plugins are said to be watched");
        needs(!watched.contains("D-Bus") || self.sees_bus, "D-Bus is said to be watched");
        let is_ready = text.contains("\nruntime  ready, it says");
        needs(!is_ready || !self.conditions.is_empty(), "the runtime did not say that it is ready");
        wrong
    }

    /// Who is said to be held up, or to hold others up, and is not of the node.
    fn accused(&self, diagnosis: &Diagnosis) -> Vec<String> {
        let mut wrong = Vec::new();
        for reason in &diagnosis.reasons {
            let pid = match reason {
                Reason::Stuck(stuck) => Some(stuck.what.pid()),
                Reason::CallsOpen { oldest, .. } => Some(oldest.tgid),
                Reason::ProcessesOpen { pid, .. } => Some(*pid),
                Reason::RequestsOpen { asker, .. } => Some(asker.pid),
                Reason::Down { component, .. } if self.of(*component).next().is_some() => {
                    wrong.push(format!("STALL: {component:?} is down, and runs"));
                    None
                }
                _ => None,
            };
            // A container whose cgroup is frozen is one that the node has made, and that it cannot end.
            let is_node =
                |pid: u32| self.named.contains(&pid) && (!self.is_foreign(pid) || self.is_frozen(pid));
            let foreign = pid.filter(|pid| !is_node(*pid));
            wrong.extend(foreign.map(|pid| format!("STALL about process {pid}: {reason:?}")));
            let caller = matches!(reason, Reason::CallsOpen { oldest, .. } if !self.targets.contains_key(&oldest.tgid));
            if caller {
                wrong.push(format!("STALL about a call in a process that is gone: {reason:?}"));
            }
        }
        let stalls = diagnosis.findings.iter().filter(|finding| finding.severity == Severity::Stall);
        for finding in stalls {
            let pid = finding.culprit.as_ref().and_then(|Culprit { pid, .. }| *pid);
            if let Some(pid) = pid.filter(|pid| self.by_hand.contains(pid) || !self.named.contains(pid)) {
                wrong.push(format!("{} accuses process {pid}: {}", finding.rule.id, finding.headline));
            }
        }
        wrong
    }

    /// Is it a person's, or does it belong to a container?
    fn is_foreign(&self, pid: u32) -> bool {
        let mut next = Some(pid);
        for _ in 0..8 {
            let Some(pid) = next else { return false };
            if self.by_hand.contains(&pid) || self.workloads.contains(&pid) {
                return true;
            }
            next = self.found.get(&pid).map(|process| process.parent);
        }
        false
    }

    /// Did the last look find it in a frozen cgroup?
    fn is_frozen(&self, pid: u32) -> bool {
        let seen = self.coming.get(&pid).or_else(|| self.found.get(&pid));
        let freezer = seen.and_then(|process| process.freezer.as_ref());
        freezer.is_some_and(|freezer| freezer.state == "FROZEN") && !self.by_hand.contains(&pid)
    }

    fn of(&self, component: Component) -> impl Iterator<Item = u32> {
        self.targets.iter().filter(move |(_, other)| **other == component).map(|(pid, _)| *pid)
    }

    fn is_refused(&self, source: &str) -> bool {
        self.refused.iter().any(|refused| refused.source == source && refused.what == source)
    }

    /// Are the probes of a hook of one of these layers on, as far as was told?
    fn has_probes(&self, layers: &[Layer]) -> bool {
        let Some(armed) = &self.armed else { return false };
        self.hooks.values().filter(|hook| layers.contains(&hook.layer)).any(|hook| match &armed.hooks {
            Some(on) => on.contains(&hook.index),
            None => {
                let is_off = |what: &str| self.refused.iter().any(|refused| refused.what == what);
                armed.sites > 0 && !is_off(&hook.exe)
            }
        })
    }

    /// Is a call of this operation open in this process?
    fn has_open(&self, pid: u32, operation: &str) -> bool {
        let is_it = |hook: &u32| self.hooks.get(hook).is_some_and(|hook| hook.operation == operation);
        let open = self.open.iter().flat_map(|open| &open.calls);
        open.into_iter().any(|call| call.tgid == pid && is_it(&call.hook))
    }
}

/// The age at which nobody can call it short; `None`: it may last.
fn late_after_ns(command: &Command) -> Option<u64> {
    match command {
        Command::Runc { sub, .. } | Command::Oci { sub, .. } => {
            SHORT.contains(&sub.as_str()).then_some(LATE_NS)
        }
        Command::Cni { .. } => Some(PLUGIN_LATE_NS),
        Command::Shim { action, .. } => action.is_some().then_some(LATE_NS),
        Command::Other { .. } => None,
    }
}
