//! File descriptor → both ends of a connection between AF_UNIX stream sockets, and which of them speak ttrpc or D-Bus.

use plegtrace_common::{
    reason::Reason,
    role::Role,
    wire::{request::COMM, state::Ends},
};

use crate::{settings::wire, task};

/// `S_IFMT` and `S_IFSOCK` (include/uapi/linux/stat.h).
const TYPE: u16 = 0o170_000;
const SOCKET: u16 = 0o140_000;
/// `SOCK_STREAM` (include/linux/net.h) and `AF_UNIX` (include/linux/socket.h).
const STREAM: u16 = 1;
const UNIX: u16 = 1;
/// `sun_path` in `struct sockaddr_un`.
const PATH: u32 = 2;

/// Whose programs speak ttrpc.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TtrpcSide {
    Runtime,
    Shim,
}

impl TtrpcSide {
    #[inline(always)]
    pub(crate) fn of(role: u32) -> Option<Self> {
        if role == Role::Containerd as u32 {
            Some(Self::Runtime)
        } else if role == Role::Shim as u32 {
            Some(Self::Shim)
        } else {
            None
        }
    }
}

/// The connection behind a descriptor of the current process; `None` when it is not one of AF_UNIX stream sockets.
#[inline(always)]
pub(crate) fn of_fd(fd: u32) -> Result<Option<Ends>, Reason> {
    let files: u64 = task::kernel(task::current(), wire!(task_files))?;
    let table: u64 = task::kernel(files, wire!(files_fdt))?;
    if fd >= task::kernel::<u32>(table, wire!(fdt_max_fds))? {
        return Ok(None);
    }
    let array: u64 = task::kernel(table, wire!(fdt_fd))?;
    let file: u64 = task::kernel(array.wrapping_add(8 * u64::from(fd)), 0)?;
    if file == 0 {
        return Ok(None);
    }
    let inode: u64 = task::kernel(file, wire!(file_inode))?;
    if task::kernel::<u16>(inode, wire!(inode_mode))? & TYPE != SOCKET {
        return Ok(None);
    }
    let socket: u64 = task::kernel(file, wire!(file_private))?;
    let number: u64 = task::kernel(inode, wire!(inode_ino))?;
    stream(socket, || Ok(number))
}

/// The connection of this `struct socket` of the current process; as [`of_fd`].
#[inline(always)]
pub(crate) fn of(socket: u64) -> Result<Option<Ends>, Reason> {
    stream(socket, || {
        let file: u64 = task::kernel(socket, wire!(socket_file))?;
        let inode: u64 = task::kernel(file, wire!(file_inode))?;
        task::kernel(inode, wire!(inode_ino))
    })
}

/// Both ends, if it is an AF_UNIX stream socket that is connected. `number` gives its inode number.
#[inline(always)]
fn stream(socket: u64, number: impl FnOnce() -> Result<u64, Reason>) -> Result<Option<Ends>, Reason> {
    let sock: u64 = task::kernel(socket, wire!(socket_sock))?;
    if sock == 0
        || task::kernel::<u16>(sock, wire!(sock_family))? != UNIX
        || task::kernel::<u16>(socket, wire!(socket_type))? != STREAM
    {
        return Ok(None);
    }
    let peer: u64 = task::kernel(sock, wire!(unix_peer))?;
    if peer == 0 {
        return Ok(None);
    }
    Ok(Some(Ends { sock, peer, socket: number()?, peer_socket: 0 }))
}

/// Inode number of a socket; 0 of one that nobody has accepted, or that is closed.
#[inline(always)]
pub(crate) fn number(sock: u64) -> Result<u64, Reason> {
    let socket: u64 = task::kernel(sock, wire!(sock_socket))?;
    if socket == 0 {
        return Ok(0);
    }
    let file: u64 = task::kernel(socket, wire!(socket_file))?;
    if file == 0 {
        return Ok(0);
    }
    let inode: u64 = task::kernel(file, wire!(file_inode))?;
    task::kernel(inode, wire!(inode_ino))
}

