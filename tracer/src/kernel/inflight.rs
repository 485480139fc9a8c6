//! Reads what is open now: calls, goroutines inside them, and processes.

use std::os::fd::AsFd;

use aya::maps::Map;
use plegtrace_common::key::{CallKey, OpenCall, Parker, ParkerKey, Watched};
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

/// Goroutines inside calls at one moment.
#[derive(Clone, Debug, Default)]
pub struct Parkers {
    /// Key and value of each.
    pub parkers: Vec<(ParkerKey, Parker)>,
    /// The map was read to its end.
    pub complete: bool,
}

impl Kernel {
    /// Reads every goroutine whose parks are followed. Right after [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn parkers(&self) -> Result<Parkers, KernelError> {
        let mut out = Parkers::default();
        let fd = self.parkers_fd.as_fd();
        out.complete = sys::lookup_batch(fd, size_of::<ParkerKey>(), size_of::<Parker>(), |key, value| {
            if let (Ok(key), Ok(parker)) = (ParkerKey::read_from_bytes(key), Parker::read_from_bytes(value)) {
                out.parkers.push((key, parker));
            }
        })
        .map_err(|source| KernelError::Syscall { command: "BPF_MAP_LOOKUP_BATCH", source })?;
        Ok(out)
    }

    /// Removes a goroutine that is known to be gone.
    pub fn forget_parker(&mut self, key: &ParkerKey) {
        // Already gone is what we want.
        let _ = self.parkers.remove(&Plain(*key));
    }
}

/// The watched processes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Process and what is known of it.
    pub processes: Vec<(u32, Watched)>,
    /// The map was read to its end.
    pub complete: bool,
}

impl Kernel {
    /// Reads every watched process. As for [`Self::open_calls`]: read first, drain after it.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn processes(&self) -> Result<Processes, KernelError> {
        let mut out = Processes::default();
        let fd = self.watched_fd.as_fd();
        out.complete = sys::lookup_batch(fd, size_of::<u32>(), size_of::<Watched>(), |key, value| {
            if let (Ok(pid), Ok(watched)) = (u32::read_from_bytes(key), Watched::read_from_bytes(value)) {
                out.processes.push((pid, watched));
            }
        })
        .map_err(|source| KernelError::Syscall { command: "BPF_MAP_LOOKUP_BATCH", source })?;
        Ok(out)
    }

    /// Stops watching a process that is gone.
    pub fn forget_process(&mut self, pid: u32) {
        // Already gone is what we want.
        let _ = self.watched.remove(&pid);
    }
}

/// A second descriptor of a hash map; aya keeps its own to itself once the map is typed.
pub(super) fn duplicate(map: &Map) -> Option<std::os::fd::OwnedFd> {
    match map {
        Map::HashMap(data) => data.fd().as_fd().try_clone_to_owned().ok(),
        _ => None,
    }
}
