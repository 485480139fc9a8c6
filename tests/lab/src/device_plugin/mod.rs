//! A device plugin with the library that the lab's kubelet has. It stops itself when it is asked for its device; its source, `main.go`, is
//! ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::registered::Registered;
use crate::{cache, host, kubelet};

/// What a pod asks for that wants its device.
pub const RESOURCE: &str = "plegtrace.lab/device";
/// Where it lies in the cache; another name when its source changes.
const ENTRY: &str = "device-plugin-1";

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
    program: Registered,
}

impl DevicePlugin {
    /// Starts one that registers at the kubelet whose sockets of plugins are in `directory`, and waits until that knows its device.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when it does not register.
    pub fn start(directory: &Path) -> Result<DevicePlugin> {
        let mut command = Command::new(program()?);
        command.arg(directory);
        Ok(DevicePlugin { program: Registered::start(command, "device plugin")? })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }
}
