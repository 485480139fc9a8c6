//! Which sources this kernel's structures allow: what one of them cannot read is refused to it alone.

use plegtrace_common::settings::WireSettings;

use super::Observation;
use crate::{
    chain::chain,
    cli::Settings,
    clock,
    input::{Fact, RefusedFact},
    kernel::{AttachMode, WireProbes},
    probes::source_refused,
    target::{KernelOffsets, Need},
};

/// Where events would be lost, an observation without them is worth more.
const PREEMPTS: &str = "left out, because this kernel skips programs on system calls while others run, which loses events; to \
    follow D-Bus and requests on sockets all the same, add --sources all";

/// Sources that the kernel side serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) processes: bool,
    pub(super) parks: bool,
    pub(super) wire: Option<WireSettings>,
}

impl Observation {
    /// The sources that are wanted and possible; says why others are not.
    pub(super) fn possible(
        &mut self,
        settings: &Settings,
        mode: AttachMode,
        offsets: &KernelOffsets,
    ) -> Sources {
        let mut possible = |source: &str, what: &str, need: Need| {
            let lack = offsets.lacks(need).map(|lack| chain(&lack));
            if let Some(why) = &lack {
                let refused = RefusedFact { what: what.to_owned(), ..source_refused(source, why) };
                self.pipeline.fact(clock::monotonic_ns(), Fact::Refused(refused));
            }
            lack.is_none()
        };
        let processes = settings.processes && possible("processes", "processes", Need::Processes);
        if processes && settings.follows_names() {
            possible("processes", "components from their start on", Need::Names);
        }
        let parks = settings.parks && possible("parks", "parks", Need::Places);
        if let Some(lack) = offsets.lacks(Need::Addresses).filter(|_| mode == AttachMode::PerfAddress) {
            self.probes.cannot_attach(&chain(&lack));
        }
        Sources { processes, parks, wire: self.possible_wire(settings, processes, offsets) }
    }

    /// A shim that is born later must be known to be one: without processes every request to it would seem unanswered.
    fn possible_wire(
        &mut self,
        settings: &Settings,
        processes: bool,
        offsets: &KernelOffsets,
    ) -> Option<WireSettings> {
        if !settings.wire {
            return None;
        }
        if !settings.wire_named && WireProbes::candidates(settings.socket_backend) == [WireProbes::Events] {
            self.refuse("wire", PREEMPTS);
            return None;
        }
        let refused = match offsets.wire() {
            Ok(wire) if processes => return Some(wire),
            Ok(_) => "it needs processes, which are not followed".to_owned(),
            Err(lack) => chain(&lack),
        };
        self.refuse_wire(settings, &refused);
        None
    }
}
