//! [`Rounds`]: when the census is taken, and taken again. At the start, now and then, and at the end; more often and with
//! goroutines while something looks stuck, because only a second look tells what stands still from what merely was in
//! flight.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    census::{Census, RUNTIME, Request},
    correlate::{Snapshot, thresholds::SECOND_NS},
    cri::Method,
    diagnose::Diagnosis,
    input::{Fact, Layer},
};

/// From the end of a round to the start of the next while something looks stuck. Each reads the goroutines of kubelet and
/// runtime, so the pause doubles each time, up to [`LONG_PAUSE`].
const PAUSE: Duration = Duration::from_secs(3);
const LONG_PAUSE: Duration = Duration::from_secs(48);
/// The same while nothing does: then only processes are looked at.
const CALM: Duration = Duration::from_secs(10);
/// A handler that is open for so long is worth a look at its goroutine.
const OPEN_NS: u64 = 3 * SECOND_NS;
/// Rounds after which a census without probes has seen what it can.
const ALONE: u64 = 3;

/// What a round looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Processes, sockets, cgroups.
    Processes,
    /// The goroutines of kubelet and runtime too.
    Goroutines,
}

/// The rounds of an observation.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    running: Option<Census>,
    ended: Option<Instant>,
    count: u64,
    /// Rounds in a row since something looks stuck.
    in_a_row: u32,
}

impl Rounds {
    /// Begins a round.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn begin(&mut self, request: Request) -> io::Result<()> {
        self.running = Some(Census::start(request)?);
        Ok(())
    }

    /// Was there no round before?
    pub(crate) fn is_first(&self) -> bool {
        self.running.is_none() && self.count == 0
    }

    /// The facts of a round that has ended; waits for its end when told to.
    pub(crate) fn take(&mut self, wait: bool) -> Vec<Fact> {
        let Some(census) = self.running.take_if(|census| wait || census.is_finished()) else {
            return Vec::new();
        };
        (self.ended, self.count) = (Some(Instant::now()), self.count + 1);
        census.finish()
    }

    /// Is another round worth its price now, and how deep shall it look? `last`: there will be no other.
    pub(crate) fn due(
        &mut self,
        snapshot: &Snapshot,
        diagnosis: &Diagnosis,
        alone: bool,
        last: bool,
    ) -> Option<Depth> {
        let rest = self.ended.filter(|_| self.running.is_none())?.elapsed();
        if rest < PAUSE {
            return None;
        }
        if !alone && !is_suspicious(snapshot, diagnosis) {
            self.in_a_row = 0;
            return (last || rest >= CALM).then_some(Depth::Processes);
        }
        let pause = LONG_PAUSE.min(PAUSE * 2_u32.pow(self.in_a_row.min(8) / 2));
        if rest < pause && !last {
            return None;
        }
        self.in_a_row += 1;
        Some(Depth::Goroutines)
    }

    /// Was something that looks stuck looked at twice?
    pub(crate) fn are_enough(&self) -> bool {
        self.running.is_none() && (self.ended.is_none() || self.count >= 2)
    }

    /// Nothing more comes of a census without probes.
    pub(crate) fn are_all(&self) -> bool {
        self.running.is_none() && (self.ended.is_none() || self.count >= ALONE)
    }
}

/// May the runtime be asked for its containers? Not when it did not answer before, and not while lists of others wait.
pub(crate) fn may_ask(snapshot: &Snapshot) -> bool {
    let round = snapshot.census.round.as_ref();
    let silent = round.is_some_and(|round| round.unanswered.iter().any(|one| one.what == RUNTIME));
    let list = |method: Option<Method>| method.is_some_and(Method::is_relist_list);
    let open = snapshot.open.iter().any(|call| {
        call.span.layer() == Layer::Handler && call.age_ns >= SECOND_NS && list(call.span.method())
    });
    let waiting = snapshot.census.requests.iter().any(|request| list(request.method()) && request.stays);
    !silent && !open && !waiting
}

/// Something is held up, or a request that was in flight at the last look may be older than the probes.
pub(crate) fn is_suspicious(snapshot: &Snapshot, diagnosis: &Diagnosis) -> bool {
    let first = snapshot.census.rounds <= 1;
    let old = snapshot.census.requests.iter().any(|request| {
        request.component.role().is_runtime() && request.since.at_least && (first || request.stays)
    });
    let open = snapshot.open.iter().any(|call| {
        call.span.layer() == Layer::Handler && call.age_ns >= OPEN_NS && !call.span.is_long_lived()
    });
    old || open || !diagnosis.stuck.is_empty() || !diagnosis.reasons.is_empty()
}