/// Is it a connection between a runtime and a shim? By the path of the end that was listened at, as the kernel keeps it.
#[inline(always)]
pub(crate) fn is_ttrpc(ends: &Ends, side: TtrpcSide) -> Result<bool, Reason> {
    let (runtime, shim) =
        if side == TtrpcSide::Shim { (ends.peer, ends.sock) } else { (ends.sock, ends.peer) };
    Ok(is_of_shim(shim)? || is_of_runtime(runtime)?)
}

/// `/run/containerd/s/…`: where every shim listens (`pkg/shim/util_unix.go` of containerd).
#[inline(always)]
fn is_of_shim(sock: u64) -> Result<bool, Reason> {
    const FIRST: u64 = u64::from_ne_bytes(*b"/run/con");
    const SECOND: u64 = u64::from_ne_bytes(*b"tainerd/");
    const THIRD: u16 = u16::from_ne_bytes(*b"s/");
    let address: u64 = task::kernel(sock, wire!(unix_addr))?;
    if address == 0 {
        return Ok(false);
    }
    let path = wire!(address_name) + PATH;
    Ok(task::kernel::<u64>(address, path)? == FIRST
        && task::kernel::<u64>(address, path + 8)? == SECOND
        && task::kernel::<u16>(address, path + 16)? == THIRD)
}

/// Where a socket is bound. Whoever listens is told by the end of its path, so that it does not matter whether that begins with
/// `/run`, `/var/run` or the root of a node in a container.
struct Path {
    /// Its `struct unix_address`.
    address: u64,
    /// Bytes of the address: the family, the path, and the zero at its end.
    len: u32,
}

impl Path {
    /// `None` when it is bound nowhere, and when its path is shorter than two words: whoever listens has a longer one.
    #[inline(always)]
    fn of(sock: u64) -> Result<Option<Self>, Reason> {
        let address: u64 = task::kernel(sock, wire!(unix_addr))?;
        if address == 0 {
            return Ok(None);
        }
        let len: u32 = task::kernel(address, wire!(address_len))?;
        Ok((18..=110).contains(&len).then_some(Self { address, len }))
    }

    /// The eight bytes that begin so many before the end.
    #[inline(always)]
    fn word(&self, back: u32) -> Result<u64, Reason> {
        task::kernel(self.address, wire!(address_name) + self.len - back)
    }
}

/// `….ttrpc`: where containerd listens for the events of shims.
#[inline(always)]
fn is_of_runtime(sock: u64) -> Result<bool, Reason> {
    const LAST: u64 = u64::from_ne_bytes(*b"\0.ttrpc\0");
    // All but the byte before.
    const MASK: u64 = u64::from_ne_bytes([0, 255, 255, 255, 255, 255, 255, 255]);
    let Some(path) = Path::of(sock)? else { return Ok(false) };
    Ok(path.word(8)? & MASK == LAST)
}

/// Is the other end one where the system bus or systemd itself listens?
#[inline(always)]
pub(crate) fn is_bus(ends: &Ends) -> Result<bool, Reason> {
    let Some(path) = Path::of(ends.peer)? else { return Ok(false) };
    Ok(listener_at(path.len, |back| path.word(back))?.is_some())
}

/// Who listens for D-Bus.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The system bus.
    Bus,
    /// systemd, at its private socket.
    Systemd,
}

/// The same by an address of this length, which `word` gives eight bytes of that begin so many before its end.
#[inline(always)]
pub(crate) fn listener_at(
    len: u32,
    word: impl Fn(u32) -> Result<u64, Reason>,
) -> Result<Option<Listener>, Reason> {
    const PRIVATE: [u64; 2] = [u64::from_ne_bytes(*b"systemd/"), u64::from_ne_bytes(*b"private\0")];
    const SYSTEM: [u64; 3] = [
        u64::from_ne_bytes(*b"/dbus/sy"),
        u64::from_ne_bytes(*b"stem_bus"),
        u64::from_ne_bytes(*b"_socket\0"),
    ];
    let (first, second) = (word(16)?, word(8)?);
    if second == PRIVATE[1] {
        return Ok((first == PRIVATE[0]).then_some(Listener::Systemd));
    }
    let is_bus = second == SYSTEM[2] && first == SYSTEM[1] && len >= 26 && word(24)? == SYSTEM[0];
    Ok(is_bus.then_some(Listener::Bus))
}

