//! Causes in the kubelet and in the container runtime.

use super::Known;
use crate::diagnose::Area::{Kubelet, Runtime};

pub(super) const KNOWN: &[Known] = &[
    Known {
        id: "K4",
        title: "EventedPLEG loses or repeats events",
        area: Kubelet,
        versions: "Kubernetes 1.26 and later, as far as the feature gate EventedPLEG is on",
        symptoms: &["Evented PLEG: Get cache", "two containers of one name in a pod"],
        look: "GetContainerEvents is open, and lists come every 300 s instead of every second",
        next: "switch the feature gate EventedPLEG off and restart the kubelet",
        sources: &["k8s#121003", "k8s#123087", "k8s#128654"],
    },
    Known {
        id: "K6",
        title: "the kubelet keeps a dead D-Bus connection after the bus was restarted",
        area: Kubelet,
        versions: "fixed by runc 1.1.3, which the kubelet contains (Kubernetes PR 110496)",
        symptoms: &["dbus: connection closed by user", "Failed to update QoS cgroup configuration"],
        look: "new pods never reach RunPodSandbox while relists go on; the bus was restarted after the kubelet",
        next: "restart the kubelet, then upgrade it",
        sources: &["k8s#100328", "bottlerocket#2172"],
    },
    Known {
        id: "R4",
        title: "garbage collection of snapshots holds the snapshotter's lock",
        area: Runtime,
        versions: "all; bounded by containerd PR 13799",
        symptoms: &["create and remove fail with deadline exceeded while the node stays Ready"],
        look: "RunPodSandbox and CreateContainer queue while lists are fine; a proxy snapshotter (stargz, soci) does not answer",
        next: "check the proxy snapshotter and its open files, and restart it",
        sources: &["containerd#11021", "containerd#13798"],
    },
    Known {
        id: "R7",
        title: "the metrics collector and the start of a task wait for each other's lock",
        area: Runtime,
        versions: "containerd 1.6.0 to 1.6.2; fixed in 1.6.3",
        symptoms: &["pods stay in ContainerCreating after metrics were scraped"],
        look: "StartContainer is open, all threads of containerd are idle, and no runc runs",
        next: "upgrade containerd",
        sources: &["containerd#6772"],
    },
    Known {
        id: "R10",
        title: "CRI-O waits for a lock of its own behind a stuck runc kill or a walk through storage",
        area: Runtime,
        versions: "several; one fixed in CRI-O 1.25, one in 1.34",
        symptoms: &["name is reserved", "crictl inspect hangs while crictl ps works"],
        look: "ContainerStatus is open, not the lists; a runc kill in state D, or CRI-O reads overlay directories for minutes",
        next: "restart crio, then upgrade it; collect disk statistics less often",
        sources: &["cri-o#1824", "cri-o#7010", "cri-o PR 9256"],
    },
    Known {
        id: "R13",
        title: "measuring the size of large image layers saturates the disk",
        area: Runtime,
        versions: "kubelets that run du themselves",
        symptoms: &["Killing cmd [ionice -c3 nice -n 19 du -s"],
        look: "du or find as children of the kubelet that wait for the disk, followed by slow commits (R2)",
        next: "take statistics from the CRI, and remove layers with very many files",
        sources: &["k8s#61999", "k8s#42164"],
    },
];
