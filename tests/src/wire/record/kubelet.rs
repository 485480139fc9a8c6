//! A real kubelet that starts, runs and ends a pod more, and relists.

use std::os::unix::net::UnixStream;

use anyhow::Result;
use plegtrace_lab::{Containerd, Knobs, kubelet::Kubelet, process};

use super::{
    LIMIT,
    metrics::{all_handled, handled},
    one_pod_more,
};
use crate::wire::{Capture, relay::Relay};

/// Times that the kubelet lists its pods; one a second and some.
const LISTS: u64 = 30;
/// What all versions of the CRI begin with.
const CRI: &str = "runtime.";

/// The runtime counts, from its start on. Whoever asks it goes through the relay, also the lab, which looks after its pods.
pub(super) fn capture(knobs: &Knobs) -> Result<Capture> {
    let containerd = Containerd::start(knobs)?;
    containerd.daemon().kill()?;
    containerd.daemon().restart()?;
    process::wait_for("containerd's socket", LIMIT, || Ok(UnixStream::connect(containerd.socket()).ok()))?;
    let relay = Relay::insert(containerd.socket())?;
    let kubelet = Kubelet::start(&containerd, knobs)?;
    one_pod_more(&kubelet)?;
    // Nobody else lists from here on. Not by the kubelet's metrics: whoever reads them makes it ask its runtime.
    let lists = || {
        let tally = handled(&containerd.metrics(LIMIT)?, CRI);
        let lists = tally.iter().filter(|((method, _), _)| method.ends_with("/ListPodSandbox"));
        Ok::<u64, anyhow::Error>(lists.map(|(_, count)| count).sum())
    };
    let before = lists()?;
    process::wait_for("lists", LIMIT * 2, || Ok((lists()? >= before + LISTS).then_some(())))?;
    drop(kubelet);
    let tally = all_handled(&containerd, CRI)?;
    // The lab's client stays connected as long as this lives.
    containerd.daemon().kill()?;
    Ok(Capture { chunks: relay.finish(), tally })
}
