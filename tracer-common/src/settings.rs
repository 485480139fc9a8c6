//! [`KernelSettings`] and [`WireSettings`]: what the programs must know about the running kernel, set once before they
//! are loaded.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`KernelSettings::park_min_ns`] unless told otherwise: longer than a fast request, shorter than what matters.
pub const PARK_MIN_NS: u32 = 200_000;

/// [`KernelSettings::watch_by_name`]: of root in the first user namespace.
pub const NAMES_OF_ROOT: u32 = 1;
/// [`KernelSettings::watch_by_name`]: of any user.
pub const NAMES_OF_ALL: u32 = 2;

/// Read-only constants of the eBPF object (global `SETTINGS`). Offsets are bytes, resolved from the kernel's BTF.
///
/// Rust's eBPF target has no CO-RE, so offsets come as data; the verifier sees them as constants and removes the
/// branches that do not apply (needed on 5.10, where `bpf_get_attach_cookie` does not exist).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KernelSettings {
    /// 1: sites are found by cookie; 0: by executable inode and address.
    pub use_cookies: u32,
    /// Whose processes named like a component are watched from their exec on: [`NAMES_OF_ROOT`], [`NAMES_OF_ALL`]; 0: nobody's.
    pub watch_by_name: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `mm_struct.exe_file`.
    pub mm_exe_file: u32,
    /// `mm_struct.start_code`.
    pub mm_start_code: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `inode.i_ino`.
    pub inode_ino: u32,
    /// `inode.i_sb`.
    pub inode_sb: u32,
    /// `super_block.s_dev`.
    pub sb_dev: u32,
    /// Thread pointer in `task_struct`: amd64 `thread.fsbase`, arm64 `thread.uw.tp_value`; 0 when not known.
    pub task_tp: u32,
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.pid`.
    pub task_pid: u32,
    /// `task_struct.real_parent`.
    pub task_real_parent: u32,
    /// `task_struct.exit_code`.
    pub task_exit_code: u32,
    /// `task_struct.group_leader`.
    pub task_group_leader: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.live`: threads that have not begun to exit.
    pub signal_live: u32,
    /// `signal_struct.flags`.
    pub signal_flags: u32,
    /// `signal_struct.group_exit_code`.
    pub signal_group_exit_code: u32,
    /// `task_struct.nsproxy`.
    pub task_nsproxy: u32,
    /// `nsproxy.pid_ns_for_children`.
    pub nsproxy_pid_ns: u32,
    /// `nsproxy.mnt_ns`.
    pub nsproxy_mnt_ns: u32,
    /// `pid_namespace.ns.inum`.
    pub pid_ns_inum: u32,
    /// Inode number of the pid namespace of the node's components: in others none is watched for its name. 0: in all.
    pub node_pid_ns: u32,
    /// `mm_struct.arg_start`.
    pub mm_arg_start: u32,
    /// `mm_struct.arg_end`.
    pub mm_arg_end: u32,
    /// `mm_struct.env_start`.
    pub mm_env_start: u32,
    /// `mm_struct.env_end`.
    pub mm_env_end: u32,
    /// Shortest park that is worth a record of its own, nanoseconds; shorter ones are only added up.
    pub park_min_ns: u32,
}

/// Read-only constants for the programs of family `wire` (global `WIRE`): offsets of members in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WireSettings {
    /// `task_struct.files`.
    pub task_files: u32,
    /// `files_struct.fdt`.
    pub files_fdt: u32,
    /// `fdtable.max_fds`.
    pub fdt_max_fds: u32,
    /// `fdtable.fd`.
    pub fdt_fd: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `file.private_data`.
    pub file_private: u32,
    /// `inode.i_mode`.
    pub inode_mode: u32,
    /// `inode.i_ino`.
    pub inode_ino: u32,
    /// `socket.type`.
    pub socket_type: u32,
    /// `socket.sk`.
    pub socket_sock: u32,
    /// `socket.file`.
    pub socket_file: u32,
    /// `sock.__sk_common.skc_family`.
    pub sock_family: u32,
    /// `sock.sk_socket`.
    pub sock_socket: u32,
    /// `unix_sock.peer`.
    pub unix_peer: u32,
    /// `unix_sock.addr`.
    pub unix_addr: u32,
    /// `unix_address.len`.
    pub address_len: u32,
    /// `unix_address.name`.
    pub address_name: u32,
    /// `sock.sk_peer_pid`; 0, as what follows, where the kernel lacks one of them: then nothing is known of other clients.
    pub sock_peer: u32,
    /// `pid.numbers`.
    pub pid_numbers: u32,
    /// `pid.tasks`.
    pub pid_tasks: u32,
    /// `task_struct.pid_links`.
    pub task_links: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
}
