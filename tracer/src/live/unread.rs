//! Of requests that have waited for a while: what lies unread at both ends of their connections, and so who does not read.

use crate::{
    census::Queues,
    cri::{docker_call_lasts, request_lasts, shim_call_lasts},
    input::OpenMessageFact,
};

/// Of younger ones nobody asks: most are answered before.
const FROM_NS: u64 = 1_000_000_000;

/// The queues of the sockets, read once for all requests of a moment, and only if one of them is old.
#[derive(Debug, Default)]
pub(super) struct Unread {
    queues: Queues,
    /// When they were read, and whether they could be.
    read: Option<(u64, bool)>,
}

impl Unread {
    /// Tells it of those that are open at `at_ns`.
    pub(super) fn tell(&mut self, at_ns: u64, open: &mut [OpenMessageFact]) {
        let is_late = |open: &&mut OpenMessageFact| {
            let (service, method) = (&open.service, &open.method);
            let lasts = shim_call_lasts(service, method) || request_lasts(service, method);
            !open.over
                && at_ns.saturating_sub(open.start_ns) >= FROM_NS
                && !lasts
                && !docker_call_lasts(method)
        };
        for open in open.iter_mut().filter(is_late) {
            if self.read.is_none_or(|(read_at, _)| read_at != at_ns) {
                self.read = Some((at_ns, self.queues.read()));
            }
            if self.read == Some((at_ns, true)) {
                (open.unread, open.unread_by_answerer) = self.queues.unread(open.socket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, os::fd::AsRawFd as _, os::unix::net::UnixStream};

    use super::*;

    /// Both ends of a connection of an old request are told; a young one, and one that lasts, are not asked about.
    #[test]
    fn both_ends_are_told() {
        let (mut own, mut other) = UnixStream::pair().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", own.as_raw_fd())).unwrap();
        let socket = link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        own.write_all(b"question").unwrap();
        other.write_all(b"answer").unwrap();
        let told = |start_ns: u64, method: &str| {
            let service = "runtime.v1.RuntimeService".to_owned();
            let method = method.to_owned();
            let mut open =
                [OpenMessageFact { socket, start_ns, service, method, ..OpenMessageFact::default() }];
            Unread::default().tell(2 * FROM_NS, &mut open);
            (open[0].unread, open[0].unread_by_answerer)
        };
        assert_eq!(told(FROM_NS, "ListContainers"), (Some(6), Some(8)));
        assert_eq!(told(FROM_NS + 1, "ListContainers"), (None, None));
        assert_eq!(told(FROM_NS, "GetContainerEvents"), (None, None));
    }
}
