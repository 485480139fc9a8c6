//! A daemon in a cgroup with a quota of processor time (O1). Version 1 of cgroups, or version 2 where its controller is
//! there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::node::Node;
use crate::process;

/// The controller in version 1.
const V1: &str = "/sys/fs/cgroup/cpu";
/// The root of version 2.
const V2: &str = "/sys/fs/cgroup";
/// What a quota is of.
const PERIOD: Duration = Duration::from_millis(200);
/// The least that the kernel grants in a period (`min_cfs_quota_period`, kernel/sched/core.c).
const LEAST: Duration = Duration::from_millis(1);
/// The smallest share of a CPU that it grants.
pub const LEAST_SHARE: f64 = 0.005;

/// Lets a daemon of the node use this share of one CPU, with all its threads.
///
/// # Errors
///
/// The cgroup cannot be made, or the process cannot be moved.
pub fn throttled(node: &Node, pid: u32, share: f64) -> Result<Fault> {
    confined(node, pid, |group| set_share(group, share))
}

/// Moves a daemon into a cgroup of its own, which is set up before.
fn confined(node: &Node, pid: u32, set_up: impl FnOnce(&Path) -> Result<()>) -> Result<Fault> {
    let is_v1 = PathBuf::from(V1).join("cgroup.procs").exists();
    let root = PathBuf::from(if is_v1 { V1 } else { V2 });
    let home = root.join(own_group(pid, if is_v1 { "cpu" } else { "" })?);
    let parent = root.join(node.containerd().scratch().network());
    let group = parent.join("confined");
    if !is_v1 {
        fs::write(root.join("cgroup.subtree_control"), "+cpu")
            .context("there is no controller of processors")?;
    }
    fs::create_dir_all(&group).context("cannot make a cgroup")?;
    if !is_v1 {
        fs::write(parent.join("cgroup.subtree_control"), "+cpu")
            .context("cannot hand the controller down")?;
    }
    set_up(&group)?;
    let facts = Facts { culprits: vec![pid], path: Some(group.clone()), ..Facts::default() };
    let gone = group.clone();
    let fault = Fault::new(facts).healed_by(move || {
        leave(&gone, &home)?;
        // Others may be below it.
        let _ = fs::remove_dir(&parent);
        Ok(())
    });
    fs::write(group.join("cgroup.procs"), pid.to_string()).context("cannot move a process")?;
    Ok(fault)
}

/// Moves all that are in `group` to `home`, the daemon and who was started by it (the shim of a pod), and removes it.
fn leave(group: &Path, home: &Path) -> Result<()> {
    let inside = || fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let left = process::wait_for("the end of the cgroup", EFFECT_LIMIT, || {
        for pid in inside().lines() {
            // It may have ended; who stays, is told below.
            let _ = fs::write(home.join("cgroup.procs"), pid);
        }
        Ok((fs::remove_dir(group).is_ok() || !group.exists()).then_some(()))
    });
    left.with_context(|| format!("in {} are still: {}", group.display(), named(&inside())))
}

/// These processes, each with its name.
fn named(pids: &str) -> String {
    let name = |pid: &str| format!("{pid} {}", pid.parse().map(process::name).unwrap_or_default());
    pids.lines().map(name).collect::<Vec<_>>().join(", ")
}

/// Changes the share that a throttled daemon may use.
///
/// # Errors
///
/// The daemon is not throttled any more, or this is less than the kernel grants.
pub fn throttle(throttled: &Fault, share: f64) -> Result<()> {
    set_share(throttled.facts().path.as_deref().context("nothing is throttled")?, share)
}

pub(super) fn set_share(group: &Path, share: f64) -> Result<()> {
    let quota = PERIOD.mul_f64(share);
    ensure!(
        quota >= LEAST,
        "the kernel grants no less than {LEAST:?} of {PERIOD:?}, and {quota:?} are wanted"
    );
    let (quota, period) = (quota.as_micros(), PERIOD.as_micros());
    let (of_v1, of_v2) = (group.join("cpu.cfs_quota_us"), group.join("cpu.max"));
    if of_v1.exists() {
        fs::write(group.join("cpu.cfs_period_us"), period.to_string()).context("cannot set a period")?;
        fs::write(of_v1, quota.to_string()).context("cannot set a quota")
    } else {
        fs::write(of_v2, format!("{quota} {period}")).context("cannot set a quota")
    }
}

/// Where a process is now, below the root of the hierarchy of version 1 with this controller, or with none of version 2.
pub(super) fn own_group(pid: u32, wanted: &str) -> Result<String> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/cgroup")).context("cannot read a process's cgroups")?;
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|controller| controller == wanted).then_some(path)
    });
    Ok(path
        .with_context(|| format!("process {pid} is in no such cgroup"))?
        .trim_start_matches('/')
        .to_owned())
}
