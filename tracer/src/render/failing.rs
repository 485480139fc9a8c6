//! [`failure`]: what fails every time, in words that are safe to print, and what to do about it.

use super::{
    escape,
    human::{self, duration},
};
use crate::{
    correlate::Snapshot,
    cri::Method,
    diagnose::{FailedProgram, Failing},
    input::RuntimeCondition,
};

/// The conditions that the CRI requires (`RuntimeReady`, `NetworkReady` in api.proto).
const NETWORK: &str = "NetworkReady";

/// So many digits of an id tell it from others, as in `crictl ps`.
const ID: usize = 13;

/// So many characters of an error are shown; the rest is in JSON.
const MOST_WORDS: usize = 240;

/// How long a call takes before it fails is worth a word from here on.
const WORTH_NS: u64 = 5_000_000_000;

/// A failure in words.
#[must_use]
pub(super) fn failure(failing: &Failing, snapshot: &Snapshot) -> String {
    match failing {
        Failing::Condition { pid, condition } if condition.missing => {
            let name = escape::text_to(&condition.name, 40);
            format!(
                "the runtime (pid {pid}) does not say whether {name} is true, which the kubelet takes for false"
            )
        }
        Failing::Condition { pid, condition } => {
            let RuntimeCondition { name, reason, message, .. } = condition;
            let why: Vec<String> = [reason, message]
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(|text| escape::text_to(text, 160))
                .collect();
            format!(
                "{} is false, says the runtime (pid {pid}): {}",
                escape::text_to(name, 40),
                why.join(": ")
            )
        }
        Failing::Calls { streak, program, .. } => {
            let (failed, last) = (human::count(streak.failed), duration(snapshot.now.since(streak.last)));
            let since = human::clock(snapshot.wall_ns(streak.since));
            let how = match streak.succeeded {
                true => format!("has failed {failed} times in a row"),
                false => format!("fails every time: {failed} of {failed}"),
            };
            let program = program.as_ref().map(|row| format!("; so does {}", ended(row))).unwrap_or_default();
            let after = match streak.longest_ns {
                ns if ns >= WORTH_NS => format!(", after {} at most", duration(ns)),
                _ => String::new(),
            };
            format!("{} {how} since {since}{after}, the last {last} ago{program}", streak.method.name())
        }
    }
}

/// The last error in the runtime's own words.
#[must_use]
pub(super) fn error(failing: &Failing) -> Option<String> {
    match failing {
        Failing::Calls { error, .. } => error.as_ref().map(|error| words(&error.words)),
        Failing::Condition { .. } => None,
    }
}

/// Words of an error, with the beginnings of ids that nobody reads to their end.
fn words(raw: &str) -> String {
    let mut short = String::new();
    let mut digits = 0;
    for c in raw.chars() {
        digits = if c.is_ascii_hexdigit() { digits + 1 } else { 0 };
        if digits <= ID {
            short.push(c);
        }
    }
    escape::text_to(&short, MOST_WORDS)
}

/// A program that failed as often as it ran.
fn ended(row: &FailedProgram) -> String {
    let count = human::count(row.count);
    format!("{}: {count} of {count}", escape::text_to(&row.kind.to_string(), 60))
}

/// What stops because of it.
#[must_use]
pub(super) fn effect(failing: &Failing) -> &'static str {
    match failing {
        Failing::Condition { condition, .. } if condition.name == NETWORK => {
            "the kubelet reports the node NotReady, and starts no pod that is not on the host's network"
        }
        Failing::Condition { .. } => "the kubelet reports the node NotReady while this lasts",
        Failing::Calls { streak, .. } => match streak.method {
            Method::RunPodSandbox => "no new pod starts",
            Method::CreateContainer | Method::StartContainer => "the container is tried again and again",
            Method::StopPodSandbox | Method::RemovePodSandbox => {
                "pods stay Terminating, and keep their addresses"
            }
            Method::StopContainer | Method::RemoveContainer => "pods stay Terminating",
            Method::PullImage => "pods that need the image wait; with serialized pulls, all others too",
            Method::ExecSync => "probes that run a command fail",
            Method::UpdateContainerResources => "limits of containers stay as they were",
            Method::Status => "the kubelet reports the node NotReady",
            _ => "what the kubelet asks for is not done",
        },
    }
}

/// What to do next.
#[must_use]
pub(super) fn advice(failing: &Failing) -> &'static str {
    match failing {
        Failing::Condition { condition, .. } if condition.name == NETWORK && !condition.missing => {
            "`ls /etc/cni/net.d`: without a file there, the pod of the network plugin has not run on this node; `crictl ps -a` shows it"
        }
        Failing::Condition { .. } => "look at the log of the runtime: `journalctl -u containerd` (or crio)",
        Failing::Calls { streak, .. } => match streak.method {
            Method::RunPodSandbox | Method::StopPodSandbox | Method::RemovePodSandbox => {
                "`journalctl -u kubelet | grep -i sandbox`: the error, in full; then look at the network plugin and its agent"
            }
            Method::PullImage => {
                "`journalctl -u kubelet | grep -i pull`: the error, in full; then try `crictl pull IMAGE` on the node"
            }
            _ => "`journalctl -u kubelet`: the error, in full",
        },
    }
}
