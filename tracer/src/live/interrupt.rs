//! Who ends us while probes wait to come off.

/// Gives SIGINT its default action back, for the time after an observation: a person who does not want to wait until probes can be
/// taken off without harm ends us with Ctrl-C, and the kernel takes them off at once.
///
/// Not SIGTERM: systemd sends it again when a stop takes long (src/core/service.c, `SERVICE_FINAL_SIGTERM`), and nobody there knows what
/// that would do to the node.
pub(crate) fn let_interrupt_end_us() {
    // SAFETY: back to the default action; the handler served the observation, which is over.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use std::{mem, ptr};

    use super::*;

    /// The action of a signal.
    fn action(signal: libc::c_int) -> libc::sighandler_t {
        // SAFETY: plain data that the call fills; no action is set.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            assert_eq!(libc::sigaction(signal, ptr::null(), &raw mut action), 0);
            action.sa_sigaction
        }
    }

    /// A person ends us at once; a machine that asks again does not.
    #[test]
    fn only_a_person_ends_us_at_once() {
        let both = [libc::SIGINT, libc::SIGTERM];
        // SAFETY: both are ignored, and given back below.
        let before = both.map(|signal| unsafe { libc::signal(signal, libc::SIG_IGN) });
        let_interrupt_end_us();
        let after = both.map(action);
        for (signal, before) in both.into_iter().zip(before) {
            // SAFETY: what it was.
            unsafe { libc::signal(signal, before) };
        }
        assert_eq!(after, [libc::SIG_DFL, libc::SIG_IGN]);
    }
}
