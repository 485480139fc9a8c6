//! Turns Debian's source package `kubernetes` into a real kubelet 1.20.2, once, in the cache; into one that asks a runtime
//! by version v1 of the CRI; and into one whose relist waits for room in its event channel, as it did before 1.14.
//!
//! containerd 2 serves v1 only. Its messages are those of v1alpha2 with fields added, so the paths of the requests are
//! all that has to change.
//!
//! For the last one the fix of 1.14 (kubernetes pull request 72709) is taken back: `relist` sends an event without a
//! `select` that drops it. So that few events fill the channel, it has room for [`CHANNEL`] instead of 1000.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::packages::{self, Suite};
use crate::{cache, golang, host};

/// Which compiler builds the kubelet: the sources are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KubeletBuild {
    /// Bookworm's Go 1.19: register ABI.
    #[default]
    Go119,
    /// Bullseye's Go 1.15: stack ABI, older pclntab.
    Go115,
}

/// The release; Debian's sources have no other.
const VERSION: &str = "1.20.2";
/// Room in the event channel of the kubelet whose relist waits: below what a pod that comes and goes makes.
const CHANNEL: u32 = 4;
/// The sources below a GOPATH.
const KUBERNETES: &str = "src/k8s.io/kubernetes";

/// A file of the sources, by the path on which Go comes to it, and what becomes of its text.
type Change = (&'static str, fn(&str) -> Result<String>);
const BLOCKS: &[Change] =
    &[("pkg/kubelet/pleg/generic.go", without_fix), ("pkg/kubelet/kubelet.go", with_small_channel)];
const ASKS_BY_V1: &[Change] = &[("vendor/k8s.io/cri-api/pkg/apis/runtime/v1alpha2/api.pb.go", asking_by_v1)];

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

/// What is changed in the sources, and the name under which the program lies in the cache.
struct Variant {
    name: &'static str,
    changes: &'static [Change],
}

const BLOCKING: Variant = Variant { name: "-blocking", changes: BLOCKS };
const V1: Variant = Variant { name: "-v1", changes: ASKS_BY_V1 };
const PLAIN: Variant = Variant { name: "", changes: &[] };

/// The path of the kubelet, built when the cache does not have it yet (some minutes on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program(build: KubeletBuild) -> Result<PathBuf> {
    made(build, &PLAIN)
}

/// The path of the kubelet whose relist waits for room in its event channel; built by bookworm's Go.
///
/// # Errors
///
/// As for [`program`].
pub fn program_with_blocking_pleg() -> Result<PathBuf> {
    made(KubeletBuild::Go119, &BLOCKING)
}

/// The path of the kubelet that speaks version v1 of the CRI; built by bookworm's Go.
///
/// # Errors
///
/// As for [`program`].
pub fn program_of_v1() -> Result<PathBuf> {
    made(KubeletBuild::Go119, &V1)
}

/// Downloads what a build needs, and builds nothing.
///
/// # Errors
///
/// As for [`program`], but for the build.
pub fn fetch(build: KubeletBuild) -> Result<()> {
    build.toolchain()?;
    tree().map(drop)
}

