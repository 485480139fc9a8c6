//! Parsers of the kernel's texts about processes. Pure, total and bounded: any bytes give facts or nothing.
//!
//! Formats: proc(5), `fs/proc/` and `kernel/cgroup/` of Linux 3.10 to 7.0. `stat` and the list of unix
//! sockets are parsed by [`crate::target`], which needs them too.

mod cgroup;
mod epoll;
mod fanotify;
mod fd;
mod limits;
mod locks;
mod meminfo;
mod mountinfo;
mod pressure;
mod sched;
mod stack;
mod syscall;
mod version;

pub use cgroup::{Membership, container_id, memberships};
pub(in crate::census) use epoll::watched_by_epoll;
pub(in crate::census) use fanotify::decides_accesses;
pub use fd::{Access, Link, link};
pub(in crate::census) use limits::{effective_user, open_files};
pub(in crate::census) use locks::{has_lock, holder_of_lock};
pub(in crate::census) use meminfo::unwritten;
pub use mountinfo::{Mount, mounts};
pub(in crate::census) use pressure::pressure;
pub use sched::{Ran, ran_ticks, schedstat, throttling, total_pressure_ns};
pub use stack::{function, functions};
pub use syscall::{Position, position};
pub(in crate::census) use version::version;

/// Everything that is read from `/proc` through every parser: for fuzzing.
pub fn all(text: &str) {
    let _ = crate::target::parse_stat(text);
    for path in memberships(text).iter().map(|membership| membership.path) {
        let _ = container_id(path);
    }
    let _ = (holder_of_lock(text, 1), has_lock(text, "00:1a:1"), pressure(text, "some"), version(text));
    let _ = unwritten(text);
    let _ = (link(text), mounts(text), functions(text), position(text));
    let _ = (crate::target::unix_sockets(text), watched_by_epoll(text));
    let _ = (open_files(text), effective_user(text));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        /// No text makes a parser panic: neither arbitrary ones, nor lines that look nearly right.
        #[test]
        fn any_text(text in ".{0,300}", words in "[-0-9a-fx<>\\[\\]():/ \n+._\\\\]{0,300}") {
            super::all(&text);
            super::all(&words);
        }
    }
}
