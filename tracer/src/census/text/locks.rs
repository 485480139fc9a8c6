//! `/proc/locks`: who holds the file lock that a process waits for (fs/locks.c, `locks_show`).

/// Who holds the first lock that `pid` waits for.
///
/// A lock and those that wait for it stand under one number, the latter behind an arrow:
/// `1: FLOCK  ADVISORY  WRITE 708 08:01:393235 0 EOF`, `1: -> FLOCK  ADVISORY  WRITE 709 08:01:393235 0 EOF`.
pub(in crate::census) fn holder_of_lock(text: &str, pid: u32) -> Option<u32> {
    let entries = || text.lines().filter_map(entry);
    let waiting = entries().find(|entry| entry.waits && entry.pid == pid)?;
    entries().find(|entry| !entry.waits && entry.number == waiting.number).map(|entry| entry.pid)
}

struct Entry<'a> {
    number: &'a str,
    waits: bool,
    pid: u32,
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let (number, rest) = line.split_once(':')?;
    let waits = rest.trim_start().starts_with("->");
    // Kind, strength, access, process.
    let mut words = rest.split_ascii_whitespace().filter(|word| *word != "->");
    let pid = words.nth(3)?.parse().ok()?;
    Some(Entry { number: number.trim(), waits, pid })
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
        assert_eq!((holder(709), holder(711)), (Some(708), Some(708)));
        assert_eq!((holder(708), holder(412), holder(5)), (None, None, None));
    }

    /// Damaged text has no holders.
    #[test]
    fn damaged() {
        assert_eq!(holder_of_lock("2: -> FLOCK", 2), None);
        assert_eq!(holder_of_lock("1: -> A B C 7\nno colon\n: : : :\n", 7), None);
    }
}
