//! X7: network namespaces wait for one whose removal does not finish.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Page, Proof, Rule,
        kernel_wait::{Wait, findings},
    },
    input::ParkedThreads,
};

pub(super) static RULE: Rule = Rule {
    id: "X7",
    title: "creating a network namespace waits for the removal of another that does not finish",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "Network namespaces are made and removed one after the other, under one lock of the kernel. When the removal of one does not end, because somebody still holds its loopback device, every runc that makes another waits, and with it every new pod.",
        versions: "Linux 3.13 to 4.x; since then there are several locks, and a held device no longer blocks them all",
        symptoms: &[
            "unregister_netdevice: waiting for lo to become free",
            "ContainerCreating for every new pod",
        ],
        evidence: &["runc or another process that does not move, and waits in copy_net_ns"],
        excluded_by: &["it waits there for an RCU grace period (X9)"],
        next: &[
            "`dmesg | grep unregister_netdevice`: which device is waited for",
            "reboot the node: nothing else frees the device",
            "then install a newer kernel",
        ],
        trap: "Do not kill runc: the next one waits at the same place.",
        sources: &["moby#5618", "coreos/bugs#254"],
    },
    examine: |scene| findings(&RULE, &WAIT, scene),
};

const WAIT: Wait = Wait {
    is: ParkedThreads::waits_for_network_namespaces,
    why: "the kernel has not finished removing another network namespace",
    culprit: "the kernel, which has not finished removing another network namespace",
};
