//! The memory of the node (proc_meminfo(5)).

use crate::input::Unwritten;

/// What is to be written to disks.
pub(in crate::census) fn unwritten(text: &str) -> Option<Unwritten> {
    Some(Unwritten { dirty: bytes(text, "Dirty:")?, writeback: bytes(text, "Writeback:")? })
}

/// `Dirty:             48 kB`
fn bytes(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace();
    let kibibytes: u64 = words.next()?.parse().ok()?;
    kibibytes.checked_mul(1024).filter(|_| words.next() == Some("kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both figures, and neither of those with similar names; what is damaged is none.
    #[test]
    fn lines() {
        let text =
            "Active:  5 kB\nDirty:             48 kB\nWriteback:          4 kB\nWritebackTmp:       9 kB\n";
        assert_eq!(unwritten(text), Some(Unwritten { dirty: 48 << 10, writeback: 4 << 10 }));
        assert_eq!(unwritten("Dirty: 48 kB\nWritebackTmp: 9 kB\n"), None);
        assert_eq!(unwritten("Dirty: 48\nWriteback: 9 kB\n"), None);
        assert_eq!(unwritten("Dirty: 99999999999999999999 kB\nWriteback: 18446744073709551615 kB\n"), None);
    }
}
