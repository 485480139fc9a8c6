//! What the runtimes of the node have received over the TCP connections that they have opened: an image comes that way.

use std::{collections::HashSet, io};

use super::{
    classify::{Interest, Interests, Kind},
    kept::Kept,
    node::Node,
    read,
    tcp_diag::{self, Tcp},
    tell::Tell,
};
use crate::{
    census::{
        clock,
        protocol::{Answer, Step},
    },
    input::{Downloads, TcpFact},
    target::sock_diag::Link,
};

/// Connections that are reported, per process.
const MAX_CONNECTIONS: usize = 64;

/// Tells it when it is wanted.
pub(super) fn tell(tell: &mut Tell, interests: &Interests, node: &Node, kept: &mut Kept) -> io::Result<()> {
    if !tell.order.downloads || !tell.is_here() {
        return Ok(());
    }
    let is_runtime = |one: &&Interest| one.kind == Kind::Worker && one.component.role().is_runtime();
    let runtimes = interests.told.iter().filter(is_runtime).map(|one| one.pid);
    let runtimes: Vec<u32> = runtimes.filter(|pid| shares_network(tell, *pid)).collect();
    if runtimes.is_empty() || !tell.ask(0, "", Step::Connections)? {
        return Ok(());
    }
    match all_of(&runtimes, node, kept) {
        Ok(found) => found.into_iter().try_for_each(|found| tell.say(&Answer::Downloads(found))),
        Err(error) => tell.refused(0, "", Step::Connections.words(), &error),
    }
}

fn all_of(runtimes: &[u32], node: &Node, kept: &mut Kept) -> io::Result<Vec<Downloads>> {
    let link = kept.link()?;
    let all = tcp_diag::dump(link)?;
    runtimes.iter().map(|pid| of(*pid, &all, node, link)).collect()
}

/// Is it in the network namespace of which we can ask?
fn shares_network(tell: &Tell, pid: u32) -> bool {
    let of = |name: &str| read::link(&tell.path("/proc").join(name).join("ns/net"));
    of("self").is_some_and(|own| of(&pid.to_string()) == Some(own))
}

/// The connections that a process has opened: those to a port on which it listens, others have.
fn of(pid: u32, all: &[Tcp], node: &Node, link: &mut Link) -> io::Result<Downloads> {
    let inodes: HashSet<u64> = node.holders.sockets_of(pid).into_iter().collect();
    let (listeners, connections): (Vec<&Tcp>, Vec<&Tcp>) =
        all.iter().filter(|tcp| inodes.contains(&tcp.inode)).partition(|tcp| tcp.listening);
    let accepted = |tcp: &&Tcp| listeners.iter().any(|own| own.local.port() == tcp.local.port());
    let opened: Vec<&Tcp> = connections.into_iter().filter(|tcp| !accepted(tcp)).collect();
    let mut found = Downloads {
        at_ns: clock::now_ns(),
        pid,
        connections: Vec::new(),
        left_out: u32::try_from(opened.len().saturating_sub(MAX_CONNECTIONS)).unwrap_or(u32::MAX),
    };
    for tcp in opened.into_iter().take(MAX_CONNECTIONS) {
        let Some(now) = tcp_diag::of_one(link, tcp)? else { continue };
        let (received, quiet_ms, sent_ms) = now.received.ok_or(io::ErrorKind::Unsupported)?;
        let (inode, peer, unread) = (now.inode, now.peer, now.unread);
        found.connections.push(TcpFact { inode, peer, received, quiet_ms, sent_ms, unread });
    }
    Ok(found)
}
