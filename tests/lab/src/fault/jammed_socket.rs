//! A containerd and a shim that each wait for the other to read (S2): the ttrpc client of containerd before 1.5.8 reads no answer
//! while it writes a request, and the server in a shim reads no request while it writes an answer.
//!
//! Nobody is stopped in the end. Both have been for a moment, so that each has more to write than fits into a socket:
//!
//! 1. the shim is stopped, and requests queue for it;
//! 2. containerd is stopped, the shim goes on: its answers fill the socket, and others wait in the shim;
//! 3. the shim is stopped again, containerd goes on: it reads the answers; all this again, until a whole socket of them waits;
//! 4. new requests fill the socket;
//! 5. the shim goes on: the answers that wait in it fill the socket before it has read so many requests that containerd may write.
//!
//! A writer is told of room only when three quarters of what it has written are read (`unix_writable` in net/unix/af_unix.c).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::guard::{Facts, Fault, HANGING};
use super::killed::start_again;
use super::stopped::stop_process;
use crate::cri::{Call, Client, Pod};
use crate::node::Node;
use crate::{process, unread};

/// Requests that fit into a socket: each takes 768 bytes of its 208 KiB. An answer takes 1280.
const FITS: u64 = 270;
/// More than fit into it.
const MORE: u64 = 500;
/// Bytes of a request and of an answer as they are read.
const REQUEST: u64 = 155;
const ANSWER: u64 = 230;
/// So many answers more than fit into a socket have to wait in the shim: containerd takes a buffer of them (4096 bytes, `newChannel` in
/// channel.go of ttrpc 1.0) before it waits to write, and the shim as many bytes of requests.
const OVER: u64 = 40;
/// What is piled up at once adds a hundred answers to those that wait; on a busy machine, the shim reads fewer requests before it waits
/// to write.
const PILES: u32 = 8;
/// Times that it is tried, and how long a connection that does not jam may look as if it did.
const TRIES: u32 = 6;
const GOES_ON: Duration = Duration::from_secs(5);
/// A socket has at least so many bytes to read when it is full, or nearly.
const FULL: u64 = 30_000;
/// A socket that gets full does so within this.
const SETTLES: Duration = Duration::from_secs(15);
/// Looks at a queue that find the same.
const SAME: u32 = 5;
/// As long as both have something to read, and do not.
const JAMMED: Duration = Duration::from_millis(500);

/// Jams the connection between containerd and the shim of `pod`; a new containerd heals it, and ends no container.
///
/// # Errors
///
/// The runtime is not one that has this defect, or the connection goes on.
pub fn jammed_socket(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let (runtime, client) = (containerd.pid(), containerd.client());
    let shim = containerd.shim_of(&pod.sandbox)?;
    let ids = vec![pod.sandbox.clone(), pod.container.clone()];
    let facts = Facts {
        culprits: vec![runtime],
        victims: vec![shim],
        pod: pod.name.clone(),
        ids,
        ..Facts::default()
    };
    let (daemon, own) = (containerd.daemon().clone(), client.clone());
    let mut fault = Fault::new(facts).healed_by(move || {
        daemon.kill()?;
        start_again(&daemon, &own)
    });

    for _ in 0..TRIES {
        let piled;
        (fault, piled) = pile(fault, client, &pod.container, [runtime, shim])?;
        if piled && jams(runtime, shim)? {
            ensure!(!fault.hanging().is_empty(), "every request was answered");
            return Ok(fault);
        }
    }
    bail!("{TRIES} times the connection went on")
}

