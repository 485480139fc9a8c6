//! Who holds a socket. A name can be anybody's; a socket on which somebody listens is held by whoever answers there.

use std::{collections::BTreeSet, fs, fs::File, path::Path};

use super::{cmdline, process::read_whole, unix_sockets::unix_sockets};

/// Bytes of a table of sockets; what is longer tells nothing of who does not listen.
const MAX_TABLE: u64 = 4 << 20;
/// Bytes of a table of TCP sockets.
const MAX_PORTS: u64 = 256 << 10;
/// `TCP_LISTEN` (include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// Descriptors of one process that are looked at.
const MAX_DESCRIPTORS: usize = 8192;

/// Does the process hold a socket on which it listens at this path? `None` when that cannot be told.
pub(super) fn listens_at(proc: &Path, pid: u32, path: &Path) -> Option<bool> {
    let dir = proc.join(pid.to_string());
    let table = table(&dir.join("net/unix"))?;
    let at_path = |name: &String| cmdline::socket(name).is_some_and(|bound| is_bound_to(&bound, path));
    let listeners = unix_sockets(&table).into_iter().filter(|socket| socket.listening);
    let inodes = listeners.filter(|socket| socket.name.as_ref().is_some_and(at_path));
    holds_any(&dir, &inodes.map(|socket| socket.inode).collect()).map(|held| !held.is_empty())
}

/// Does this path lead to the name that was bound? The kernel keeps that name, and a link may lead to it.
pub(super) fn is_bound_to(bound: &Path, path: &Path) -> bool {
    bound == path || fs::canonicalize(path).is_ok_and(|real| real == bound)
}

/// A table of `/proc/PID/net`; `None` when it cannot be read, or not whole.
pub(super) fn table(path: &Path) -> Option<String> {
    let bytes = read_whole(File::open(path).ok()?, MAX_TABLE).ok()?;
    ((bytes.len() as u64) < MAX_TABLE).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Which of these sockets the process holds whose directory in `/proc` this is; `None` when its descriptors cannot all be read. The links
/// wait for nothing (proc(5)).
pub(super) fn holds_any(dir: &Path, inodes: &BTreeSet<u64>) -> Option<Vec<u64>> {
    let (mut held, mut looked) = (Vec::new(), 0);
    if inodes.is_empty() {
        return Some(held);
    }
    for entry in fs::read_dir(dir.join("fd")).ok()?.take(MAX_DESCRIPTORS) {
        looked += 1;
        let link = entry.ok().and_then(|entry| fs::read_link(entry.path()).ok());
        held.extend(link.and_then(|link| socket(&link)).filter(|inode| inodes.contains(inode)));
    }
    (!held.is_empty() || looked < MAX_DESCRIPTORS).then_some(held)
}

/// The sockets of root's that listen on one of these ports, by a table as `/proc/net/tcp`: "sl local_address rem_address st tx:rx tr:when
/// retrnsmt uid timeout inode". Those that listen come first, so the rest need not be read.
pub(super) fn listening_ports(path: &Path, ports: &[u16]) -> Vec<(u64, u16)> {
    let Some(bytes) = File::open(path).ok().and_then(|file| read_whole(file, MAX_PORTS).ok()) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    text.lines().skip(1).filter_map(listener).filter(|(_, port)| ports.contains(port)).collect()
}

fn listener(line: &str) -> Option<(u64, u16)> {
    let mut fields = line.split_ascii_whitespace();
    let port = u16::from_str_radix(fields.nth(1)?.rsplit(':').next()?, 16).ok()?;
    let listens = fields.nth(1)? == LISTEN;
    let of_root = fields.nth(3)? == "0";
    let inode = fields.nth(1)?.parse().ok()?;
    (listens && of_root).then_some((inode, port))
}

/// The number in `socket:[20001]`.
fn socket(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Listeners of root's on the ports that are asked for; connections, other users' and other ports are left out.
    #[test]
    fn ports_of_root() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 501 1 0 100 0 0 10 0\n\
            1: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 502 1 0 100 0 0 10 0\n\
            2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 503 1 0 100 0 0 10 0\n\
            3: 0100007F:280A 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 504 1 0 100 0 0 10 0\n\
            broken\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), table).unwrap();
        assert_eq!(listening_ports(file.path(), &[10_250, 10_248]), [(501, 10_248)]);
        let six = table.replace("0100007F:2808", "00000000000000000000000000000000:280A");
        fs::write(file.path(), six).unwrap();
        assert_eq!(listening_ports(file.path(), &[10_250, 10_248]), [(501, 10_250)]);
        assert_eq!(listening_ports(Path::new("/nonexistent"), &[10_250]), []);
    }
}
