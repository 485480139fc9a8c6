//! A device plugin with the library that the lab's kubelet has. It stops itself when it is asked for its device; its source, `main.go`, is
//! ours.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{cache, host, kubelet};

/// What a pod asks for that wants its device.
pub const RESOURCE: &str = "plegtrace.lab/device";
/// Where it lies in the cache; another name when its source changes.
const ENTRY: &str = "device-plugin-1";
/// What it writes once the kubelet knows its device.
const REGISTERED: &str = "registered";

/// The path of the program, built when the cache does not have it yet (a minute on two cores, after the kubelet).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had, or the build fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        host::progress("building a device plugin with Kubernetes' own library: a minute, once");
        let package = "cmd/plegtrace-device-plugin";
        let text = (format!("{package}/main.go"), include_str!("main.go").to_owned());
        kubelet::Beside::open()?.build(package, &[text], &dir.join("device-plugin"))
    })?;
    Ok(dir.join("device-plugin"))
}

/// A running plugin; it ends when it is dropped, or with the thread that started it.
#[derive(Debug)]
pub struct DevicePlugin {
    child: Child,
}

impl DevicePlugin {
    /// Starts one that registers at the kubelet whose sockets of plugins are in `directory`, and waits until that knows its device.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when it does not register.
    pub fn start(directory: &Path) -> Result<DevicePlugin> {
        let mut command = Command::new(program()?);
        command.arg(directory).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut plugin = DevicePlugin { child: command.spawn().context("cannot run the device plugin")? };
        let output = plugin.child.stdout.take().context("the device plugin has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("cannot read what the device plugin says")?;
        ensure!(line.trim_end() == REGISTERED, "the device plugin does not register: {line:?}");
        Ok(plugin)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