/// Piles answers up in the shim until enough wait, or as many as this machine allows, then requests in its socket, and lets both go on.
/// False when a socket did not get full, which was seen once on a busy machine.
fn pile(
    mut fault: Fault,
    client: &Client,
    container: &str,
    [runtime, shim]: [u32; 2],
) -> Result<(Fault, bool)> {
    let mut stopped = stop_process(shim)?;
    // What a pile begins with is not enough: containerd may need a moment to write the rest.
    let (mut full, mut next) = (FULL, FITS);
    for _ in 0..PILES {
        let there = unread::of(shim)? / REQUEST;
        fault = ask(fault, client, container, next.saturating_sub(there))?;
        let least = full.min(next * REQUEST * 19 / 20);
        let Some(settled_at) = settled(least, shim, runtime)? else { return Ok((fault, false)) };
        full = full.max(settled_at * 19 / 20);
        let stopped_runtime = stop_process(runtime)?;
        drop(stopped);
        if settled(FULL, runtime, shim)?.is_none() {
            return Ok((fault, false));
        }
        stopped = stop_process(shim)?;
        let (requests, answers) = (unread::of(shim)? / REQUEST, unread::of(runtime)? / ANSWER);
        drop(stopped_runtime);
        let waiting = (fault.hanging().len() as u64).saturating_sub(requests + answers);
        if waiting >= answers + OVER {
            break;
        }
        next = next_pile(waiting, answers);
    }
    fault = ask(fault, client, container, MORE)?;
    let is_full = settled(full, shim, runtime)?.is_some();
    drop(stopped);
    Ok((fault, is_full))
}

/// How many requests to pile up when so many answers wait in the shim, and so many fit into a socket: all that fit if enough answers
/// wait afterwards, or if it reads them all. A shim with nearly a socket of answers does not: it writes these, and waits to write.
fn next_pile(waiting: u64, answers: u64) -> u64 {
    let (after_all, readable) = ((waiting + FITS).saturating_sub(answers), answers * 7 / 10);
    if after_all >= answers + OVER || after_all <= readable {
        FITS
    } else {
        (readable + answers).saturating_sub(waiting)
    }
}

/// Asks for the figures of a container, so many times at once: an answer is larger than its request.
fn ask(fault: Fault, client: &Client, container: &str, count: u64) -> Result<Fault> {
    (0..count).try_fold(fault, |fault, _| {
        let container = container.to_owned();
        let call =
            Call::start(client, "ContainerStats", move |client| client.container_stats(&container, HANGING))?;
        Ok(fault.holding(call))
    })
}

/// Waits until `reader` has so much to read, and as much at each look, while `writer` has nothing to do; how much that is, and `None`
/// when it does not come to that. What a busy machine has not let run yet is no rest.
fn settled(least: u64, reader: u32, writer: u32) -> Result<Option<u64>> {
    let (mut last, mut same, began) = (0, 0, Instant::now());
    while began.elapsed() < SETTLES {
        let now = unread::of(reader)?;
        let rests = now >= least && now == last && process::rests(writer);
        same = if rests { same + 1 } else { 0 };
        if same >= SAME {
            return Ok(Some(now));
        }
        last = now;
        thread::sleep(process::POLL);
    }
    Ok(None)
}

/// Does neither read anything for a while, although both could? With fewer answers that wait in the shim it is a matter of luck, for
/// those of the requests that it reads come in between.
fn jams(runtime: u32, shim: u32) -> Result<bool> {
    let (mut last, mut since) = ((0, 0), Instant::now());
    let began = Instant::now();
    while began.elapsed() < GOES_ON {
        let now = (unread::of(runtime)?, unread::of(shim)?);
        if now != last || now.0 == 0 || now.1 == 0 {
            (last, since) = (now, Instant::now());
        }
        let stands = [runtime, shim].iter().all(|pid| process::state(*pid) != Some('T'));
        if stands && since.elapsed() >= JAMMED {
            return Ok(true);
        }
        thread::sleep(process::POLL);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As measured: 99 answers that wait become 121, and these 226; where fewer answers fit, two full piles do; and a busy shim that has
    /// read less gets a little more to do.
    #[test]
    fn a_pile_is_one_that_the_shim_reads() {
        assert_eq!(next_pile(0, 0), FITS);
        assert_eq!(next_pile(99, 171), 191);
        assert_eq!(next_pile(121, 173), FITS);
        assert_eq!(next_pile(110, 160), FITS);
        assert_eq!(next_pile(51, 171), 239);
    }
}
