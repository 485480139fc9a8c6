//! [`KernelOffsets`]: where the running kernel keeps what the eBPF programs read, and which sources it allows.
//!
//! [`MEMBERS`] is the only place that pairs a member of a kernel structure with its field in [`KernelSettings`].

use std::path::Path;

use plegtrace_common::settings::{KernelSettings, NAMES_OF_ROOT, PARK_MIN_NS, WireSettings};

use super::{
    btf::{Btf, BtfError},
    wire_offsets::wire_settings,
};

/// What the members of kernel structures are needed for. What this kernel does not have is missed by that alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Goroutines of programs that keep them in thread-local storage (Go up to 1.16).
    ThreadLocal,
    /// Names for the places where goroutines wait.
    Places,
    /// Sites that are found by executable and address, where there are no cookies.
    Addresses,
    /// Processes: who starts whom, its command line, how it ends.
    Processes,
    /// In which namespaces a process is: is it named like a component, and does it live in a container?
    Names,
}

/// A member of a kernel structure, as `struct.member[.member…]`.
struct Member {
    path: &'static str,
    /// Where other kernels keep it.
    elsewhere: Option<&'static str>,
    needed_for: &'static [Need],
    field: fn(&mut KernelSettings) -> &mut u32,
}

const fn member(
    path: &'static str,
    needed_for: &'static [Need],
    field: fn(&mut KernelSettings) -> &mut u32,
) -> Member {
    Member { path, elsewhere: None, needed_for, field }
}

use Need::{Addresses, Names, Places, Processes, ThreadLocal};

/// Every member that a program reads. A need lacks the first of its members that is missing.
const MEMBERS: &[Member] = &[
    Member {
        // amd64, arm64.
        elsewhere: Some("task_struct.thread.uw.tp_value"),
        ..member("task_struct.thread.fsbase", &[ThreadLocal], |s| &mut s.task_tp)
    },
    member("task_struct.mm", &[Places, Addresses, Processes], |s| &mut s.task_mm),
    member("mm_struct.start_code", &[Places, Addresses], |s| &mut s.mm_start_code),
    member("mm_struct.exe_file", &[Addresses], |s| &mut s.mm_exe_file),
    member("file.f_inode", &[Addresses], |s| &mut s.file_inode),
    member("inode.i_ino", &[Addresses], |s| &mut s.inode_ino),
    member("inode.i_sb", &[Addresses], |s| &mut s.inode_sb),
    member("super_block.s_dev", &[Addresses], |s| &mut s.sb_dev),
    member("task_struct.tgid", &[Processes], |s| &mut s.task_tgid),
    member("task_struct.pid", &[Processes], |s| &mut s.task_pid),
    member("task_struct.real_parent", &[Processes], |s| &mut s.task_real_parent),
    member("task_struct.exit_code", &[Processes], |s| &mut s.task_exit_code),
    member("task_struct.group_leader", &[Processes], |s| &mut s.task_group_leader),
    member("task_struct.signal", &[Processes], |s| &mut s.task_signal),
    member("signal_struct.live", &[Processes], |s| &mut s.signal_live),
    member("signal_struct.flags", &[Processes], |s| &mut s.signal_flags),
    member("signal_struct.group_exit_code", &[Processes], |s| &mut s.signal_group_exit_code),
    member("mm_struct.arg_start", &[Processes], |s| &mut s.mm_arg_start),
    member("mm_struct.arg_end", &[Processes], |s| &mut s.mm_arg_end),
    member("mm_struct.env_start", &[Processes], |s| &mut s.mm_env_start),
    member("mm_struct.env_end", &[Processes], |s| &mut s.mm_env_end),
    member("task_struct.nsproxy", &[Names], |s| &mut s.task_nsproxy),
    member("nsproxy.pid_ns_for_children", &[Names], |s| &mut s.nsproxy_pid_ns),
    member("nsproxy.mnt_ns", &[Names], |s| &mut s.nsproxy_mnt_ns),
    member("pid_namespace.ns.inum", &[Names], |s| &mut s.pid_ns_inum),
];

/// Where the running kernel keeps what the eBPF programs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelOffsets {
    /// Members that this kernel does not have.
    missing: Vec<&'static str>,
    /// Offsets in bytes, 0 for what is missing; nothing else is set.
    offsets: KernelSettings,
    /// Those of family `wire`, or the member that is missing.
    wire: Result<WireSettings, &'static str>,
    preemption: Option<[u32; 2]>,
    socket_functions: Option<[u32; 3]>,
}

impl KernelOffsets {
    /// Resolves them from the kernel whose BTF is below `root` (`/` for the running one). What is missing is no error, see
    /// [`Self::lacks`].
    ///
    /// # Errors
    /// When there is no BTF.
    pub fn load(root: &Path) -> Result<Self, BtfError> {
        Ok(Self::from_btf(&Btf::load(&root.join("sys/kernel/btf/vmlinux"))?))
    }

    /// Resolves them from parsed type information.
    #[must_use]
    pub fn from_btf(btf: &Btf) -> Self {
        let (mut missing, mut offsets) = (Vec::new(), KernelSettings::default());
        for Member { path, elsewhere, field, .. } in MEMBERS {
            let found =
                [Some(*path), *elsewhere].into_iter().flatten().find_map(|path| btf.offset_of(path).ok());
            match found {
                Some(offset) => *field(&mut offsets) = offset,
                None => missing.push(*path),
            }
        }
        let [off, on] = ["bpf_preempt_disable", "bpf_preempt_enable"].map(|name| btf.function(name));
        let [send, receive, connect] = ["unix_stream_sendmsg", "unix_stream_recvmsg", "unix_stream_connect"]
            .map(|name| btf.function(name));
        Self {
            missing,
            offsets,
            wire: wire_settings(btf),
            preemption: off.zip(on).map(|(off, on)| [off, on]),
            socket_functions: send
                .zip(receive)
                .zip(connect)
                .map(|((send, receive), connect)| [send, receive, connect]),
        }
    }

