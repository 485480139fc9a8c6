//! A plugin of NRI that asks the runtime for updates without an end, with the library that containerd 1.7 of trixie has; its source,
//! `main.go`, is ours.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::packages::{self, Suite};
use crate::{cache, golang, host, rebuilt};

/// Where it lies in the cache; another name when its source changes.
const ENTRY: &str = "nri-plugin-1";
const NAME: &str = "nri-plugin";
/// The program, as a Go package.
const PACKAGE: &str = "plegtrace/nri-plugin";
/// What it writes once the runtime knows it.
const REGISTERED: &str = "registered";

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
    child: Child,
}

impl NriPlugin {
    /// Starts one that registers at the runtime behind `socket`, and waits until that knows it.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when it does not register.
    pub fn start(socket: &Path) -> Result<NriPlugin> {
        let mut command = Command::new(program()?);
        command.arg(socket).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut plugin = NriPlugin { child: command.spawn().context("cannot run the plugin of NRI")? };
        let output = plugin.child.stdout.take().context("the plugin of NRI has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("cannot read what the plugin of NRI says")?;
        ensure!(line.trim_end() == REGISTERED, "the plugin of NRI does not register: {line:?}");
        Ok(plugin)
    }
}

impl Drop for NriPlugin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
