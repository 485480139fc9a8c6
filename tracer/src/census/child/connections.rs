//! The TCP connections that runtimes and kubelets of the node have opened: what a runtime has received there, for an image comes that
//! way; what becomes of what a kubelet sends, for it asks the API server that way.

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
    input::{Component, Downloads, KubeletConnections, SentFact, TcpFact},
    target::sock_diag::Link,
};

/// Connections that are reported, per process.
const MAX_CONNECTIONS: usize = 64;

/// Tells of them when they are wanted.
pub(super) fn tell(tell: &mut Tell, interests: &Interests, node: &Node, kept: &mut Kept) -> io::Result<()> {
    if !tell.order.connections || !tell.is_here() {
        return Ok(());
    }
    let is_wanted = |one: &&Interest| {
        let wanted = one.component.role().is_runtime() || one.component == Component::Kubelet;
        one.kind == Kind::Worker && wanted
    };
    let wanted = interests.told.iter().filter(is_wanted).map(|one| (one.pid, one.component));
    let wanted: Vec<(u32, Component)> = wanted.filter(|(pid, _)| shares_network(tell, *pid)).collect();
    if wanted.is_empty() || !tell.ask(0, "", Step::Connections)? {
        return Ok(());
    }
    match all_of(&wanted, node, kept) {
        Ok(found) => found.into_iter().try_for_each(|found| tell.say(&found)),
        Err(error) => tell.refused(0, "", Step::Connections.words(), &error),
    }
}

fn all_of(wanted: &[(u32, Component)], node: &Node, kept: &mut Kept) -> io::Result<Vec<Answer>> {
    let link = kept.link()?;
    let all = tcp_diag::dump(link)?;
    let one = |(pid, component): &(u32, Component)| match component {
        Component::Kubelet => sent_by(*pid, &all, node, link).map(Answer::KubeletConnections),
        _ => received_by(*pid, &all, node, link).map(Answer::Downloads),
    };
    wanted.iter().map(one).collect()
}

/// Is it in the network namespace of which we can ask?
fn shares_network(tell: &Tell, pid: u32) -> bool {
    let of = |name: &str| read::link(&tell.path("/proc").join(name).join("ns/net"));
    of("self").is_some_and(|own| of(&pid.to_string()) == Some(own))
}

/// The connections that a process has opened, and how many more there are: those to a port on which it listens, others have.
fn opened<'a>(pid: u32, all: &'a [Tcp], node: &Node) -> (Vec<&'a Tcp>, u32) {
    let inodes: HashSet<u64> = node.holders.sockets_of(pid).into_iter().collect();
    let (listeners, connections): (Vec<&Tcp>, Vec<&Tcp>) =
        all.iter().filter(|tcp| inodes.contains(&tcp.inode)).partition(|tcp| tcp.listening);
    let accepted = |tcp: &&Tcp| listeners.iter().any(|own| own.local.port() == tcp.local.port());
    let mut opened: Vec<&Tcp> = connections.into_iter().filter(|tcp| !accepted(tcp)).collect();
    let left_out = u32::try_from(opened.len().saturating_sub(MAX_CONNECTIONS)).unwrap_or(u32::MAX);
    opened.truncate(MAX_CONNECTIONS);
    (opened, left_out)
}

/// What a runtime has received. A connection that is not there yet has received nothing.
fn received_by(pid: u32, all: &[Tcp], node: &Node, link: &mut Link) -> io::Result<Downloads> {
    let (mut opened, left_out) = opened(pid, all, node);
    opened.retain(|tcp| !tcp.connecting);
    let mut found = Downloads { at_ns: clock::now_ns(), pid, connections: Vec::new(), left_out };
    for tcp in opened {
        let Some(now) = tcp_diag::of_one(link, tcp)? else { continue };
        let info = now.info.ok_or(io::ErrorKind::Unsupported)?;
        found.connections.push(TcpFact {
            inode: now.inode,
            peer: now.peer,
            received: info.received,
            quiet_ms: info.quiet_ms,
            sent_ms: info.sent_ms,
            unread: now.unread,
        });
    }
    Ok(found)
}

/// What becomes of what a kubelet sends.
fn sent_by(pid: u32, all: &[Tcp], node: &Node, link: &mut Link) -> io::Result<KubeletConnections> {
    let (opened, left_out) = opened(pid, all, node);
    let mut found = KubeletConnections { at_ns: clock::now_ns(), pid, connections: Vec::new(), left_out };
    for tcp in opened {
        let Some(now) = tcp_diag::of_one(link, tcp)? else { continue };
        let info = now.info.ok_or(io::ErrorKind::Unsupported)?;
        found.connections.push(SentFact {
            peer: now.peer,
            connecting: now.connecting,
            received: info.received,
            quiet_ms: info.quiet_ms,
            sent_ms: info.sent_ms,
            unacked: now.unacked,
            resent: info.resent,
        });
    }
    Ok(found)
}
