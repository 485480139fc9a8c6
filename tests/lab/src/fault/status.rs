//! A runtime whose `Status` is not answered while its lists are (L2).
//!
//! containerd reloads its CNI configuration when a file in its directory is renamed, written or removed
//! (cni_conf_syncer.go), under the write lock of go-cni (`(*libcni).Load`); `Status` and the set-up of networks want its
//! read lock. A FIFO there, which nobody writes into, holds the reload in open(2) with that lock.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::guard::{BLOCKED_AFTER, CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::Call;
use crate::node::Node;
use crate::process;

/// Sorts before the lab's own configuration.
const NAME: &str = "00-fifo.conflist";
/// No configuration by its name; that it gets the other one begins the reload.
const HIDDEN: &str = ".fifo";

/// Puts a FIFO into the directory of CNI configurations: `Status` hangs, lists are answered.
///
/// # Errors
///
/// When the FIFO cannot be made, containerd does not read it, or `Status` is answered still.
pub fn status_hangs(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    let (pid, client) = (containerd.pid(), containerd.client());
    let (hidden, fifo) = (containerd.cni_directory().join(HIDDEN), containerd.cni_directory().join(NAME));
    make_fifo(&hidden)?;
    fs::rename(&hidden, &fifo).context("cannot rename the FIFO")?;
    let path = Some(fifo.clone());
    let facts = Facts { culprits: vec![pid], path, ..Facts::default() };
    let fault = Fault::new(facts).healed_by(move || let_go(&fifo));
    process::wait_for("a reload of the CNI configuration that waits", EFFECT_LIMIT, || {
        let opens = |thread: &process::Blocked| thread.syscall == libc::SYS_openat;
        Ok(process::blocked_threads(pid).iter().any(opens).then_some(()))
    })?;
    let fault = fault.holding(Call::start(client, "Status", |client| client.status(HANGING).map(drop))?);
    process::wait_for("an unanswered Status", EFFECT_LIMIT, || {
        Ok(client.status(BLOCKED_AFTER).is_err_and(|error| error.is_deadline()).then_some(()))
    })?;
    client.list_containers(CALL_LIMIT).context("the lists should be answered")?;
    Ok(fault)
}

/// A FIFO that nobody has open.
pub(super) fn make_fifo(path: &Path) -> Result<()> {
    let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
    // SAFETY: mkfifo reads a string that ends with a zero and lives until it returns.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()).with_context(|| format!("cannot make {}", path.display()))
}

/// Opens the other end, so that the reader sees an empty file, and takes the FIFO away, so that the reload for its
/// removal sees what was there before.
fn let_go(fifo: &Path) -> Result<()> {
    // An error is that nobody reads (ENXIO).
    let other = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(fifo);
    let removed = fs::remove_file(fifo).context("cannot remove the FIFO");
    drop(other);
    removed
}
