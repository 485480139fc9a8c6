//! A container that runc makes by itself, without containerd: it waits to be started, and its init is nobody's child.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::container::{PROGRAM, Rootfs};
use crate::wait::{self, BUDGET};

/// Its name: as runtimes give them, because only so a cgroup tells whose it is.
pub const ID: &str = "f4ee2e0000000000000000000000000000000000000000000000000000000001";

/// One that was made. Removed when dropped, whatever it does.
#[derive(Debug)]
pub struct Bundle(PathBuf);

impl Bundle {
    /// Makes it (`runc create`).
    ///
    /// # Errors
    /// When runc does not.
    pub fn create(rootfs: &Rootfs) -> Result<Self> {
        let bundle = Self(PathBuf::from("/var/tmp/plegtrace-bundle"));
        fs::create_dir_all(&bundle.0)?;
        wait::output(Command::new("runc").arg("spec").arg("--bundle").arg(&bundle.0), BUDGET)?;
        let config = bundle.0.join("config.json");
        let mut spec: Value = serde_json::from_str(&fs::read_to_string(&config)?)?;
        spec["process"]["terminal"] = Value::Bool(false);
        spec["process"]["args"] = json!([PROGRAM, "1000"]);
        spec["root"]["path"] = json!(rootfs.path());
        spec["linux"]["cgroupsPath"] = json!(format!("/plegtrace/{ID}"));
        fs::write(config, spec.to_string())?;
        // Its init keeps what it is given.
        let mut create = Command::new("runc");
        create.arg("create").arg("--bundle").arg(&bundle.0).arg(ID);
        create.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = create.status().context("no runc")?;
        ensure!(status.success(), "runc create ended with {status}");
        Ok(bundle)
    }

    /// Starts it, and does not wait until it runs.
    ///
    /// # Errors
    /// When runc does not.
    pub fn start(&self) -> Result<()> {
        wait::output(Command::new("runc").args(["start", ID]), BUDGET).map(drop)
    }

    /// Its first process.
    ///
    /// # Errors
    /// When runc does not know it.
    pub fn init(&self) -> Result<u32> {
        let state = wait::output(Command::new("runc").args(["state", ID]), BUDGET)?;
        let state: Value = serde_json::from_str(&state)?;
        let pid = state["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.filter(|pid| *pid > 0).with_context(|| format!("no process in {state}"))
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        drop(wait::output(Command::new("runc").args(["delete", "--force", ID]), BUDGET));
        drop(fs::remove_dir_all(&self.0));
    }
}
