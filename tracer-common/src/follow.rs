//! What a fork and an exec make of a watched process: the one rule that tells runc, its init, its hooks and the workload
//! apart. Decided in the kernel, tested on the host.

use crate::{
    key::Watched,
    rec::{PROCESS_AGAIN, PROCESS_CRUN, PROCESS_EXECED, PROCESS_FOR_CONTAINER, PROCESS_INIT},
    role::{Role, starts},
};

/// What a process became by `execve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its role from now on.
    pub role: Role,
    /// `PROCESS_*` bits.
    pub flags: u32,
}

/// Where a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Where the node's components do, as far as the kernel tells.
    Node,
    /// It has other mounts than who has made it.
    OwnMounts,
    /// In another pid namespace than the node's components.
    OwnPids,
}

/// Entry for a child of a watched process, born at `now_ns`; its program is still its creator's.
#[inline(always)]
#[must_use]
pub fn after_fork(creator: &Watched, parent: u32, now_ns: u64) -> Watched {
    // runc's own forks are still runc (stages of nsexec); any other child is a helper until it says its name by exec.
    let runc = creator.role == Role::Runc as u32;
    let kept = PROCESS_FOR_CONTAINER | if runc { PROCESS_INIT | PROCESS_CRUN } else { 0 };
    let flags = creator.flags & kept | if makes_containers(creator.role) { PROCESS_FOR_CONTAINER } else { 0 };
    Watched {
        role: if runc { Role::Runc } else { Role::Helper } as u32,
        parent_role: creator.role,
        since_ns: if flags & PROCESS_INIT != 0 { creator.since_ns } else { now_ns },
        parent,
        flags,
    }
}

/// Is this the role of one that makes containers, and never networks?
#[inline(always)]
fn makes_containers(role: u32) -> bool {
    const MAKERS: u32 = 1 << Role::Shim as u32 | 1 << Role::Conmon as u32 | 1 << Role::Runc as u32;
    role < 32 && MAKERS >> role & 1 != 0
}

/// May it be a CNI plugin? Those are started by the runtime, by the kubelet (dockershim), or by another plugin; in the environment
/// of a container `CNI_COMMAND` is a variable like any other.
#[inline(always)]
#[must_use]
pub fn may_be_cni(watched: &Watched) -> bool {
    watched.role == Role::Helper as u32 && watched.flags & PROCESS_FOR_CONTAINER == 0
}

/// What a watched process is after an exec. `comm` is its new name; `says_init`: its only argument is `init`; `home`: where it lives.
///
/// The children of a workload are the container's own business, so everything that `runc init` executes is the
/// workload, whatever it calls itself; only runc's own second start (nsexec clones its binary before it forks) is not. Runtimes
/// whose names mean nothing here (youki, sysbox-runc, runsc) are helpers, and what they execute inside of a container is the workload.
/// A container that shares the node's pid namespace (`hostPID`) has mounts of its own; so has runc when a wrapper gives it some.
#[inline(always)]
#[must_use]
pub fn after_exec(old: &Watched, comm: &[u8; 16], says_init: bool, home: Home) -> Next {
    let named = Role::of_comm(comm);
    let inside = match home {
        Home::Node => false,
        Home::OwnMounts => old.flags & PROCESS_FOR_CONTAINER != 0 && named as u32 == 0,
        Home::OwnPids => true,
    };
    let next = if inside && old.role == Role::Helper as u32 {
        Next { role: Role::Workload, flags: PROCESS_EXECED }
    } else {
        by_name(old, comm, named, says_init)
    };
    let keeps = matches!(next.role, Role::Runc | Role::Helper | Role::Workload);
    let kept = if keeps { old.flags & PROCESS_FOR_CONTAINER } else { 0 };
    Next { flags: next.flags | kept, ..next }
}

