//! [`wire_settings`]: where the running kernel keeps what leads from a file descriptor to both ends of a connection.

use plegtrace_common::settings::WireSettings;

use super::btf::Btf;

type Field = fn(&mut WireSettings) -> &mut u32;

/// Every member that the programs of family `wire` read.
const MEMBERS: &[(&str, Field)] = &[
    ("task_struct.files", |s| &mut s.task_files),
    ("files_struct.fdt", |s| &mut s.files_fdt),
    ("fdtable.max_fds", |s| &mut s.fdt_max_fds),
    ("fdtable.fd", |s| &mut s.fdt_fd),
    ("file.f_inode", |s| &mut s.file_inode),
    ("file.private_data", |s| &mut s.file_private),
    ("inode.i_mode", |s| &mut s.inode_mode),
    ("inode.i_ino", |s| &mut s.inode_ino),
    ("socket.type", |s| &mut s.socket_type),
    ("socket.sk", |s| &mut s.socket_sock),
    ("socket.file", |s| &mut s.socket_file),
    ("sock.__sk_common.skc_family", |s| &mut s.sock_family),
    ("sock.sk_socket", |s| &mut s.sock_socket),
    ("unix_sock.peer", |s| &mut s.unix_peer),
    ("unix_sock.addr", |s| &mut s.unix_addr),
    ("unix_address.len", |s| &mut s.address_len),
    ("unix_address.name", |s| &mut s.address_name),
];

/// What they read of clients that are not traced. A kernel that lacks one of them tells of none.
const OF_CLIENTS: &[(&str, Field)] = &[
    ("sock.sk_peer_pid", |s| &mut s.sock_peer),
    ("pid.numbers", |s| &mut s.pid_numbers),
    ("pid.tasks", |s| &mut s.pid_tasks),
    ("task_struct.pid_links", |s| &mut s.task_links),
    ("task_struct.comm", |s| &mut s.task_comm),
];

/// The offsets of this kernel; the first member that it does not have, otherwise.
pub(super) fn wire_settings(btf: &Btf) -> Result<WireSettings, &'static str> {
    let mut settings = WireSettings::default();
    for (path, field) in MEMBERS {
        *field(&mut settings) = btf.offset_of(path).map_err(|_| *path)?;
    }
    let of_clients: Option<Vec<u32>> = OF_CLIENTS.iter().map(|(path, _)| btf.offset_of(path).ok()).collect();
    for ((_, field), offset) in OF_CLIENTS.iter().zip(of_clients.unwrap_or_default()) {
        *field(&mut settings) = offset;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::target::btf::tests::forged;

    /// Each member has a field of its own, and no field is without one.
    #[test]
    fn each_member_has_its_field() {
        let mut settings = WireSettings::default();
        let fields: BTreeSet<usize> = MEMBERS
            .iter()
            .chain(OF_CLIENTS)
            .map(|(_, field)| std::ptr::from_mut(field(&mut settings)).addr())
            .collect();
        let members = MEMBERS.len() + OF_CLIENTS.len();
        assert_eq!((fields.len(), 4 * members), (members, size_of::<WireSettings>()));
    }

    /// What is missing is named.
    #[test]
    fn a_missing_member_is_named() {
        let refused =
            wire_settings(&forged(&[("task_struct", vec!["files"]), ("files_struct", vec!["moved"])]));
        assert_eq!(refused, Err("files_struct.fdt"));
    }

    /// The running kernel has all of them, wherever it has BTF at all.
    #[test]
    fn running_kernel() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        if !path.exists() {
            eprintln!("SKIP: this kernel has no BTF");
            return;
        }
        let settings = wire_settings(&Btf::load(path).unwrap()).unwrap();
        assert!(settings.unix_peer > settings.sock_socket, "a unix_sock begins with its sock: {settings:?}");
        assert_eq!(settings.address_name % 4, 0);
    }
}
