//! Turns Debian's source package `kubernetes` into a real kubelet 1.20.2, once, in the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::packages::{self, Suite};
use crate::{cache, host};

/// Which compiler builds the kubelet: the sources are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KubeletBuild {
    /// Bookworm's Go 1.19: register ABI.
    #[default]
    Go119,
    /// Bullseye's Go 1.15: stack ABI, older pclntab.
    Go115,
}

impl KubeletBuild {
    fn toolchain(self) -> Result<PathBuf> {
        match self {
            KubeletBuild::Go119 => packages::go(Suite::Bookworm, "1.19"),
            KubeletBuild::Go115 => packages::go(Suite::Bullseye, "1.15"),
        }
    }

    fn label(self) -> &'static str {
        match self {
            KubeletBuild::Go119 => "go1.19",
            KubeletBuild::Go115 => "go1.15",
        }
    }
}

/// The path of the kubelet, built when the cache does not have it yet (some minutes on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program(build: KubeletBuild) -> Result<PathBuf> {
    let label = build.label();
    let dir = cache::entry(&format!("kubelet-1.20.2-{label}"), |dir| {
        let source = source()?;
        let goroot = build.toolchain()?;
        host::progress(&format!("building kubelet 1.20.2 with {label}: some minutes, once"));
        compile(&source, &goroot, dir)
    })?;
    Ok(dir.join("kubelet"))
}

/// The downloaded files of the source package.
fn source() -> Result<PathBuf> {
    cache::entry("source/kubernetes", |dir| {
        host::progress("downloading the source package kubernetes of bookworm");
        packages::download_source(Suite::Bookworm, "kubernetes", dir)
    })
}

/// Compiles in a directory next to `into` and leaves there only the program: the sources and Go's cache are ten times
/// its size.
fn compile(source: &Path, goroot: &Path, into: &Path) -> Result<()> {
    host::ensure(&["dpkg-dev", "xz-utils"])?;
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let tree = work.path().join("kubernetes");
    host::run(
        Command::new("dpkg-source").args(["--no-check", "-q", "-x"]).arg(description(source)?).arg(&tree),
    )?;
    // GOPATH mode: go.mod of 1.20 is older than what Go 1.19 accepts, and the vendored tree is complete.
    let gopath = work.path().join("go");
    fs::create_dir_all(gopath.join("src/k8s.io")).context("cannot make a GOPATH")?;
    symlink(&tree, gopath.join("src/k8s.io/kubernetes")).context("cannot link the sources")?;
    let mut go = Command::new(goroot.join("bin/go"));
    go.args(["build", "-ldflags", "-s -w", "-o"]).arg(into.join("kubelet"));
    go.arg("k8s.io/kubernetes/cmd/kubelet").current_dir(gopath.join("src/k8s.io/kubernetes"));
    go.env("GOROOT", goroot).env("GOPATH", &gopath).env("GOCACHE", work.path().join("cache"));
    go.env("GOTMPDIR", work.path())
        .env("GOENV", "off")
        .env("GOFLAGS", "")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0");
    host::run(&mut go).map(drop)
}

fn description(source: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(source).context("cannot list the source package")? {
        let path = entry.context("cannot list the source package")?.path();
        if path.extension().is_some_and(|ext| ext == "dsc") {
            return Ok(path);
        }
    }
    bail!("the source package in {} has no .dsc; remove that directory and try again", source.display())
}
