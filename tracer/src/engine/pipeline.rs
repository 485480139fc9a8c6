//! Frames in, a picture of the node out: decode and correlate, with what could not be decoded counted.

use crate::{
    correlate::{Correlator, Finished, InFlightCalls, Limits, Pulse, Snapshot},
    decode::{Event, MonoNs, decode},
    flame::Flame,
    input::{Arrival, Fact, Frame, frame_fact},
};

/// Names of stacks are waited for so many times, once a second: much longer, and what has ended would be forgotten.
const NAMES: u32 = 30;

/// Sees every record of the input stream, in order, before it is decoded.
pub type Tap = Box<dyn FnMut(&Frame) + Send>;

/// The pure half of an observation.
pub(crate) struct Pipeline {
    correlator: Correlator,
    tap: Option<Tap>,
    stopped: Option<MonoNs>,
    /// So many times in a row, some stack had no name yet.
    unnamed_for: u32,
}

impl Pipeline {
    pub(crate) fn new(tap: Option<Tap>) -> Self {
        Self { correlator: Correlator::new(Limits::default()), tap, stopped: None, unnamed_for: 0 }
    }

    /// Takes one record.
    pub(crate) fn push(&mut self, frame: &Frame) {
        self.push_and_see(frame, &mut |_| {});
    }

    /// Takes one record, and shows what it means to `see` on the way: nobody else decodes it.
    pub(crate) fn push_and_see(&mut self, frame: &Frame, see: &mut dyn FnMut(&Event)) {
        if let Some(tap) = self.tap.as_mut() {
            tap(frame);
        }
        match decode(frame) {
            Ok(event) => {
                see(&event);
                self.take_event(event);
            }
            Err(error) => {
                // Told to the correlator, whose verdict must know of the loss.
                self.correlator.undecoded();
                tracing::debug!(%error, "record left out");
            }
        }
    }

    /// Takes what was read on the node, and shows what it means to `see` on the way.
    pub(crate) fn read(&mut self, item: Arrival, see: &mut dyn FnMut(&Event)) {
        match item {
            Arrival::Record(frame) => self.push_and_see(&frame, see),
            Arrival::Fact { at_ns, fact } => self.fact(at_ns, fact),
        }
    }

    /// Takes one fact of this moment. It becomes a record only for the tap: what a recording gives back is the same fact.
    pub(crate) fn fact(&mut self, now_ns: u64, fact: Fact) {
        if let Some(tap) = self.tap.as_mut() {
            tap(&frame_fact(now_ns, &fact));
        }
        let event = Event::Fact { at: MonoNs(now_ns), fact: Box::new(fact) };
        debug_assert!(comes_back(&event), "a recording would not give it back: {event:?}");
        self.take_event(event);
    }

    fn take_event(&mut self, event: Event) {
        if let Event::Fact { at, fact } = &event
            && matches!(**fact, Fact::Stop(_))
        {
            self.stopped = Some(*at);
        }
        self.correlator.push(event);
    }

    /// The moment of the report that goes with a whole stream.
    pub(crate) fn stopped_ns(&self) -> Option<u64> {
        self.stopped.map(|at| at.0)
    }

    /// Addresses in stacks that have no name yet, by the hook that tells the executable.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = (u32, Vec<u64>)> {
        self.correlator.unnamed()
    }

    /// The node in a few figures: cheap enough for each second.
    pub(crate) fn pulse(&self, now_ns: u64) -> Pulse {
        self.correlator.pulse(MonoNs(now_ns))
    }

    /// What is in flight now.
    pub(crate) fn in_flight(&self) -> Vec<InFlightCalls> {
        self.correlator.calls_in_flight()
    }

    /// Adds what has ended since the last time.
    pub(crate) fn collect(&mut self, flame: &mut Flame, last: bool) {
        self.collect_and_see(flame, last, &mut |_| {});
    }

    /// Adds what has ended since the last time, and shows it to `see`; waits a little for the names of stacks unless it is
    /// the `last` time.
    pub(crate) fn collect_and_see(&mut self, flame: &mut Flame, last: bool, see: &mut dyn FnMut(&Finished)) {
        if last || self.are_named() {
            flame.collect_and_see(&mut self.correlator, last, see);
        }
    }

    /// Do all stacks have their names, or has that been waited for in vain?
    fn are_named(&mut self) -> bool {
        let waits = self.correlator.unnamed().next().is_some() && self.unnamed_for < NAMES;
        self.unnamed_for = if waits { self.unnamed_for + 1 } else { 0 };
        !waits
    }

    /// What a stream that begins at `now_ns` must know.
    pub(crate) fn preamble(&self, now_ns: u64) -> Vec<Frame> {
        self.correlator.preamble(MonoNs(now_ns)).iter().map(|(at, fact)| frame_fact(at.0, fact)).collect()
    }

    /// The node as it is known at `now_ns`.
    pub(crate) fn snapshot(&self, now_ns: u64) -> Snapshot {
        self.correlator.snapshot(MonoNs(now_ns))
    }
}

/// Is this fact the same after it was a record?
fn comes_back(event: &Event) -> bool {
    let Event::Fact { at, fact } = event else { return true };
    decode(&frame_fact(at.0, fact)).is_ok_and(|back| back == *event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        diagnose::{Doubt, diagnose},
        input::Start,
    };

    /// A record that cannot be decoded is a loss, and forbids the verdict "healthy".
    #[test]
    fn undecoded_records_count_before_the_verdict() {
        let mut pipeline = Pipeline::new(None);
        let mut frame = frame_fact(1, &Fact::Start(Start::default()));
        let cut = frame.bytes.len() - 1;
        frame.bytes.truncate(cut);
        pipeline.push(&frame);
        let snapshot = pipeline.snapshot(2);
        assert_eq!(snapshot.real_losses().map(|loss| loss.count).sum::<u64>(), 1);
        let why = diagnose(&snapshot).doubts;
        assert!(why.iter().any(|doubt| matches!(doubt, Doubt::Lost { count: 1, .. })), "{why:?}");
    }
}
