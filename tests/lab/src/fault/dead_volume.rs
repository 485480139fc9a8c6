//! The volume of a pod that is gone, still mounted from a server that does not answer (K5): the kubelet looks every two seconds
//! whether it may remove the pod's directory, in its sync loop, and does not come back from there.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use super::answerers::DeadMount;
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::node::Node;
use crate::process;

/// Where volumes of a pod lie in its directory.
const VOLUME: &str = "volumes/kubernetes.io~nfs/data";

/// The directory of a pod that is gone, with a dead mount as a volume: the kubelet's sync loop hangs, relists go on.
///
/// # Errors
///
/// When the kernel has no FUSE, or the kubelet does not ask for the volume.
pub fn dead_volume(node: &Node) -> Result<Fault> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let kubelet = node.kubelet();
    let uid = format!("dead0000-0000-4000-8000-{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
    let pod = kubelet.pod_directory(&uid);
    let mount = DeadMount::mount(pod.join(VOLUME))?;
    let facts = Facts {
        victims: vec![kubelet.pid()],
        culprits: vec![std::process::id()],
        path: Some(mount.place.clone()),
        ..Facts::default()
    };
    let fault = Fault::new(facts).healed_by(move || mount.unmount());
    let fault = fault.cleaned_by(move || match fs::remove_dir_all(&pod) {
        // A kubelet that goes on removes it, too.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("cannot remove the directory of a pod")
        }
        _ => Ok(()),
    });
    process::wait_for("a kubelet that waits for FUSE", EFFECT_LIMIT, || {
        let waits = |thread: &process::Blocked| thread.wchan.contains("request_wait_answer");
        Ok(process::blocked_threads(kubelet.pid()).iter().any(waits).then_some(()))
    })?;
    Ok(fault)
}