/// Each program has an entry of its own, because few need more than one. Its name is `kubelet`, as the process must be
/// called. Those of one compiler share what it has compiled, so a variant takes a minute after the plain one.
fn made(build: KubeletBuild, variant: &Variant) -> Result<PathBuf> {
    let label = build.label();
    let dir = cache::entry(&format!("kubelet-{VERSION}{}-{label}", variant.name), |dir| {
        let tree = tree()?;
        let goroot = build.toolchain()?;
        host::progress(&format!("building kubelet {VERSION}{} with {label}: minutes, once", variant.name));
        compile(&tree, &goroot, variant, dir)
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

/// The unpacked sources as a GOPATH. It stays where it is: the name of its directory is part of what Go looks up in what
/// it has compiled before.
fn tree() -> Result<PathBuf> {
    let dir = cache::entry("source/kubernetes-gopath", |dir| {
        let source = source()?;
        host::ensure(&["dpkg-dev", "xz-utils"])?;
        host::progress("unpacking the sources of kubernetes");
        let place = dir.join("src/k8s.io");
        fs::create_dir_all(&place).context("cannot make a GOPATH")?;
        let mut unpack = Command::new("dpkg-source");
        unpack.args(["--no-check", "-q", "-x"]).arg(description(&source)?);
        host::run(unpack.arg(place.join("kubernetes"))).map(drop)
    })?;
    Ok(dir)
}

/// GOPATH mode: go.mod of 1.20 is older than what Go 1.19 accepts, and the vendored tree is complete.
fn compile(gopath: &Path, goroot: &Path, variant: &Variant, into: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let sources = gopath.join(KUBERNETES);
    let mut go = golang::build(goroot, gopath, work.path())?;
    if !variant.changes.is_empty() {
        go.arg("-overlay").arg(golang::overlay(&changed(&sources, variant.changes)?, work.path())?);
    }
    // As the release scripts do (hack/lib/version.sh); without it `--version` tells nothing.
    let stamp =
        format!("-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=v{VERSION}");
    go.args(["-ldflags", &stamp, "-o"]).arg(into.join("kubelet"));
    host::run(go.arg("k8s.io/kubernetes/cmd/kubelet").current_dir(sources)).map(drop)
}

/// Builds a program of ours, `source`, with what the kubelet is made of, as `into`: it is a package beside the kubelet's own, with the same
/// libraries, and finds compiled what that has.
///
/// # Errors
///
/// As for [`program`].
pub(crate) fn build_beside(name: &str, source: &str, into: &Path) -> Result<()> {
    let (gopath, goroot) = (tree()?, KubeletBuild::Go119.toolchain()?);
    let work = tempfile::tempdir().context("cannot make a build directory")?;
    let package = format!("cmd/{name}");
    let file = gopath.join(KUBERNETES).join(&package).join("main.go");
    let mut go = golang::build(&goroot, &gopath, work.path())?;
    go.arg("-overlay").arg(golang::overlay(&[(file, source.to_owned())], work.path())?);
    go.args(["-ldflags", "-s -w", "-o"]).arg(into);
    host::run(go.arg(format!("k8s.io/kubernetes/{package}")).current_dir(gopath.join(KUBERNETES))).map(drop)
}

/// The files that a variant takes instead of those of the sources, which stay as they are.
fn changed(sources: &Path, changes: &[Change]) -> Result<Vec<(PathBuf, String)>> {
    let mut texts = Vec::new();
    for (file, change) in changes {
        let path = sources.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = change(&text).with_context(|| format!("cannot change {}", path.display()))?;
        texts.push((path, text));
    }
    Ok(texts)
}

/// generic.go as before pull request 72709: the send is in no `select`.
fn without_fix(text: &str) -> Result<String> {
    let send = "g.eventChannel <- events[i]";
    let (before, rest) = text.split_once("select {").context("there is no select")?;
    let (fix, after) = rest.split_once("\t\t\t}\n").context("the select has no end")?;
    ensure!(
        fix.contains(&format!("case {send}:")) && fix.contains("default:") && !after.contains(send),
        "the select is not the fix"
    );
    Ok(format!("{before}{send}\n{after}"))
}

/// kubelet.go with a channel for few events.
fn with_small_channel(text: &str) -> Result<String> {
    let capacity = "plegChannelCapacity = ";
    let (before, after) = text.split_once(capacity).context("there is no capacity")?;
    let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    Ok(format!("{before}{capacity}{CHANNEL}{after}"))
}

/// api.pb.go whose client asks for the services of v1.
fn asking_by_v1(text: &str) -> Result<String> {
    let [old, new] = ["\"/runtime.v1alpha2.", "\"/runtime.v1."];
    ensure!(text.contains(old), "there is no path of a request");
    Ok(text.replace(old, new))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_is_taken_back() {
        let fixed = "\t\t\tselect {\n\t\t\tcase g.eventChannel <- events[i]:\n\t\t\tdefault:\n\t\t\t\tklog.Error()\n\t\t\t}\n\t\t}\n";
        assert_eq!(without_fix(fixed).unwrap(), "\t\t\tg.eventChannel <- events[i]\n\t\t}\n");
        without_fix("\t\t\tselect {\n\t\t\tcase <-stop:\n\t\t\t}\n").unwrap_err();
    }

    #[test]
    fn requests_get_the_path_of_v1() {
        let text = "c.cc.Invoke(ctx, \"/runtime.v1alpha2.RuntimeService/Version\", in, out, opts...)";
        assert_eq!(asking_by_v1(text).unwrap(), text.replace("v1alpha2", "v1"));
        asking_by_v1("package v1alpha2").unwrap_err();
    }

    #[test]
    fn the_channel_becomes_small() {
        let text = with_small_channel("\tplegChannelCapacity = 1000\n\tx = plegChannelCapacity\n").unwrap();
        assert_eq!(text, "\tplegChannelCapacity = 4\n\tx = plegChannelCapacity\n");
        with_small_channel("").unwrap_err();
    }
}
