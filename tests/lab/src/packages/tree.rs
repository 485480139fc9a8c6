//! Turns package names into unpacked trees (`dpkg -x`) in the cache, and trees into the programs the lab runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Suite, apt};
use crate::{cache, host};

/// Some packages of one suite, unpacked together. Nothing in it is ever changed.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The directory that plays `/` for the unpacked packages.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A file or directory of the packages by its path below `/`.
    ///
    /// # Errors
    ///
    /// When the packages do not contain it.
    pub fn path(&self, relative: &str) -> Result<PathBuf> {
        let path = self.root.join(relative);
        ensure!(
            path.exists(),
            "the unpacked packages have no {relative}; remove {} and try again",
            self.root.display()
        );
        Ok(path)
    }

    /// `name_version` of each package in the tree.
    ///
    /// # Errors
    ///
    /// When the tree's record of its packages cannot be read.
    pub fn versions(&self) -> Result<Vec<String>> {
        let file = self.root.join("packages.txt");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// The `packages` of `suite`, unpacked into one tree of the cache (downloaded when not there yet).
///
/// # Errors
///
/// [`apt::Error::Gone`] in the chain when the archive no longer has them; otherwise what failed.
pub fn unpack(suite: Suite, packages: &[&str]) -> Result<Tree> {
    unpack_as(&packages.join("+"), suite, packages)
}

/// As [`unpack`], for more packages than fit into the name of a file: the tree is called `name`.
///
/// # Errors
///
/// As for [`unpack`].
pub fn unpack_as(name: &str, suite: Suite, packages: &[&str]) -> Result<Tree> {
    let root = cache::entry(&format!("trees/{suite}-{name}"), |dir| {
        host::progress(&format!("unpacking {} of {suite}", packages.join(" ")));
        let debs = tempfile::tempdir_in(dir).context("cannot make a directory for downloads")?;
        apt::download(suite, packages, debs.path())?;
        let mut versions = String::new();
        for deb in fs::read_dir(debs.path()).context("cannot list the downloads")? {
            let deb = deb.context("cannot list the downloads")?.path();
            host::run(Command::new("dpkg").arg("-x").arg(&deb).arg(dir))?;
            versions.push_str(&host::run(
                Command::new("dpkg-deb").args(["--showformat=${Package}_${Version}\n", "-W"]).arg(&deb),
            )?);
        }
        fs::write(dir.join("packages.txt"), versions).context("cannot record the versions")
    })?;
    Ok(Tree { root })
}

/// containerd of `suite`, with its `ctr` and its own shim in `usr/bin`.
///
/// # Errors
///
/// As for [`unpack`].
pub fn containerd(suite: Suite) -> Result<Tree> {
    unpack(suite, &["containerd"])
}

/// runc of `suite`. Bookworm's runs everywhere; trixie's and sid's need a newer libc than bookworm has, bullseye's is
/// Debian's repaired 1.0.0~rc93.
///
/// # Errors
///
/// As for [`unpack`].
pub fn runc(suite: Suite) -> Result<Tree> {
    unpack(suite, &["runc"])
}

/// Docker of `suite`: dockerd in `usr/sbin`, its client in `usr/bin`. It has no containerd and no runc of its own.
///
/// # Errors
///
/// As for [`unpack`].
pub fn docker(suite: Suite) -> Result<Tree> {
    unpack(suite, &["docker.io"])
}

/// The statically linked busybox, the only program of the lab's image besides `/pause`.
///
/// # Errors
///
/// As for [`unpack`].
pub fn busybox() -> Result<PathBuf> {
    unpack(Suite::Bookworm, &["busybox-static"])?.path("bin/busybox")
}

/// The directory of CNI plugins (bridge, host-local, loopback).
///
/// # Errors
///
/// As for [`unpack`].
pub fn cni_plugins() -> Result<PathBuf> {
    unpack(Suite::Bookworm, &["containernetworking-plugins"])?.path("usr/lib/cni")
}

/// The GOROOT of the Go toolchain `version` (`"1.15"`) of `suite`; its compiler is `bin/go` there.
///
/// # Errors
///
/// As for [`unpack`].
pub fn go(suite: Suite, version: &str) -> Result<PathBuf> {
    let (compiler, library) = (format!("golang-{version}-go"), format!("golang-{version}-src"));
    unpack(suite, &[&compiler, &library])?.path(&format!("usr/lib/go-{version}"))
}
