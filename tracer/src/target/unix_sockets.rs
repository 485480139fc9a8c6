//! `/proc/net/unix`: the fallback where the kernel does not answer `sock_diag`. It knows neither queues nor peers.

/// Sockets that are looked at.
const MAX_LINES: usize = 65_536;
/// `__SO_ACCEPTCON`: the socket listens (include/linux/net.h).
const ACCEPTS: u32 = 1 << 16;

/// One unix socket of a kind that has connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixSocket {
    /// Inode number.
    pub inode: u64,
    /// Path; `@` begins an abstract name. Hostile text.
    pub name: Option<String>,
    /// It waits for connections.
    pub listening: bool,
    /// Bytes, or for listeners connections, that wait to be taken; `None` when not known.
    pub unread: Option<u32>,
    /// For listeners: how many connections may wait.
    pub backlog: Option<u32>,
    /// Inode of the other end.
    pub peer: Option<u64>,
    /// For listeners, when asked for: the other ends of connections that wait to be accepted.
    pub pending: Vec<u64>,
}

/// All sockets that stream or keep the order of packets.
#[must_use]
pub fn unix_sockets(text: &str) -> Vec<UnixSocket> {
    text.lines().skip(1).take(MAX_LINES).filter_map(line).collect()
}

/// Does the system bus, or systemd itself, listen here? By the end of the path, as the kernel side does.
#[must_use]
pub fn is_bus_path(path: &str) -> bool {
    path.ends_with("/dbus/system_bus_socket") || path.ends_with("systemd/private")
}

/// "Num: RefCount Protocol Flags Type St Inode Path"; the path may contain spaces.
fn line(line: &str) -> Option<UnixSocket> {
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let kind = u32::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let name =
        fields.next().and_then(|first| line.find(&format!(" {first}")).map(|at| line[at + 1..].to_owned()));
    let connects = matches!(kind, 1 | 5); // SOCK_STREAM, SOCK_SEQPACKET
    connects.then_some(UnixSocket { inode, name, listening: flags & ACCEPTS != 0, ..UnixSocket::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listeners and connections; datagram sockets are left out.
    #[test]
    fn table() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff8f1a: 00000002 00000000 00010000 0001 01 20001 /run/containerd/containerd.sock\n\
            ffff8f1b: 00000003 00000000 00000000 0001 03 20002 @/a b\n\
            ffff8f1c: 00000002 00000000 00000000 0002 01 20003 /run/systemd/notify\n\
            ffff8f1d: 00000003 00000000 00000000 0001 03 20004\nbroken\n";
        let found = unix_sockets(text);
        let seen: Vec<_> = found.iter().map(|s| (s.inode, s.listening, s.name.as_deref())).collect();
        let want = [
            (20001, true, Some("/run/containerd/containerd.sock")),
            (20002, false, Some("@/a b")),
            (20004, false, None),
        ];
        assert_eq!(seen, want);
    }
}
