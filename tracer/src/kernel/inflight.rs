//! Reads what is open now: calls, goroutines inside them, and processes.

use std::os::fd::{AsFd, OwnedFd};

use aya::maps::Map;
use plegtrace_common::{
    key::{CallKey, OpenCall, Parker, ParkerKey, Watched},
    wire::{
        bus::{BusKey, OpenBusCall},
        docker::OpenDockerRequest,
        request::OpenRequest,
        state::{MessageKey, OpenMessage},
    },
};
use zerocopy::FromBytes;

use super::{
    error::KernelError,
    load::{Kernel, Plain},
    sys,
};

/// A hash map at one moment.
#[derive(Clone, Debug)]
pub struct Entries<K, V> {
    /// Key and value of each entry.
    pub entries: Vec<(K, V)>,
    /// The map was read to its end.
    pub complete: bool,
}

/// Open calls.
pub type OpenCalls = Entries<CallKey, OpenCall>;
/// Goroutines inside calls.
pub type Parkers = Entries<ParkerKey, Parker>;
/// Requests between runtime and shims without an answer.
pub type OpenMessages = Entries<MessageKey, OpenMessage>;
/// gRPC requests of the kubelet that have not ended.
pub type OpenRequests = Entries<MessageKey, OpenRequest>;
/// Requests to Docker's API without an answer.
pub type OpenDockerRequests = Entries<MessageKey, OpenDockerRequest>;
/// Calls over D-Bus without an answer.
pub type OpenBusCalls = Entries<BusKey, OpenBusCall>;
/// Watched processes, by their number.
pub type Processes = Entries<u32, Watched>;

impl<K: FromBytes, V: FromBytes> Entries<K, V> {
    fn read(map: &OwnedFd) -> Result<Self, KernelError> {
        let mut entries = Vec::new();
        let complete = sys::lookup_batch(map.as_fd(), size_of::<K>(), size_of::<V>(), |key, value| {
            if let (Ok(key), Ok(value)) = (K::read_from_bytes(key), V::read_from_bytes(value)) {
                entries.push((key, value));
            }
        })
        .map_err(|source| KernelError::Syscall { command: "BPF_MAP_LOOKUP_BATCH", source })?;
        Ok(Self { entries, complete })
    }
}

impl Kernel {
    /// Reads every open call. Read this first and drain the ring buffer after it: what ended in between is then known
    /// to have ended.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn open_calls(&self) -> Result<OpenCalls, KernelError> {
        Entries::read(&self.open_calls_fd)
    }

    /// Reads every goroutine whose parks are followed. Right after [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn parkers(&self) -> Result<Parkers, KernelError> {
        Entries::read(&self.parkers_fd)
    }

    /// Reads every watched process. As for [`Self::open_calls`]: read first, drain after it.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn processes(&self) -> Result<Processes, KernelError> {
        Entries::read(&self.watched_fd)
    }

    /// Reads every request between runtime and shims that has no answer. As for [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn messages(&self) -> Result<OpenMessages, KernelError> {
        Entries::read(&self.messages_fd)
    }

    /// Reads every gRPC request of the kubelet that has not ended. As for [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn requests(&self) -> Result<OpenRequests, KernelError> {
        Entries::read(&self.requests_fd)
    }

    /// Removes a gRPC request that nobody answers any more.
    pub fn forget_request(&mut self, key: &MessageKey) {
        // Already gone is what we want.
        let _ = self.requests.remove(&Plain(*key));
    }

    /// The same of clients that are not traced.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn other_requests(&self) -> Result<OpenRequests, KernelError> {
        Entries::read(&self.other_requests_fd)
    }

    /// Removes a gRPC request of such a client that nobody answers any more.
    pub fn forget_other_request(&mut self, key: &MessageKey) {
        // Already gone is what we want.
        let _ = self.other_requests.remove(&Plain(*key));
    }

    /// Name of such a client, as the kernel knows it; empty when it is not known any more.
    #[must_use]
    pub fn client_name(&self, pid: u32) -> String {
        let name = self.clients.get(&pid, 0).unwrap_or_default();
        String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    }

    /// Reads every request to Docker's API that has no answer. As for [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn docker_requests(&self) -> Result<OpenDockerRequests, KernelError> {
        Entries::read(&self.docker_requests_fd)
    }

    /// Removes a request to Docker's API that nobody answers any more.
    pub fn forget_docker_request(&mut self, key: &MessageKey) {
        // Already gone is what we want.
        let _ = self.docker_requests.remove(&Plain(*key));
    }

    /// Reads every call over D-Bus that has no answer. As for [`Self::open_calls`].
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub fn bus_calls(&self) -> Result<OpenBusCalls, KernelError> {
        Entries::read(&self.bus_calls_fd)
    }

    /// Removes a call over D-Bus that nobody waits for any more.
    pub fn forget_bus_call(&mut self, key: &BusKey) {
        // Already gone is what we want.
        let _ = self.bus_calls.remove(&Plain(*key));
    }

    /// The process that holds the end of a connection where a request is to be answered, if it has read or written there
    /// since.
    #[must_use]
    pub fn answerer_of(&self, key: &MessageKey) -> Option<u32> {
        let holder = self.ends.get(&key.answerer, 0).ok()?.0;
        (holder.peer_socket == key.socket).then_some(holder.tgid)
    }

    /// Removes a request that nobody answers any more.
    pub fn forget_message(&mut self, key: &MessageKey) {
        // Already gone is what we want.
        let _ = self.messages.remove(&Plain(*key));
    }

    /// Removes an open call that is known to be over (its process ended, its goroutine is gone).
    pub fn forget_call(&mut self, key: &CallKey) {
        // Already gone is what we want.
        let _ = self.open_calls.remove(&Plain(*key));
    }

    /// Removes a goroutine that is known to be gone.
    pub fn forget_parker(&mut self, key: &ParkerKey) {
        // Already gone is what we want.
        let _ = self.parkers.remove(&Plain(*key));
    }

    /// Stops watching a process that is gone.
    pub fn forget_process(&mut self, pid: u32) {
        // Already gone is what we want.
        let _ = self.watched.remove(&pid);
    }
}

/// A second descriptor of a hash map; aya keeps its own to itself once the map is typed.
pub(super) fn duplicate(map: &Map) -> Option<OwnedFd> {
    match map {
        Map::HashMap(data) => data.fd().as_fd().try_clone_to_owned().ok(),
        _ => None,
    }
}
