//! Turns Debian's source package `kubernetes` into a real kubelet 1.20.2, once, in the cache; into one that asks a runtime
//! by version v1 of the CRI; and into one whose relist waits for room in its event channel, as it did before 1.14.
//!
//! containerd 2 serves v1 only. Its messages are those of v1alpha2 with fields added, so the paths of the requests are
//! all that has to change.
//!
//! For the last one the fix of 1.14 (kubernetes pull request 72709) is taken back: `relist` sends an event without a
//! `select` that drops it. So that few events fill the channel, it has room for [`CHANNEL`] instead of 1000.

use std::fs;
use std::os::unix::fs::symlink;
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
/// Where its program lies below that of the other; the process must have the same name.
const BLOCKING: &str = "blocking";
const V1: &str = "v1";

/// A file of the sources, and what becomes of its text.
type Change = (&'static str, fn(&str) -> Result<String>);
const BLOCKS: &[Change] =
    &[("pkg/kubelet/pleg/generic.go", without_fix), ("pkg/kubelet/kubelet.go", with_small_channel)];
const ASKS_BY_V1: &[Change] =
    &[("staging/src/k8s.io/cri-api/pkg/apis/runtime/v1alpha2/api.pb.go", asking_by_v1)];

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
    Ok(programs(build)?.join("kubelet"))
}

/// The path of the kubelet whose relist waits for room in its event channel; built by bookworm's Go.
///
/// # Errors
///
/// As for [`program`].
pub fn program_with_blocking_pleg() -> Result<PathBuf> {
    Ok(programs(KubeletBuild::Go119)?.join(BLOCKING).join("kubelet"))
}

/// The path of the kubelet that speaks version v1 of the CRI; built by bookworm's Go.
///
/// # Errors
///
/// As for [`program`].
pub fn program_of_v1() -> Result<PathBuf> {
    Ok(programs(KubeletBuild::Go119)?.join(V1).join("kubelet"))
}

/// The directory of all that a compiler has built.
fn programs(build: KubeletBuild) -> Result<PathBuf> {
    let label = build.label();
    cache::entry(&format!("kubelets-{VERSION}-variants-{label}"), |dir| {
        let source = source()?;
        let goroot = build.toolchain()?;
        host::progress(&format!("building kubelet {VERSION} with {label}: some minutes, once"));
        compile(&source, &goroot, dir, build == KubeletBuild::Go119)
    })
}

/// The downloaded files of the source package.
fn source() -> Result<PathBuf> {
    cache::entry("source/kubernetes", |dir| {
        host::progress("downloading the source package kubernetes of bookworm");
        packages::download_source(Suite::Bookworm, "kubernetes", dir)
    })
}

/// Compiles in a directory next to `into` and leaves there only the programs: the sources and Go's cache are ten times
/// their size.
fn compile(source: &Path, goroot: &Path, into: &Path, variants: bool) -> Result<()> {
    host::ensure(&["dpkg-dev", "xz-utils"])?;
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let tree = work.path().join("kubernetes");
    host::run(
        Command::new("dpkg-source").args(["--no-check", "-q", "-x"]).arg(description(source)?).arg(&tree),
    )?;
    // GOPATH mode: go.mod of 1.20 is older than what Go 1.19 accepts, and the vendored tree is complete.
    fs::create_dir_all(work.path().join("go/src/k8s.io")).context("cannot make a GOPATH")?;
    symlink(&tree, work.path().join("go/src/k8s.io/kubernetes")).context("cannot link the sources")?;
    go_build(goroot, work.path(), &into.join("kubelet"))?;
    if !variants {
        return Ok(());
    }
    variant(goroot, work.path(), &into.join(BLOCKING), BLOCKS)?;
    variant(goroot, work.path(), &into.join(V1), ASKS_BY_V1)
}

/// Builds a kubelet from changed sources, and changes them back: with Go's cache of the first only what depends on these
/// files is compiled again.
fn variant(goroot: &Path, work: &Path, into: &Path, changes: &[Change]) -> Result<()> {
    let mut before = Vec::new();
    for (file, change) in changes {
        let path = work.join("kubernetes").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let changed = change(&text).with_context(|| format!("cannot change {}", path.display()))?;
        write(&path, &changed)?;
        before.push((path, text));
    }
    fs::create_dir(into).context("cannot make a directory")?;
    go_build(goroot, work, &into.join("kubelet"))?;
    before.iter().try_for_each(|(path, text)| write(path, text))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn go_build(goroot: &Path, work: &Path, program: &Path) -> Result<()> {
    let gopath = work.join("go");
    let mut go = golang::build(goroot, &gopath, work);
    // As the release scripts do (hack/lib/version.sh); without it `--version` tells nothing.
    let stamp =
        format!("-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=v{VERSION}");
    go.args(["-ldflags", &stamp, "-o"]).arg(program);
    go.arg("k8s.io/kubernetes/cmd/kubelet").current_dir(gopath.join("src/k8s.io/kubernetes"));
    host::run(&mut go).map(drop)
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
