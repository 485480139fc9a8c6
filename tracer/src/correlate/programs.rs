//! Plugins and hooks that take their time on sound nodes, and how long that may be. Who waits for them has minutes: `RunPodSandbox` four,
//! `StartContainer` two.

use super::thresholds::{CNI_NS, HOOK_NS, POD_SANDBOX_NS};

/// Network plugins that have a device attached to the node, by the API of a cloud or in hardware, or wait for a lease of DHCP; and those
/// that run such ones. AWS attaches an interface in ten seconds and more.
const ATTACH: [&str; 15] = [
    "accelerated-bridge",
    "aws-cni",
    "azure-vnet",
    "azure-vnet-ipam",
    "dhcp",
    "eni",
    "host-device",
    "ib-sriov",
    "ib-sriov-cni",
    "multus",
    "multus-shim",
    "sriov",
    "terway",
    "vpc-branch-eni",
    "vpc-eni",
];
/// Hooks that start the driver of a device: without its persistence daemon, a second or two for each.
const DEVICES: [&str; 4] = ["nvidia-contain", "nvidia-ctk", "nvidia-cdi-hook", "amd-ctk"];

/// The age from which a network plugin of this name is late.
#[must_use]
pub fn cni_late_after_ns(plugin: &str) -> u64 {
    if ATTACH.contains(&plugin) { POD_SANDBOX_NS } else { CNI_NS }
}

/// The age from which a hook with this program is late. The kernel cuts its name at 15 bytes.
#[must_use]
pub fn hook_late_after_ns(program: &str) -> u64 {
    if DEVICES.iter().any(|start| program.starts_with(start)) { POD_SANDBOX_NS } else { HOOK_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_its_time() {
        assert!(cni_late_after_ns("aws-cni") > cni_late_after_ns("bridge"));
        assert!(hook_late_after_ns("nvidia-containe") > hook_late_after_ns("hook.sh"));
    }
}
