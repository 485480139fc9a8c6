//! [`Word`]: what a verdict means. A verdict is one word; what it claims, and what it does not, has a page like a cause.

use serde::Serialize;

use crate::diagnose::Verdict;

/// A verdict, explained.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Word {
    /// As it is printed.
    pub word: &'static str,
    /// The exit code that goes with it.
    pub exit: u8,
    /// What it means, in a line.
    pub title: &'static str,
    /// What was seen when it is said.
    pub said: &'static [&'static str],
    /// What it does not claim.
    pub not_said: &'static str,
    /// What to do.
    pub next: &'static [&'static str],
}

/// The page of a verdict.
#[must_use]
pub(super) fn of(verdict: Verdict) -> Word {
    match verdict {
        Verdict::Stall => STALL,
        Verdict::Failing => FAILING,
        Verdict::Slow => SLOW,
        Verdict::Healthy => HEALTHY,
        Verdict::CannotTell => CANNOT_TELL,
    }
}

const STALL: Word = Word {
    word: "STALL",
    exit: 1,
    title: "something does not return, and others wait for it",
    said: &[
        "a relist has been open for more than 3 s, or the last list is more than 10 s old",
        "a call, a runc command, a network plugin or a hook has lasted longer than its kind does on any sound node",
        "kubelet or runtime do not run",
    ],
    not_said: "that running containers are affected: most go on.",
    next: &[
        "do what the report says of its cause; plegtrace explain ID has the whole page",
        "save the evidence first: sudo plegtrace record FILE",
    ],
};

const FAILING: Word = Word {
    word: "FAILING",
    exit: 1,
    title: "nothing hangs, but something fails every time, or the runtime says that it is not ready",
    said: &[
        "RuntimeReady or NetworkReady is false in the runtime's answer to Status, with its reason and message",
        "the last calls of one method have all failed: two of RunPodSandbox or StopPodSandbox, three of any other, one that the kubelet gave up after minutes; the last within six minutes",
        "error: what the runtime answered to the last of them (grpc-message), where plegtrace saw it; what is behind the ? of a URL is left out",
    ],
    not_said: "that the error names the cause: it is what the runtime says of it. A call about something that is gone (ContainerStatus, ImageStatus) may fail for ever on a sound node, and does not count.",
    next: &[
        "NetworkReady is false: ls /etc/cni/net.d, and look whether the pod of the network plugin runs (crictl ps -a)",
        "calls fail: the error names what to look at; without one, kubectl describe pod or journalctl -u kubelet has its words",
    ],
};

const SLOW: Word = Word {
    word: "SLOW",
    exit: 1,
    title: "everything ends, but much of it takes longer than on any sound node",
    said: &[
        "most relists, or calls, programs or commands of one kind, took longer than normal in the last minute; the report has both figures",
    ],
    not_said: "that the kubelet reports the node: it does so only when no list succeeds for 3 minutes.",
    next: &["the report says where most of the time goes; sudo plegtrace -o svg draws it"],
};

const HEALTHY: Word = Word {
    word: "HEALTHY",
    exit: 0,
    title: "relists succeed, and nothing that was watched hangs, fails every time or is slow",
    said: &["the line \"watched\" of the report names what was seen, the line \"not\" what was not"],
    not_said: "that the node is Ready, or that every pod starts: volumes, image pulls and the kubelet's other loops are not watched.",
    next: &["NotReady all the same: plegtrace explain L1"],
};

const CANNOT_TELL: Word = Word {
    word: "CANNOT TELL",
    exit: 5,
    title: "what was seen allows no verdict",
    said: &[
        "no relist was seen, records were lost, or processes and goroutines could not be read; the report says which",
    ],
    not_said: "that the node is sick, or that it is not.",
    next: &["sudo plegtrace doctor says what this machine allows", "try again with -d 30"],
};
