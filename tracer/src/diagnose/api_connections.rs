//! Where a request to the API server got to, by the kernel's account of the connections of the kubelet that wait for an answer.

use super::{Evidence, Scene, Source};
use crate::{
    input::SentFact,
    words::human::{duration, plural, size},
};

/// A connection that has waited for a shorter time than this need not be one to the API server.
const WAITS_MS: u32 = 1_000;
/// Addresses that are named.
const NAMED: usize = 2;

/// The connections of a kubelet that wait for an answer, the longest first.
#[derive(Debug)]
pub(super) struct ApiConnections<'a>(Vec<&'a SentFact>);

/// Those of the last look; `None`: nobody looked, or none waits.
pub(super) fn of<'a>(kubelet: u32, scene: &Scene<'a>) -> Option<ApiConnections<'a>> {
    let looked = &scene.snapshot.census.kubelet_connections;
    let fact = looked.iter().find(|fact| fact.pid == kubelet && fact.left_out == 0)?;
    let waits = |one: &&SentFact| one.waits() && one.quiet_ms >= WAITS_MS;
    let mut all: Vec<_> = fact.connections.iter().filter(waits).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.quiet_ms));
    (!all.is_empty()).then_some(ApiConnections(all))
}

impl ApiConnections<'_> {
    /// Who does not answer: `the API server, or a proxy before it (connection to 192.0.2.7:6443)`. That the connection that waits is the one to the
    /// API server is likely, not seen: what the kubelet asks there is encrypted.
    pub(super) fn culprit(&self) -> String {
        let Some(SentFact { peer, .. }) = self.to_one() else {
            return "the API server, or the way to it".to_owned();
        };
        if self.are_lost() {
            format!("the way to the API server, or its machine (connection to {peer})")
        } else if self.0.iter().all(|one| !one.connecting && one.unacked == 0) {
            format!("the API server, or a proxy before it (connection to {peer})")
        } else {
            format!("the API server, or the way to it (connection to {peer})")
        }
    }

    /// What to do next.
    pub(super) fn advice(&self) -> Option<Vec<String>> {
        let peer = self.to_one()?.peer;
        let ask = format!("`curl -k https://{peer}/healthz` from this node");
        let way = format!("`ip route get {}`, and what filters packets on the way", peer.ip());
        Some(if self.are_lost() { vec![way, ask] } else { vec![ask] })
    }

    pub(super) fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let mut longest: Vec<&SentFact> = Vec::new();
        for one in &self.0 {
            if longest.iter().all(|other| other.peer != one.peer) {
                longest.push(one);
            }
        }
        longest.into_iter().take(NAMED).map(|one| {
            let alike = self.0.iter().filter(|other| other.peer == one.peer).count() as u64;
            Evidence::new(Source::Census, words(one, alike))
        })
    }

    fn are_lost(&self) -> bool {
        self.0.iter().all(|one| one.is_lost())
    }

    /// One of them, when all go to the same address: the API server's.
    fn to_one(&self) -> Option<&SentFact> {
        let first = self.0.first()?;
        self.0.iter().all(|one| one.peer == first.peer).then_some(*first)
    }
}

/// `TCP connection to 192.0.2.7:6443: all that was sent is acknowledged, last byte received 61.0 s ago`, of one or more that are `alike`.
fn words(one: &SentFact, alike: u64) -> String {
    let ago = |ms: u32| duration(u64::from(ms) * 1_000_000);
    let again = match one.resent {
        0 => String::new(),
        times => format!(", sent again {}", plural(u64::from(times), "time")),
    };
    let sent = match one.unacked {
        _ if one.connecting => format!("nothing has answered{again}"),
        0 => "all that was sent is acknowledged".to_owned(),
        bytes => format!("{} not acknowledged{again}", size(u64::from(bytes))),
    };
    let received = match one.received {
        _ if one.connecting => String::new(),
        0 => format!(", no byte has come for {}", ago(one.quiet_ms)),
        _ => format!(", last byte received {} ago", ago(one.quiet_ms)),
    };
    let longest = if alike > 1 { ", the longest wait" } else { "" };
    format!("{} to {}{longest}: {sent}{received}", plural(alike, "TCP connection"), one.peer)
}
