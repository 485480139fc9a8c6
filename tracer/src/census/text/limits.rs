//! `/proc/PID/limits` and the users in `/proc/PID/status`.

/// The soft limit of open files; `None` when there is none.
#[must_use]
pub(in crate::census) fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The effective user, as our own user namespace sees it.
#[must_use]
pub(in crate::census) fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The soft limit, not the hard one; the effective user, not the real one.
    #[test]
    fn which_column() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max processes             95894                95894                processes \n\
            Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files\n"),
            None
        );
        assert_eq!(open_files(""), None);
        assert_eq!(effective_user("Name:\tsu\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(0));
        assert_eq!(effective_user("Uid:\t1000\n"), None);
    }
}
