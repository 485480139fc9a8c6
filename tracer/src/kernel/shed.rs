//! Takes the probes on the Go scheduler of one executable off, while its other probes stay on.
//!
//! From the first park that is not seen on, the sums of its goroutines are wrong. So nobody follows a goroutine any more
//! before that, and whoever was followed is forgotten: the end of a call without an entry says that its parks were not
//! measured (`tracer-ebpf/src/parks.rs`).

use plegtrace_common::{key::Parker, site::SiteConf};

use super::{
    attach::ParkLinks,
    error::KernelError,
    load::{Kernel, Plain},
    sys,
};

impl Kernel {
    /// Takes the probes on the Go scheduler of an executable off. Nothing to do when there are none.
    ///
    /// # Errors
    ///
    /// A map cannot be read or written; the probes are off all the same, and the parks of calls that are open then may be
    /// told wrong.
    pub fn detach_parks(&mut self, id: u64) -> Result<(), KernelError> {
        let Some(parks) = self.links.get_mut(&id).and_then(|links| links.parks.take()) else { return Ok(()) };
        let quiet = self.follow_nobody(&parks).and_then(|()| self.forget_parkers_of(&parks.hooks));
        let hooks = parks.hooks.clone();
        drop(parks);
        // Once more: where the kernel would not wait for programs that run, one of them may have entered a goroutine since.
        quiet.and_then(|()| self.forget_parkers_of(&hooks))
    }

    /// No call that begins from now on has its goroutine followed.
    fn follow_nobody(&mut self, parks: &ParkLinks) -> Result<(), KernelError> {
        for (index, conf) in &parks.starts {
            let conf = SiteConf { parks: 0, ..*conf };
            self.sites
                .set(*index, Plain(conf), 0)
                .map_err(|source| KernelError::Map { map: "SITES", source })?;
        }
        sys::wait_for_running_programs();
        Ok(())
    }

    fn forget_parkers_of(&mut self, hooks: &[u32]) -> Result<(), KernelError> {
        for (key, parker) in self.parkers()?.entries {
            if may_be_of(hooks, &parker) {
                self.forget_parker(&key);
            }
        }
        Ok(())
    }
}

/// The hook of an entry tells its program from its first park on. One that has not parked yet may be of any program:
/// then its call is not measured, which is true of no other than a call that runs right now.
fn may_be_of(hooks: &[u32], parker: &Parker) -> bool {
    let has_parked = parker.parks > 0 || parker.since_ns != 0;
    !has_parked || hooks.contains(&parker.hook)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parker(hook: u32, since_ns: u64, parks: u32) -> Parker {
        Parker { root_start_ns: 5, hook, since_ns, parks, ..Parker::EMPTY }
    }

    /// A goroutine of another program that is parked for long keeps its entry: where it waits would not be told again.
    #[test]
    fn others_keep_their_parks() {
        let forgotten = |parker: Parker| may_be_of(&[4, 5], &parker);
        assert!(forgotten(parker(0, 0, 0)), "has not parked yet");
        assert!(forgotten(parker(4, 9, 0)) && forgotten(parker(5, 0, 1)));
        assert!(!forgotten(parker(0, 9, 0)) && !forgotten(parker(6, 0, 1)));
    }
}
