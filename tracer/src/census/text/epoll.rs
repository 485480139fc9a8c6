//! `fdinfo` of an epoll instance.

/// Descriptors that are told.
const MAX: usize = 64;

/// The descriptors that it watches: `tfd:        7 events:       19 data: 7f …  pos:0 ino:2c3 sdev:8` (fs/eventpoll.c).
pub(in crate::census) fn watched_by_epoll(fdinfo: &str) -> Vec<i32> {
    let number = |line: &str| line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok();
    fdinfo.lines().filter_map(number).take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_descriptors() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\ntfd:        7 events:       19 data: 7  pos:0 ino:2c3 sdev:8\n\
            tfd:       12 events: 80002005 data: 9\ntfd: x\n";
        assert_eq!(watched_by_epoll(text), [7, 12]);
        assert_eq!(watched_by_epoll(&"tfd: 1 \n".repeat(1000)).len(), MAX);
    }
}
