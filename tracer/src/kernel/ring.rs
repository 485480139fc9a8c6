//! [`Ring`]: the reading end of the ring buffer, and [`Kernel::drain`] for who reads it where it was loaded.

use aya::maps::{MapData, RingBuf};
use bytes::{Bytes, BytesMut};

use super::load::Kernel;

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

    /// Appends the records that are there to `out`, oldest first, and says how many they were. Every record that was
    /// committed before the call is among them: one pass takes at most what the ring can hold, however fast the
    /// programs write.
    pub fn drain_into(&mut self, out: &mut BytesMut) -> usize {
        let (begin, mut records) = (out.len(), 0);
        while out.len() - begin <= self.capacity
            && let Some(record) = self.ring.next()
        {
            out.extend_from_slice(&record);
            records += 1;
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
