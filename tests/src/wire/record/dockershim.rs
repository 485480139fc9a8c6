//! A kubelet with its dockershim that starts, runs and ends a pod more, relists, and probes by commands.

use std::fs;

use anyhow::{Result, ensure};
use plegtrace_lab::{Containerd, Docker, Knobs, fault, kubelet::Kubelet, process};

use super::{
    LIMIT,
    docker_log::{handled, logged},
    one_pod_more,
};
use crate::wire::{Capture, relay::Relay};

/// Requests for what is not there.
const ASKED: usize = 5;
/// Times that a command has run in the pod; a probe runs one each second.
const COMMANDS: u64 = 10;

/// dockerd says which requests it has handled.
pub(super) fn capture(knobs: Knobs) -> Result<Capture> {
    let knobs = Knobs { docker: true, exec_probes: true, ..knobs };
    let containerd = Containerd::start(&knobs)?;
    let docker = Docker::start(&containerd, &knobs)?;
    docker.log_requests()?;
    let before = fs::read_to_string(docker.log_path())?.len();
    let log = || Ok::<_, anyhow::Error>(fs::read_to_string(docker.log_path())?.split_off(before));
    let relay = Relay::insert(docker.api().socket())?;
    let kubelet = Kubelet::start_on_docker(&docker, &containerd, &knobs)?;
    one_pod_more(&kubelet)?;
    for _ in 0..ASKED {
        let answer = docker.api().get("/containers/there-is-none/json", LIMIT);
        ensure!(answer.is_err_and(|error| format!("{error:#}").contains("404 Not Found")), "it is there");
    }
    process::wait_for("commands", LIMIT, || {
        let commands = logged(&log()?)?.get("POST /exec/{id}/start").copied();
        Ok((commands >= Some(COMMANDS)).then_some(()))
    })?;
    // Whatever it has asked is answered before it goes.
    let stopped = fault::stop_process(kubelet.pid())?;
    process::wait_for("all answers", LIMIT, || Ok(relay.is_answered().then_some(())))?;
    drop(kubelet);
    drop(stopped);
    let chunks = relay.finish();
    let tally = handled(&log()?, &chunks)?;
    Ok(Capture { chunks, tally })
}
