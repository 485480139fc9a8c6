//! `fdinfo` of a listener of fanotify.

/// Classes of groups that may refuse an access, `FAN_CLASS_CONTENT` and `FAN_CLASS_PRE_CONTENT`
/// (include/uapi/linux/fanotify.h).
const DECIDING: u32 = 0x4 | 0x8;

/// May this listener refuse accesses, so that whoever makes one waits for its answer? `fanotify flags:5 event-flags:8000`.
pub(in crate::census) fn decides_accesses(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("fanotify flags:"));
    let flags = flags.and_then(|rest| rest.split(' ').next());
    flags.and_then(|flags| u32::from_str_radix(flags, 16).ok()).is_some_and(|flags| flags & DECIDING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let of = |line: &str| {
            decides_accesses(&format!("pos:\t0\nflags:\t02\n{line}\nfanotify ino:2 mask:10000\n"))
        };
        assert!(of("fanotify flags:5 event-flags:8000") && of("fanotify flags:8 event-flags:0"));
        assert!(!of("fanotify flags:1 event-flags:0") && !of("fanotify flags:zz") && !of(""));
    }
}
