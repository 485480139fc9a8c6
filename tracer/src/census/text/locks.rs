//! `/proc/locks`: who holds the file lock that a process waits for (fs/locks.c, `locks_show`), and the same lines in
//! `/proc/PID/fdinfo` (`show_fd_locks`, Linux 4.1).

/// Who took the first lock that `pid` waits for, and on which file.
///
/// A lock and those that wait for it stand under one number, the latter behind an arrow:
/// `1: FLOCK  ADVISORY  WRITE 708 08:01:393235 0 EOF`, `1: -> FLOCK  ADVISORY  WRITE 709 08:01:393235 0 EOF`.
pub(in crate::census) fn holder_of_lock(text: &str, pid: u32) -> Option<(u32, &str)> {
    let entries = || text.lines().filter_map(entry);
    let waiting = entries().find(|entry| entry.waits && entry.pid == pid)?;
    let holds = |entry: &Entry<'_>| !entry.waits && entry.number == waiting.number;
    entries().find(holds).map(|entry| (entry.pid, entry.file))
}

/// Does a descriptor with this `fdinfo` hold a lock on this file?
pub(in crate::census) fn has_lock(fdinfo: &str, file: &str) -> bool {
    let locks = fdinfo.lines().filter_map(|line| entry(line.strip_prefix("lock:")?));
    locks.into_iter().any(|entry| !entry.waits && entry.file == file)
}

struct Entry<'a> {
    number: &'a str,
    waits: bool,
    pid: u32,
    /// Device and inode: `08:01:393235`.
    file: &'a str,
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let (number, rest) = line.split_once(':')?;
    let waits = rest.trim_start().starts_with("->");
    // Kind, strength, access, process, file.
    let mut words = rest.split_ascii_whitespace().filter(|word| *word != "->");
    let pid = words.nth(3)?.parse().ok()?;
    Some(Entry { number: number.trim(), waits, pid, file: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 412 00:1a:1034 0 EOF
2: FLOCK  ADVISORY  WRITE 708 08:01:393235 0 EOF
2: -> FLOCK  ADVISORY  WRITE 709 08:01:393235 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 711 08:01:393235 0 EOF
3: OFDLCK ADVISORY  READ -1 08:01:393236 0 EOF
";

    /// Of each that waits; not of one that holds, nor of one that does neither.
    #[test]
    fn holders() {
        let holder = |pid| holder_of_lock(LOCKS, pid);
        let both = Some((708, "08:01:393235"));
        assert_eq!((holder(709), holder(711)), (both, both));
        assert_eq!((holder(708), holder(412), holder(5)), (None, None, None));
    }

    /// The lines of a descriptor; a lock on another file is not the one.
    #[test]
    fn locks_of_a_descriptor() {
        let text = "pos:\t0\nflags:\t02\nlock:\t1: FLOCK  ADVISORY  WRITE 708 08:01:393235 0 EOF\n";
        assert!(has_lock(text, "08:01:393235"));
        assert!(!has_lock(text, "08:01:39323") && !has_lock("flags:\t02\n", "08:01:393235"));
    }

    /// Damaged text has no holders.
    #[test]
    fn damaged() {
        assert_eq!(holder_of_lock("2: -> FLOCK", 2), None);
        assert!(!has_lock("lock:\nlock:\t1: A B C 7\n", ""));
        assert_eq!(holder_of_lock("1: -> A B C 7\nno colon\n: : : :\n", 7), None);
    }
}
