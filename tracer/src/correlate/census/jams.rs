//! [`Jam`]: a connection between a runtime and a shim on which nothing moves, although both have something to read.

use std::collections::BTreeMap;

use super::ProcessSeen;
use crate::{
    decode::MonoNs,
    input::{CensusFact, Component, SocketFact},
};

/// A connection of which neither end was read between two looks, by processes that could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jam {
    /// The runtime.
    pub runtime: u32,
    /// The shim.
    pub shim: u32,
    /// Its end, with what the runtime has not read.
    pub at_runtime: SocketFact,
    /// The other one, with what the shim has not read.
    pub at_shim: SocketFact,
    /// The first look that found just as much unread on both ends.
    pub since: MonoNs,
    /// The last one.
    pub last: MonoNs,
}

impl Jam {
    /// As much is unread as before, on the same connection of the same processes.
    fn has_not_moved_since(&self, before: &Self) -> bool {
        let key = |jam: &Self| (jam.runtime, jam.shim, jam.at_runtime.inode, jam.at_shim.inode);
        let unread = |jam: &Self| (jam.at_runtime.unread, jam.at_shim.unread);
        key(self) == key(before) && unread(self) == unread(before)
    }
}

/// Those of a round. What is found for the first time may be in flight; a round that did not come to a process says nothing about it.
pub(super) fn find(processes: &BTreeMap<u32, ProcessSeen>, before: Vec<Jam>, round: &CensusFact) -> Vec<Jam> {
    let fresh = |seen: &&ProcessSeen| seen.fact.at_ns >= round.began_ns && seen.still_since.is_none();
    let shims = processes.values().filter(fresh).filter(|seen| seen.fact.component == Component::Shim);
    let mut found: Vec<Jam> = shims.flat_map(|shim| of_shim(shim, processes)).collect();
    found.retain(|jam| processes.get(&jam.runtime).as_ref().is_some_and(fresh));
    for jam in &mut found {
        if let Some(same) = before.iter().find(|before| jam.has_not_moved_since(before)) {
            jam.since = same.since;
        }
    }
    let looked = |pid: u32| processes.get(&pid).as_ref().is_some_and(fresh);
    let unseen = before.into_iter().filter(|jam| round.cut && !(looked(jam.shim) && looked(jam.runtime)));
    found.extend(unseen);
    found
}

/// Its connections of which both ends have something to read.
fn of_shim<'a>(
    shim: &'a ProcessSeen,
    processes: &'a BTreeMap<u32, ProcessSeen>,
) -> impl Iterator<Item = Jam> + 'a {
    let waits = |socket: &&SocketFact| !socket.listening && socket.unread > 0;
    shim.fact.sockets.iter().filter(waits).filter_map(move |at_shim| {
        let holders = at_shim.peers.iter().filter_map(|peer| processes.get(&peer.pid));
        let runtime = holders.into_iter().find(|seen| seen.fact.component == Component::Containerd)?;
        let ends = |socket: &&SocketFact| {
            Some(socket.inode) == at_shim.peer_inode && socket.peer_inode == Some(at_shim.inode)
        };
        let at_runtime = runtime.fact.sockets.iter().filter(waits).find(ends)?;
        let looked = MonoNs(shim.fact.at_ns.max(runtime.fact.at_ns));
        Some(Jam {
            runtime: runtime.fact.pid,
            shim: shim.fact.pid,
            at_runtime: at_runtime.clone(),
            at_shim: at_shim.clone(),
            since: looked,
            last: looked,
        })
    })
}
