//! [`KernelOffsets`] → [`KernelSettings`]: what the eBPF programs are told of the kernel they run on.

use plegtrace_common::settings::{KernelSettings, PARK_MIN_NS};

use super::btf::{KernelOffsets, Need};

impl KernelOffsets {
    /// The settings for these offsets; `use_cookies` is the loader's. With `watch_by_name` processes named like a
    /// component are watched from their exec on, in whichever pid namespace: the caller may name one. Where a kernel does not tell namespaces apart, nobody is.
    #[must_use]
    pub fn settings(&self, watch_by_name: bool) -> KernelSettings {
        KernelSettings {
            use_cookies: 0,
            watch_by_name: u32::from(watch_by_name && self.lacks(Need::Names).is_none()),
            task_mm: self.task_mm,
            mm_exe_file: self.mm_exe_file,
            mm_start_code: self.mm_start_code,
            file_inode: self.file_inode,
            inode_ino: self.inode_ino,
            inode_sb: self.inode_sb,
            sb_dev: self.sb_dev,
            task_tp: self.task_tp,
            task_tgid: self.task_tgid,
            task_pid: self.task_pid,
            task_real_parent: self.task_real_parent,
            task_exit_code: self.task_exit_code,
            task_group_leader: self.task_group_leader,
            task_signal: self.task_signal,
            signal_live: self.signal_live,
            signal_flags: self.signal_flags,
            signal_group_exit_code: self.signal_group_exit_code,
            task_nsproxy: self.task_nsproxy,
            nsproxy_pid_ns: self.nsproxy_pid_ns,
            pid_ns_inum: self.pid_ns_inum,
            node_pid_ns: 0,
            mm_arg_start: self.mm_arg_start,
            mm_arg_end: self.mm_arg_end,
            mm_env_start: self.mm_env_start,
            mm_env_end: self.mm_env_end,
            park_min_ns: PARK_MIN_NS,
        }
    }
}
