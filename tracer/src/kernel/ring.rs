//! [`Ring`]: the reading end of the ring buffer, and [`Kernel::drain`] for who reads it where it was loaded.

use aya::maps::{MapData, RingBuf};
use bytes::Bytes;

use super::load::Kernel;

/// Records that were drained, oldest first. Where each ends is what the ring says, not the record itself: one that is
/// damaged takes none of its neighbours with it.
#[derive(Clone, Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Records {
    /// Appends one.
    pub fn push(&mut self, record: &[u8]) {
        let Ok(length) = u32::try_from(record.len()) else { return };
        self.bytes.extend_from_slice(record);
        self.lengths.push(length);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// Their length together, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each of them. They share their memory.
    pub fn into_each(self) -> impl Iterator<Item = Bytes> {
        let mut rest = Bytes::from(self.bytes);
        self.lengths.into_iter().map(move |length| rest.split_to(length as usize))
    }
}

/// The reading end of the ring buffer. It can move to a thread of its own, which then waits for nothing else.
pub struct Ring {
    ring: RingBuf<MapData>,
    capacity: usize,
}

impl Ring {
    pub(super) fn new(ring: RingBuf<MapData>, capacity: usize) -> Self {
        Self { ring, capacity }
    }

    /// How many bytes of records the ring holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes the records that are there, oldest first. Every record that was committed before the call is among them: one
    /// pass takes at most what the ring can hold, however fast the programs write.
    pub fn drain(&mut self) -> Records {
        let mut records = Records::default();
        while records.bytes() <= self.capacity
            && let Some(record) = self.ring.next()
        {
            records.push(&record);
        }
        records
    }
}

impl Kernel {
    /// Hands the reading end of the ring buffer over, once.
    pub fn take_ring(&mut self) -> Option<Ring> {
        self.ring.take()
    }

    /// Hands every record that is there to `sink`, oldest first; nothing after [`Self::take_ring`]. Decodes nothing.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Bytes)) {
        let Some(ring) = self.ring.as_mut() else { return };
        while let Some(record) = ring.ring.next() {
            sink(Bytes::copy_from_slice(&record));
        }
    }
}
