//! A fault that ends by itself: containerd kills the `runc delete` of a poststop hook ten seconds after it heard of the container's
//! end (`pkg/cri/server/events.go`, `handleEventTimeout`). On a busy machine that may be before who comes late has looked.

use std::os::fd::AsFd as _;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plegtrace_lab::fault::{Facts, Kind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::monotonic_ns;

/// A fault that lasts so long after it can be named is named: looks of the census are so far from each other, at most.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// When the victim of such a fault ended, on the monotonic clock.
pub(super) struct End(JoinHandle<u64>);

impl End {
    /// `None` for a fault that lasts until it is healed.
    pub(super) fn of(kind: Kind, facts: &Facts) -> Option<Self> {
        let victim = facts.victims.first().filter(|_| ends_by_itself(kind))?;
        let victim = i32::try_from(*victim).ok().and_then(Pid::from_raw).unwrap();
        Some(Self(thread::spawn(move || ended_at(victim))))
    }

    /// Did it come too early for somebody who could have named it from this moment on? To be asked when it is healed: then
    /// its victim has ended.
    pub(super) fn came_too_early(self, possible_ns: u64) -> bool {
        let lasted = self.0.join().unwrap().saturating_sub(possible_ns);
        Duration::from_nanos(lasted) < LONG_ENOUGH
    }
}

/// Who is observed may end by itself, and its observers are not to blame.
pub(super) fn ends_by_itself(kind: Kind) -> bool {
    kind == Kind::Poststop
}

fn ended_at(victim: Pid) -> u64 {
    // One that has ended already has no file descriptor.
    if let Ok(victim) = pidfd_open(victim, PidfdFlags::empty()) {
        poll(&mut [PollFd::from_borrowed_fd(victim.as_fd(), PollFlags::IN)], None).unwrap();
    }
    monotonic_ns()
}
