//! A shim that accepts and does not answer, met by a containerd that starts (R9).
//!
//! containerd connects to every shim that it finds before it serves anything. How long it waits for one is a setting of its
//! own (`io.containerd.timeout.shim.load`, five seconds): here it is longer than any test, as if a call had no deadline.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use super::guard::{EFFECT_LIMIT, Facts, Fault};
use super::self_locked_shim::self_locked_shim;
use super::stopped::stop_process;
use crate::containerd::Containerd;
use crate::cri::Pod;
use crate::node::Node;
use crate::promtext::Page;
use crate::{http, process};

/// Appended to the configuration: it ends in a table, and begins another one.
const TIMEOUTS: &str = r#"
[timeouts]
  "io.containerd.timeout.shim.load" = "2h"
  "io.containerd.timeout.shim.cleanup" = "2h"
"#;
/// When the last relist began that got its list, in seconds since 1970.
const LAST_LIST: &str = "kubelet_pleg_last_seen_seconds";
/// A client that was refused for long tries again later and later: every two minutes in the end (gRPC, `MaxDelay`).
const RECONNECT_LIMIT: Duration = Duration::from_secs(150);
/// What it logs once it takes signals.
const STARTS: &str = "starting containerd";
/// The function that waits for one shim, in every containerd since 1.3.
const LOADS: &str = ".loadShim(";

/// Stops the shim of `pod`, then kills containerd and starts it again: it waits for that shim and serves nothing.
///
/// # Errors
///
/// When the shim cannot be stopped, or containerd does not wait for it.
pub fn old_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let shim = containerd.shim_of(&pod.sandbox)?;
    let ids = vec![pod.sandbox.clone(), pod.container.clone()];
    let path = Some(containerd.socket().to_owned());
    let facts = Facts { culprits: vec![shim], pod: pod.name.clone(), ids, path, ..Facts::default() };
    let config = Patience::of(containerd.config_path())?;
    let stopped = stop_process(shim)?;
    let (client, metrics) = (containerd.client().clone(), node.kubelet().read_only_address());
    let fault = Fault::new(facts).healed_by(move || {
        drop((stopped, config));
        process::wait_for("an answer of containerd", EFFECT_LIMIT, || {
            Ok(client.version(Duration::from_secs(2)).ok().map(drop))
        })
    });
    let fault = fault.cleaned_by(move || wait_for_list(metrics));
    begin_start(containerd)?;
    wait_for_load(containerd)?;
    Ok(fault)
}

/// The shim of `pod` has locked itself out ([`super::self_locked_shim`]): it reads what it is asked, and does not answer. Then containerd
/// is killed and started again, and waits for that shim.
///
/// # Errors
///
/// As of both.
pub fn silent_old_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let config = Patience::of(containerd.config_path())?;
    let (client, metrics) = (containerd.client().clone(), node.kubelet().read_only_address());
    let fault = self_locked_shim(node, pod)?.healed_by(move || {
        drop(config);
        process::wait_for("an answer of containerd", EFFECT_LIMIT, || {
            Ok(client.version(Duration::from_secs(2)).ok().map(drop))
        })
    });
    begin_start(containerd)?;
    wait_for_load(containerd)?;
    Ok(fault.cleaned_by(move || wait_for_list(metrics)))
}

/// Waits for a start that waits for a shim.
fn wait_for_load(containerd: &Containerd) -> Result<()> {
    process::wait_for("a start that waits for a shim", EFFECT_LIMIT, || {
        let stacks = containerd.dump_goroutines()?;
        Ok(stacks.contains(LOADS).then_some(()))
    })
}

/// Starts containerd anew, and waits until it takes signals.
fn begin_start(containerd: &Containerd) -> Result<()> {
    let log = containerd.log_path();
    let starts = || Ok::<_, anyhow::Error>(fs::read_to_string(&log)?.matches(STARTS).count());
    containerd.daemon().kill()?;
    let before = starts()?;
    containerd.daemon().restart()?;
    process::wait_for(
        "the first words of containerd",
        EFFECT_LIMIT,
        || Ok((starts()? > before).then_some(())),
    )
}

/// Until the kubelet has got a list that it began to ask for after this.
fn wait_for_list(metrics: SocketAddr) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    process::wait_for("a list of the kubelet", RECONNECT_LIMIT, || {
        // For its page the kubelet asks the runtime, too: an answer may take longer.
        let page =
            http::get(metrics, "/metrics", Duration::from_secs(10)).ok().map(|text| Page::parse(&text));
        let last = page.and_then(|page| page.value(LAST_LIST, &[]));
        Ok(last.filter(|last| *last > now).map(drop))
    })
}

/// A configuration with which containerd waits for ever; dropped, the file is what it was.
#[derive(Debug)]
struct Patience {
    file: PathBuf,
    before: String,
}

impl Patience {
    fn of(file: PathBuf) -> Result<Patience> {
        let before = fs::read_to_string(&file).context("cannot read containerd's configuration")?;
        fs::write(&file, format!("{before}{TIMEOUTS}")).context("cannot write containerd's configuration")?;
        Ok(Patience { file, before })
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // The lab may have ended, and its files with it.
        let _ = fs::write(&self.file, &self.before);
    }
}
