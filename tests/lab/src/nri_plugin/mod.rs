//! A plugin of NRI that asks the runtime for updates without an end, with the library that containerd 1.7 of trixie has; its source,
//! `main.go`, is ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::packages::{self, Suite};
use crate::registered::Registered;
use crate::{cache, golang, host, rebuilt};

/// Where it lies in the cache; another name when its source changes.
const ENTRY: &str = "nri-plugin-1";
const NAME: &str = "nri-plugin";
/// The program, as a Go package.
const PACKAGE: &str = "plegtrace/nri-plugin";

/// The path of the program, built when the cache does not have it yet (half a minute on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        let gopath = rebuilt::fetch()?.path("usr/share/gocode")?;
        let goroot = packages::go(Suite::Trixie, "1.24")?;
        host::progress("building a plugin of NRI: half a minute, once");
        let work = tempfile::tempdir_in(dir).context("cannot make a build directory")?;
        let file = gopath.join("src").join(PACKAGE).join("main.go");
        let overlay = golang::overlay(&[(file, include_str!("main.go").to_owned())], work.path())?;
        let mut go = golang::build(&goroot, &gopath, work.path())?;
        go.arg("-overlay").arg(overlay).args(["-ldflags", "-s -w", "-o"]).arg(dir.join(NAME));
        host::run(go.arg(PACKAGE)).map(drop)
    })?;
    Ok(dir.join(NAME))
}

/// A running plugin; it ends when it is dropped, or with the thread that started it.
#[derive(Debug)]
pub struct NriPlugin {
    _program: Registered,
}

impl NriPlugin {
    /// Starts one that registers at the runtime behind `socket`, and waits until that knows it.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when it does not register.
    pub fn start(socket: &Path) -> Result<NriPlugin> {
        let mut command = Command::new(program()?);
        command.arg(socket);
        Ok(NriPlugin { _program: Registered::start(command, "plugin of NRI")? })
    }
}
