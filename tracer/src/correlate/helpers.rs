//! When a helper is late: a program that the kubelet or the runtime runs and waits for, and that is no runc, shim, CNI plugin or hook.

use super::thresholds::SECOND_NS;
use crate::input::{Command, Component, ProcessFact};

/// A helper open longer is a stall: mounts, drivers of volumes and set-up of devices need a second or two, also on a busy node. Who
/// waits for it has no deadline, or a longer one: a pod waits 2 min for its volumes (`podAttachAndMountTimeout`, volume_manager.go), a pull
/// 1 min for a credential provider (credentialprovider/plugin/plugin.go).
pub const HELPER_NS: u64 = 30 * SECOND_NS;

/// What a kubelet runs and what may last: it works through a disk, or serves for as long as somebody looks on.
const LONG: [&str; 20] = [
    "blkdiscard",
    "btrfs",
    "cp",
    "cryptsetup",
    "dd",
    "du",
    "e2fsck",
    "find",
    "ionice",
    "journalctl",
    "mke2fs",
    "nice",
    "nsenter",
    "resize2fs",
    "rsync",
    "socat",
    "tar",
    "xfs_growfs",
    "xfs_repair",
    "zfs",
];
/// The beginnings of more such names.
const LONG_KINDS: [&str; 2] = ["mkfs", "fsck"];
/// What a runtime runs and what is brief. Other children of it unpack images, or serve: plugins of NRI, proxies of ports, log drivers.
const BRIEF: [&str; 15] = [
    "apparmor_parser",
    "blkid",
    "dmsetup",
    "ebtables",
    "fusermount",
    "fusermount3",
    "ip",
    "ipset",
    "losetup",
    "modprobe",
    "mount",
    "nft",
    "pinns",
    "sysctl",
    "umount",
];
/// The beginnings of more such names.
const BRIEF_KINDS: [&str; 4] = ["iptables", "ip6tables", "mount.", "umount."];

/// The age from which a helper with one of these names (of its file, or of a script: the kernel's) is late; `None`: never by its age.
#[must_use]
pub fn helper_late_after_ns(names: &[&str], runner: Component) -> Option<u64> {
    let any = |whole: &[&str], kinds: &[&str]| {
        names.iter().any(|name| whole.contains(name) || kinds.iter().any(|kind| name.starts_with(kind)))
    };
    let waited_for = match runner {
        Component::Kubelet => !any(&LONG, &LONG_KINDS),
        runner => runner.role().is_runtime() && any(&BRIEF, &BRIEF_KINDS),
    };
    waited_for.then_some(HELPER_NS)
}

/// The names of a process that is a helper, if it may be one that somebody waits for: a daemon has left the session of its parent.
pub(crate) fn helper_names(fact: &ProcessFact) -> Option<Vec<&str>> {
    if fact.component != Component::Helper || fact.detached {
        return None;
    }
    match &fact.command {
        Some(Command::Other { program }) => Some(vec![program, &fact.comm]),
        Some(_) => None,
        None => Some(vec![&fact.comm]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubelet waits for whatever it runs, but for what is known to last; of a runtime only what is known to be brief is late.
    #[test]
    fn who_waits() {
        let late = |names: &[&str], runner| helper_late_after_ns(names, runner).is_some();
        for (names, kubelet, containerd) in [
            (&["mount"][..], true, true),
            (&["sh", "mount.glusterfs"], true, true),
            (&["bash", "vendor~driver"], true, false),
            (&["busybox", "mkfs.ext2"], false, false),
            (&["mountain"], true, false),
            (&["unpigz"], true, false),
        ] {
            let seen = (late(names, Component::Kubelet), late(names, Component::Containerd));
            assert_eq!(seen, (kubelet, containerd), "{names:?}");
        }
        assert!(!late(&["mount"], Component::Shim) && late(&["pinns"], Component::Crio));
    }
}
