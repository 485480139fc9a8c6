//! Causes in the kernel and in storage.

use super::Known;
use crate::diagnose::Area::Kernel;

pub(super) const KNOWN: &[Known] = &[
    Known {
        id: "X1",
        title: "the kernel loses a wake-up of epoll",
        area: Kernel,
        versions: "Ubuntu 5.4.0-132 to -134 and Amazon Linux 5.4.214 to 5.4.217",
        symptoms: &["strace heals it: any signal does"],
        look: "a thread waits in epoll_wait although bytes lie unread in a socket that it watches",
        next: "install a fixed kernel; until then restart what hangs",
        sources: &["runc#3641", "containerd#7717", "eks-ami#1071"],
    },
    Known {
        id: "X2",
        title: "the disk is throttled, or has used up its burst credit",
        area: Kernel,
        versions: "cloud volumes of a limited rate",
        symptoms: &["many deadline errors at the same time, which end by themselves"],
        look: "latency of one device rises in a step (iostat -x), and the provider's metrics show no credit left",
        next: "give the volume more I/O operations, or move /var/lib/containerd to another",
        sources: &["k8s#42164", "containerd#5325"],
    },
    Known {
        id: "X5",
        title: "writing back dirty data keeps a kernel thread on the CPU for seconds",
        area: Kernel,
        versions: "Amazon Linux 4.14; cgroup writeback in 6.6",
        symptoms: &["watchdog: BUG: soft lockup"],
        look: "a kworker flush uses all of a CPU while everything else is late",
        next: "install another kernel, and write fewer small files",
        sources: &["eks-ami#454", "azurelinux#18443"],
    },
    Known {
        id: "X8",
        title: "many commands at a time queue for the lock of all cgroups",
        area: Kernel,
        versions: "cgroups version 2; better with runc 1.4.0",
        symptoms: &["execs are slow on dense nodes"],
        look: "many tasks wait in cgroup_kn_lock_live or cgroup_attach_lock",
        next: "use fewer exec probes, and upgrade runc",
        sources: &["runc#4782", "runc#4853"],
    },
    Known {
        id: "X10",
        title: "memory cgroups that are gone but not freed make reading statistics slow",
        area: Kernel,
        versions: "Linux 3.10 to 4.x, systemd before 232",
        symptoms: &["the kubelet uses more CPU every day, most with CronJobs"],
        look: "the second number of /proc/cgroups for memory is far above the number of directories",
        next: "`echo 2 > /proc/sys/vm/drop_caches` helps for a while; install a newer kernel",
        sources: &["k8s#64137", "moby#29638"],
    },
];