#[inline(always)]
fn by_name(old: &Watched, comm: &[u8; 16], named: Role, says_init: bool) -> Next {
    let runc = old.role == Role::Runc as u32;
    let executed = old.flags & PROCESS_EXECED != 0;
    let itself = named as u32 == Role::Runc as u32 || (runc && is_reexec(comm));
    let crun = if starts(comm, b"crun\0") { PROCESS_CRUN } else { old.flags & PROCESS_CRUN };
    if runc && old.flags & PROCESS_INIT != 0 {
        return if executed && itself && says_init {
            Next { role: Role::Runc, flags: PROCESS_EXECED | PROCESS_INIT | PROCESS_AGAIN }
        } else {
            Next { role: Role::Workload, flags: PROCESS_EXECED }
        };
    }
    if itself {
        let init = if says_init { PROCESS_INIT } else { 0 };
        let again = if runc && executed && !says_init { PROCESS_AGAIN } else { 0 };
        return Next { role: Role::Runc, flags: PROCESS_EXECED | init | again | crun };
    }
    if runc && crun != 0 && !executed {
        return Next { role: Role::Workload, flags: PROCESS_EXECED };
    }
    let unnamed = if runc { Role::Helper } else { Role::from_u32(old.role) };
    Next { role: if named as u32 == 0 { unnamed } else { named }, flags: PROCESS_EXECED }
}