/// Role of whoever listens where this end is bound, if that is where kubelets ask; else 0.
#[inline(always)]
pub(crate) fn runtime_at(sock: u64) -> Result<u32, Reason> {
    const CONTAINERD: [u64; 2] = [u64::from_ne_bytes(*b"containe"), u64::from_ne_bytes(*b"rd.sock\0")];
    const CRI_DOCKERD: u64 = u64::from_ne_bytes(*b"ri-docke");
    const CRIO: [u64; 2] = [u64::from_ne_bytes(*b"\0\0\0\0\0/cr"), u64::from_ne_bytes(*b"io.sock\0")];
    // All but what is before the name of the file.
    const NAME: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 255, 255, 255]);
    let Some(path) = Path::of(sock)? else { return Ok(0) };
    let (first, second) = (path.word(16)?, path.word(8)?);
    let role = if second == CONTAINERD[1] && first == CONTAINERD[0] {
        Role::Containerd
    } else if second == CONTAINERD[1] && first == CRI_DOCKERD {
        Role::CriDockerd
    } else if second == CRIO[1] && first & NAME == CRIO[0] {
        Role::Crio
    } else {
        Role::None
    };
    Ok(role as u32)
}

/// Is this end one where Docker's API is served?
#[inline(always)]
pub(crate) fn is_docker(sock: u64) -> Result<bool, Reason> {
    const NAME: [u64; 2] = [u64::from_ne_bytes(*b"\0\0\0/dock"), u64::from_ne_bytes(*b"er.sock\0")];
    // All but what is before the name of the file.
    const MASK: u64 = u64::from_ne_bytes([0, 0, 0, 255, 255, 255, 255, 255]);
    let Some(path) = Path::of(sock)? else { return Ok(false) };
    Ok(path.word(8)? == NAME[1] && path.word(16)? & MASK == NAME[0])
}

/// A process at one end of a connection, when that was made.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) tgid: u32,
    /// Its `task_struct`; 0 when it has ended.
    task: u64,
}

impl Peer {
    /// Who is at the other end than this one: who has connected to it, if it was accepted, otherwise who began to listen where it has
    /// connected to; `None` when the kernel's structures do not say so.
    ///
    /// `unix_stream_connect` (net/unix/af_unix.c) notes both in the two ends, before anybody accepts.
    #[inline(always)]
    pub(crate) fn of(sock: u64) -> Result<Option<Self>, Reason> {
        // `PIDTYPE_TGID` (include/linux/pid_types.h) of arrays of `struct hlist_head` and `struct hlist_node`.
        const HEAD: u32 = 8;
        const NODE: u32 = 16;
        if wire!(sock_peer) == 0 {
            return Ok(None);
        }
        let pid: u64 = task::kernel(sock, wire!(sock_peer))?;
        if pid == 0 {
            return Ok(None);
        }
        // The first number is that of the outermost namespace.
        let tgid: u32 = task::kernel(pid, wire!(pid_numbers))?;
        let first: u64 = task::kernel(pid, wire!(pid_tasks) + HEAD)?;
        let task = if first == 0 { 0 } else { first.wrapping_sub(u64::from(wire!(task_links) + NODE)) };
        Ok(Some(Self { tgid, task }))
    }

    /// It has not ended.
    #[inline(always)]
    pub(crate) fn is_alive(self) -> bool {
        self.task != 0
    }

    /// Its name; empty when it has ended.
    #[inline(always)]
    pub(crate) fn name(self) -> Result<[u8; COMM], Reason> {
        if self.task == 0 { Ok([0; COMM]) } else { task::kernel(self.task, wire!(task_comm)) }
    }
}