    /// Members that this kernel does not have.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Why this kernel does not allow what is asked; `None` when it does.
    #[must_use]
    pub fn lacks(&self, need: Need) -> Option<BtfError> {
        let mut members = MEMBERS.iter().filter(|member| member.needed_for.contains(&need));
        let missing = members.find(|member| self.missing.contains(&member.path));
        missing.map(|member| BtfError::Missing(member.path))
    }

    /// Ids of the functions that send, receive and connect for AF_UNIX stream sockets.
    #[must_use]
    pub fn socket_functions(&self) -> Option<[u32; 3]> {
        self.socket_functions
    }

    /// Ids of the functions with which a program switches preemption off and on; `None` before Linux 6.10.
    #[must_use]
    pub fn preemption(&self) -> Option<[u32; 2]> {
        self.preemption
    }

    /// The settings for the source `wire`.
    ///
    /// # Errors
    /// This kernel lacks a member that it needs.
    pub fn wire(&self) -> Result<WireSettings, BtfError> {
        self.wire.map_err(BtfError::Missing)
    }

    /// The settings for these offsets; `use_cookies` is the loader's. With `watch_by_name` processes of root's
    /// named like a component are watched from their exec on, in whichever pid namespace: the caller may name one, or let any user's be
    /// watched. Where a kernel does
    /// not tell namespaces apart, nobody is.
    #[must_use]
    pub fn settings(&self, watch_by_name: bool) -> KernelSettings {
        KernelSettings {
            watch_by_name: if watch_by_name && self.lacks(Names).is_none() { NAMES_OF_ROOT } else { 0 },
            park_min_ns: PARK_MIN_NS,
            ..self.offsets
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::btf::tests::forged;

    const ALL: [Need; 5] = [ThreadLocal, Places, Addresses, Processes, Names];

    /// A kernel that has everything but one member.
    fn without(missing: &str) -> Btf {
        let structures = [
            ("inner", vec!["fsbase", "inum"]),
            (
                "task_struct",
                "mm thread:inner tgid pid real_parent exit_code group_leader signal nsproxy"
                    .split(' ')
                    .collect(),
            ),
            ("signal_struct", vec!["live", "flags", "group_exit_code"]),
            ("nsproxy", vec!["count", "mnt_ns", "pid_ns_for_children"]),
            ("pid_namespace", vec!["ns:inner"]),
            ("mm_struct", "exe_file start_code arg_start arg_end env_start env_end".split(' ').collect()),
            ("file", vec!["other", "f_inode"]),
            ("inode", vec!["i_ino", "i_sb"]),
            ("super_block", vec!["s_dev"]),
        ];
        let (of, gone) = missing.split_once('.').unwrap_or_default();
        let renamed = |(name, members): (&'static str, Vec<&'static str>)| {
            let other = |member| if name == of && member == gone { "moved" } else { member };
            (name, members.into_iter().map(other).collect::<Vec<_>>())
        };
        forged(&structures.map(renamed))
    }

    /// A member that is missing disables what needs it, by name, and nothing else.
    #[test]
    fn what_is_missing_is_missed_alone() {
        let missed = |member: &'static str| {
            let offsets = KernelOffsets::from_btf(&without(member));
            let of = |need: &Need| match offsets.lacks(*need) {
                Some(BtfError::Missing(name)) => name == member,
                _ => false,
            };
            let lacking = ALL.iter().filter(|need| offsets.lacks(**need).is_some()).count();
            let named: Vec<Need> = ALL.into_iter().filter(|need| of(need)).collect();
            assert_eq!(lacking, named.len(), "{member} is what they name");
            named
        };
        assert_eq!(missed(""), []);
        assert_eq!(missed("inode.i_ino"), [Need::Addresses]);
        assert_eq!(missed("signal_struct.live"), [Need::Processes]);
        assert_eq!(missed("mm_struct.env_end"), [Need::Processes]);
        assert_eq!(missed("nsproxy.pid_ns_for_children"), [Need::Names]);
        assert_eq!(missed("mm_struct.start_code"), [Need::Places, Need::Addresses]);
        assert_eq!(missed("task_struct.mm"), [Need::Places, Need::Addresses, Need::Processes]);
        assert_eq!(KernelOffsets::from_btf(&without("inode.i_ino")).offsets.file_inode, 8);
        let no_thread = KernelOffsets::from_btf(&without("task_struct.thread:inner"));
        assert_eq!((no_thread.offsets.task_tp, no_thread.missing), (0, vec!["task_struct.thread.fsbase"]));
    }

    /// The running kernel has all of them, wherever it has BTF at all.
    #[test]
    fn running_kernel() {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            eprintln!("SKIP: this kernel has no BTF");
            return;
        }
        let offsets = KernelOffsets::load(Path::new("/")).unwrap();
        assert_eq!(offsets.missing, [""; 0]);
        assert!(offsets.offsets.task_pid + 4 == offsets.offsets.task_tgid, "{offsets:?}");
        assert!(offsets.offsets.task_tp > offsets.offsets.task_nsproxy, "{offsets:?}");
    }

    /// Each member has a field of its own: no two write the same one.
    #[test]
    fn each_member_has_its_field() {
        let mut settings = KernelSettings::default();
        let fields: std::collections::BTreeSet<usize> =
            MEMBERS.iter().map(|member| std::ptr::from_mut((member.field)(&mut settings)).addr()).collect();
        assert_eq!(fields.len(), MEMBERS.len());
    }
}
