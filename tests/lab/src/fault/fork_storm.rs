//! containerd without processor time (O1), because a program that starts many short ones has the processor: at each look they are others.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use super::held_off::{HOGGED, may_use, processors, relist_time};
use crate::node::Node;
use crate::process::Process;

/// The name under which the shell runs that starts them.
pub const FORK_STORM: &str = "forkstorm";
/// Short programs before all that are not real-time, then a moment for the others: the turns of a hog, so that no relist falls into
/// such moments again and again. The kernel itself would make a moment each second.
const SCRIPT: &str = "while :; do end=$((${EPOCHREALTIME/./} + 290000)); \
     while [[ ${EPOCHREALTIME/./} -lt $end ]]; do /bin/true; done; sleep 0.02; done";

/// A shell starts one short program after the other on the only processor that containerd may use.
///
/// # Errors
///
/// containerd cannot be moved, or relists do not become slow.
pub fn fork_storm(node: &Node) -> Result<Fault> {
    let (containerd, cpu) = (node.containerd().pid(), (processors() - 1).to_string());
    let all = format!("0-{cpu}");
    let scratch = node.containerd().scratch();
    let shell = scratch.path().join(FORK_STORM);
    fs::copy("/bin/bash", &shell).context("cannot copy the shell")?;
    let facts = Facts { culprits: vec![containerd], ..Facts::default() };
    let fault = Fault::new(facts).healed_by(move || may_use(containerd, &all));
    may_use(containerd, &cpu)?;
    let mut storm = Command::new("taskset");
    storm.args(["-c", &cpu, "chrt", "-f", "1"]).arg(&shell).args(["-c", SCRIPT]);
    let mut storm = scratch.spawn(&mut storm, &scratch.path().join("forkstorm.log"))?;
    let running = Process::running(storm.id()).context("the storm has ended")?;
    let fault = fault.healed_by(move || {
        running.kill(EFFECT_LIMIT)?;
        storm.wait().context("cannot wait for the storm").map(drop)
    });
    let takes = relist_time(node)?;
    ensure!(takes >= HOGGED, "a relist takes only {takes:.0?} beside the storm");
    Ok(fault)
}
