//! Causes in what runtimes wait for: systemd and D-Bus.

use super::Known;
use crate::diagnose::Area::Bus;

pub(super) const KNOWN: &[Known] = &[
    Known {
        id: "D6",
        title: "a queue of the bus is full, because its receiver does not read",
        area: Bus,
        versions: "all",
        symptoms: &["Rejected: destination has a full message queue", "No buffer space available"],
        look: "calls to systemd fail at once, and PID 1 does not read from the bus: a late stage of D1 or D2",
        next: "treat it as D1 or D2: look at what PID 1 does",
        sources: &["systemd-rhel#266", "k8s#94913"],
    },
    Known {
        id: "D7",
        title: "a burst of runc processes overflows the queue of new connections to the bus",
        area: Bus,
        versions: "systemd before 254, with Linux before 5.4; runc 1.4.0 tries again",
        symptoms: &["dbus connection failed, EAGAIN"],
        look: "creating sandboxes fails at once and only in bursts",
        next: "raise net.core.somaxconn, and upgrade runc",
        sources: &["opencontainers/cgroups PR 45", "cri-o PR 4921"],
    },
    Known {
        id: "D10",
        title: "too many units, or reloads one after the other, keep PID 1 busy",
        area: Bus,
        versions: "",
        symptoms: &["Failed to reload daemon: No buffer space available"],
        look: "systemctl list-units --all counts many thousands, or the journal shows reload after reload",
        next: "remove what left the units behind, and stop the tool that reloads",
        sources: &["k8s#57345", "systemd#3241"],
    },
    Known {
        id: "D11",
        title: "a library of CRI-O holds its job lock while nobody reads from a job's channel",
        area: Bus,
        versions: "CRI-O before 1.25",
        symptoms: &["moving conmon to its cgroup hangs"],
        look: "crio sends no more jobs to systemd, although systemd is well",
        next: "restart crio, then upgrade it",
        sources: &["cri-o PR 5922"],
    },
];
