//! Read-only constants set by the loader.

use plegtrace_common::settings::{KernelSettings, WireSettings};

/// Written by the loader before the object is loaded; the kernel freezes it, so the verifier knows its values.
#[unsafe(no_mangle)]
static SETTINGS: KernelSettings = KernelSettings {
    use_cookies: 0,
    watch_by_name: 0,
    task_mm: 0,
    mm_exe_file: 0,
    mm_start_code: 0,
    file_inode: 0,
    inode_ino: 0,
    inode_sb: 0,
    sb_dev: 0,
    task_tp: 0,
    task_tgid: 0,
    task_pid: 0,
    task_real_parent: 0,
    task_exit_code: 0,
    task_group_leader: 0,
    task_signal: 0,
    signal_live: 0,
    signal_flags: 0,
    signal_group_exit_code: 0,
    task_nsproxy: 0,
    nsproxy_pid_ns: 0,
    nsproxy_mnt_ns: 0,
    pid_ns_inum: 0,
    node_pid_ns: 0,
    mm_arg_start: 0,
    mm_arg_end: 0,
    mm_env_start: 0,
    mm_env_end: 0,
    park_min_ns: 0,
};

/// The same for the programs of family `wire`.
#[unsafe(no_mangle)]
static WIRE: WireSettings = WireSettings {
    task_files: 0,
    files_fdt: 0,
    fdt_max_fds: 0,
    fdt_fd: 0,
    file_inode: 0,
    file_private: 0,
    inode_mode: 0,
    inode_ino: 0,
    socket_type: 0,
    socket_sock: 0,
    socket_file: 0,
    sock_family: 0,
    sock_socket: 0,
    unix_peer: 0,
    unix_addr: 0,
    address_len: 0,
    address_name: 0,
    sock_peer: 0,
    pid_numbers: 0,
    pid_tasks: 0,
    task_links: 0,
    task_comm: 0,
};

/// One constant of the running kernel: `setting!(task_mm)`.
macro_rules! setting {
    ($field:ident) => {{
        // SAFETY: a field of a static; volatile, because the loader replaces the value after compilation.
        unsafe { core::ptr::read_volatile(&raw const (*$crate::settings::get()).$field) }
    }};
}
pub(crate) use setting;

/// Where the constants are.
#[inline(always)]
pub(crate) fn get() -> *const KernelSettings {
    &raw const SETTINGS
}

/// One constant for the programs of family `wire`: `wire!(unix_peer)`.
macro_rules! wire {
    ($field:ident) => {{
        // SAFETY: as above.
        unsafe { core::ptr::read_volatile(&raw const (*$crate::settings::wire_settings()).$field) }
    }};
}
pub(crate) use wire;

/// Where those are.
#[inline(always)]
pub(crate) fn wire_settings() -> *const WireSettings {
    &raw const WIRE
}
