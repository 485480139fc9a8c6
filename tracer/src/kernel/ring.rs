//! Takes finished records out of the ring buffer.

use bytes::Bytes;

use super::load::Kernel;

impl Kernel {
    /// Hands every record that is there to `sink`, oldest first. Decodes nothing.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Bytes)) {
        while let Some(record) = self.ring.next() {
            sink(Bytes::copy_from_slice(&record));
        }
    }
}
