//! Reads the calls that are open now.

use std::os::fd::AsFd;

use aya::maps::Map;
use plegtrace_common::key::{CallKey, OpenCall};
use zerocopy::FromBytes;

use super::{
    error::KernelError,
    load::{Kernel, Plain},
    sys,
};

/// The open calls at one moment.
#[derive(Clone, Debug, Default)]
pub struct OpenCalls {
    /// Key and value of each.
    pub calls: Vec<(CallKey, OpenCall)>,
    /// The map was read to its end.
    pub complete: bool,
}

impl Kernel {
    /// Reads every open call. Read this first and drain the ring buffer after it: what ended in between is then known
    /// to have ended.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn open_calls(&self) -> Result<OpenCalls, KernelError> {
        let mut out = OpenCalls::default();
        let fd = self.open_calls_fd.as_fd();
        out.complete = sys::lookup_batch(fd, size_of::<CallKey>(), size_of::<OpenCall>(), |key, value| {
            if let (Ok(key), Ok(call)) = (CallKey::read_from_bytes(key), OpenCall::read_from_bytes(value)) {
                out.calls.push((key, call));
            }
        })
        .map_err(|source| KernelError::Syscall { command: "BPF_MAP_LOOKUP_BATCH", source })?;
        Ok(out)
    }

    /// Removes an open call that is known to be over (its process ended, its goroutine is gone).
    pub fn forget_call(&mut self, key: &CallKey) {
        // Already gone is what we want.
        let _ = self.open_calls.remove(&Plain(*key));
    }
}

/// A second descriptor of a hash map; aya keeps its own to itself once the map is typed.
pub(super) fn duplicate(map: &Map) -> Option<std::os::fd::OwnedFd> {
    match map {
        Map::HashMap(data) => data.fd().as_fd().try_clone_to_owned().ok(),
        _ => None,
    }
}