/// runc runs itself again from `/proc/self/exe` (named `exe`), from an open file (named by its number) or from a
/// sealed copy (named `memfd:…`).
#[inline(always)]
fn is_reexec(comm: &[u8; 16]) -> bool {
    starts(comm, b"exe\0") | starts(comm, b"memfd") | comm[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> [u8; 16] {
        let mut out = [0; 16];
        for (to, from) in out.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        out
    }

    fn exec(old: &Watched, name: &str, says_init: bool, now_ns: u64) -> Watched {
        became(old, after_exec(old, &comm(name), says_init, Home::Node), now_ns)
    }

    fn exec_inside(old: &Watched, name: &str) -> Watched {
        became(old, after_exec(old, &comm(name), false, Home::OwnPids), 0)
    }

    fn became(old: &Watched, next: Next, now_ns: u64) -> Watched {
        Watched { role: next.role as u32, flags: next.flags, since_ns: now_ns, ..*old }
    }

    fn role(process: &Watched) -> Role {
        Role::from_u32(process.role)
    }

    /// Flags but for the one that all below a shim have.
    fn flags(process: &Watched) -> u32 {
        assert!(process.flags & PROCESS_FOR_CONTAINER != 0, "{process:?}");
        process.flags & !PROCESS_FOR_CONTAINER
    }

    /// shim → runc → runc init (started twice, from a copy) → its forks → workload; a hook beside it.
    #[test]
    fn the_life_of_a_container() {
        let shim = Watched::found(Role::Shim);
        let born = after_fork(&shim, 1, 5);
        assert_eq!((role(&born), flags(&born), born.since_ns, born.parent_role), (Role::Helper, 0, 5, 6));
        let runc = exec(&born, "runc", false, 6);
        assert_eq!((role(&runc), flags(&runc)), (Role::Runc, PROCESS_EXECED));
        let child = after_fork(&runc, 2, 10);
        assert_eq!((role(&child), flags(&child), child.since_ns), (Role::Runc, 0, 10));
        for name in ["exe", "runc", "6", "memfd:runc_clon"] {
            let init = exec(&child, name, true, 20);
            assert_eq!((role(&init), flags(&init)), (Role::Runc, PROCESS_EXECED | PROCESS_INIT), "{name}");
            let copy = exec(&init, "6", true, 21);
            assert_eq!(flags(&copy), PROCESS_EXECED | PROCESS_INIT | PROCESS_AGAIN);
            let stage = after_fork(&after_fork(&copy, 3, 30), 3, 40);
            assert_eq!((role(&stage), flags(&stage), stage.since_ns), (Role::Runc, PROCESS_INIT, 21));
            assert_eq!(role(&exec(&stage, "sleep", false, 50)), Role::Workload);
        }
        let hook = exec(&child, "nvidia-containe", false, 20);
        assert_eq!((role(&hook), role(&after_fork(&hook, 4, 30))), (Role::Helper, Role::Helper));
    }

    /// A container cannot pass for the runtime by the names of its programs.
    #[test]
    fn workloads_that_play_runtime() {
        let stage = Watched { flags: PROCESS_INIT, ..Watched::found(Role::Runc) };
        for (name, says_init) in [("runc", true), ("containerd", false), ("exe", true), ("6", true)] {
            assert_eq!(role(&exec(&stage, name, says_init, 9)), Role::Workload, "{name}");
        }
        let first = Watched { flags: PROCESS_INIT | PROCESS_EXECED, ..stage };
        assert_eq!(role(&exec(&first, "sleep", true, 9)), Role::Workload);
        assert_eq!(role(&exec(&first, "runc", false, 9)), Role::Workload);
    }

    /// crun becomes the workload without an init.
    #[test]
    fn crun() {
        let conmon = after_fork(&Watched::found(Role::Conmon), 1, 5);
        let crun = exec(&conmon, "crun", false, 6);
        assert_eq!((role(&crun), flags(&crun)), (Role::Runc, PROCESS_EXECED | PROCESS_CRUN));
        let copy = exec(&crun, "6", false, 7);
        assert_eq!(flags(&copy), PROCESS_EXECED | PROCESS_AGAIN | PROCESS_CRUN);
        assert_eq!(role(&exec(&after_fork(&copy, 2, 8), "sleep", false, 9)), Role::Workload);
    }

    /// A runtime whose name says nothing is a helper, with its stages. What it executes in the container is the workload, whatever
    /// its name, and nothing of it is followed.
    #[test]
    fn runtimes_with_other_names() {
        for maker in [Role::Shim, Role::Conmon] {
            let youki = exec(&after_fork(&Watched::found(maker), 1, 5), "youki", false, 6);
            let stage = exec(&after_fork(&youki, 2, 7), "exe", true, 8);
            let init = after_fork(&after_fork(&stage, 3, 9), 3, 10);
            for name in ["sleep", "containerd", "runc", "kubelet"] {
                assert_eq!([&youki, &stage, &init].map(role), [Role::Helper; 3]);
                assert_eq!(role(&exec_inside(&init, name)), Role::Workload, "{name}");
            }
        }
        let mounted = |of: &Watched, name: &str| after_exec(of, &comm(name), false, Home::OwnMounts).role;
        let below = |maker| after_fork(&after_fork(&Watched::found(maker), 1, 5), 2, 6);
        assert_eq!(mounted(&below(Role::Shim), "sleep"), Role::Workload, "in the pid namespace of the node");
        assert_eq!(mounted(&below(Role::Shim), "runc"), Role::Runc, "a wrapper has unshared the mounts");
        assert_eq!(
            mounted(&below(Role::Kubelet), "mount.nfs"),
            Role::Helper,
            "nsenter of a kubelet in a container"
        );
        // A component, and runc up to its init, are what they are, wherever they live.
        assert_eq!(role(&exec_inside(&Watched::found(Role::Containerd), "containerd")), Role::Containerd);
        assert_eq!(role(&exec_inside(&Watched::found(Role::Runc), "6")), Role::Runc);
    }

    /// CNI plugins are started by a runtime, the kubelet, or each other; what a shim has above it may be a container that sets
    /// `CNI_COMMAND`.
    #[test]
    fn who_may_be_a_plugin() {
        let helper = |of: &Watched, name| exec(&after_fork(of, 1, 5), name, false, 6);
        for maker in [Role::Containerd, Role::Crio, Role::Dockerd, Role::Kubelet] {
            let plugin = helper(&Watched::found(maker), "bridge");
            assert!(may_be_cni(&plugin) && may_be_cni(&helper(&plugin, "host-local")), "{maker:?}");
        }
        for maker in [Role::Shim, Role::Conmon, Role::Runc] {
            let runtime = helper(&Watched::found(maker), "youki");
            let deeper = helper(&helper(&runtime, "sh"), "bridge");
            assert!(!may_be_cni(&runtime) && !may_be_cni(&deeper), "{maker:?}");
        }
        let shim = helper(&Watched::found(Role::Containerd), "containerd-shim");
        let served = helper(&shim, "containerd-shim");
        assert_eq!([shim, served].map(|shim| (role(&shim), shim.flags)), [(Role::Shim, PROCESS_EXECED); 2]);
        assert!(!may_be_cni(&shim) && !may_be_cni(&exec_inside(&helper(&served, "youki"), "sh")));
    }

    /// A helper stays one, and takes a name that means something.
    #[test]
    fn helpers() {
        let born = after_fork(&Watched::found(Role::Containerd), 1, 5);
        assert_eq!(role(&exec(&born, "bridge", false, 6)), Role::Helper);
        assert_eq!(role(&exec(&born, "containerd-shim", false, 6)), Role::Shim);
        assert_eq!(role(&exec(&born, "exe", true, 6)), Role::Helper);
    }
}
