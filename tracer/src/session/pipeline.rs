//! Frames in, a picture of the node out: decode and correlate, with what could not be decoded counted.

use crate::{
    correlate::{Correlator, Limits, Snapshot},
    decode::{MonoNs, decode},
    input::{Fact, Frame, LossCount, frame_fact},
};

/// Sees every record of the input stream, in order, before it is decoded.
pub type Tap = Box<dyn FnMut(&Frame) + Send>;

/// The pure half of a session.
pub(crate) struct Pipeline {
    correlator: Correlator,
    undecoded: u64,
    tap: Option<Tap>,
}

impl Pipeline {
    pub(crate) fn new(tap: Option<Tap>) -> Self {
        Self { correlator: Correlator::new(Limits::default()), undecoded: 0, tap }
    }

    /// Takes one record.
    pub(crate) fn push(&mut self, frame: &Frame) {
        if let Some(tap) = self.tap.as_mut() {
            tap(frame);
        }
        match decode(frame) {
            Ok(event) => self.correlator.push(event),
            Err(error) => {
                self.undecoded += 1;
                tracing::debug!(%error, "record left out");
            }
        }
    }

    /// Takes one fact of this moment.
    pub(crate) fn fact(&mut self, now_ns: u64, fact: &Fact) {
        self.push(&frame_fact(now_ns, fact));
    }

    /// The node as it is known at `now_ns`.
    pub(crate) fn snapshot(&self, now_ns: u64) -> Snapshot {
        let mut snapshot = self.correlator.snapshot(MonoNs(now_ns));
        if self.undecoded > 0 {
            snapshot.losses.push(LossCount {
                stage: "decode".to_owned(),
                reason: "undecoded_record".to_owned(),
                sentence: "records could not be decoded".to_owned(),
                count: self.undecoded,
                is_loss: true,
            });
        }
        snapshot
    }
}
