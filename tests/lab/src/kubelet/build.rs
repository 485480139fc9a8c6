//! Turns Debian's source package `kubernetes` into a real kubelet 1.20.2, once, in the cache; into one that asks a runtime
//! by version v1 of the CRI; into one whose relist waits for room in its event channel, as it did before 1.14; and into one that
//! locks itself out.
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

/// Pods whose name begins so are those at which a kubelet that locks itself out does so.
pub(crate) const LOCKING_POD: &str = "locking";

/// A file of the sources, by the path on which Go comes to it, and what becomes of its text.
type Change = (&'static str, fn(&str) -> Result<String>);
const BLOCKS: &[Change] =
    &[("pkg/kubelet/pleg/generic.go", without_fix), ("pkg/kubelet/kubelet.go", with_small_channel)];
const LOCKS_ITSELF_OUT: &[Change] = &[("pkg/kubelet/pod/pod_manager.go", locking_itself_out)];
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
const LOCKING: Variant = Variant { name: "-locking", changes: LOCKS_ITSELF_OUT };
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

/// The path of the kubelet that locks itself out at a certain pod; built by bookworm's Go.
///
/// # Errors
///
/// As for [`program`].
pub fn program_that_locks_itself_out() -> Result<PathBuf> {
    made(KubeletBuild::Go119, &LOCKING)
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
    go.args(["-ldflags", &stamp(), "-o"]).arg(into.join("kubelet"));
    host::run(go.arg("k8s.io/kubernetes/cmd/kubelet").current_dir(sources)).map(drop)
}

/// As the release scripts do (hack/lib/version.sh); without it `--version` tells nothing.
fn stamp() -> String {
    format!("-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=v{VERSION}")
}

/// Where programs of ours are built with what the kubelet is made of: as packages beside the kubelet's own, with the same libraries, so that
/// they find compiled what that has.
pub(crate) struct Beside {
    gopath: PathBuf,
    goroot: PathBuf,
    sources: PathBuf,
}

impl Beside {
    /// The kubelet's sources and compiler.
    ///
    /// # Errors
    ///
    /// As for [`program`].
    pub(crate) fn open() -> Result<Beside> {
        let (gopath, goroot) = (tree()?, KubeletBuild::Go119.toolchain()?);
        let sources = gopath.join(KUBERNETES);
        Ok(Beside { gopath, goroot, sources })
    }

    /// The directory of the sources; nothing in it is changed.
    pub(crate) fn sources(&self) -> &Path {
        &self.sources
    }

    /// By which name Go imports the package in a directory below [`Beside::sources`].
    pub(crate) fn import(&self, package: &str) -> String {
        format!("{}/{package}", KUBERNETES.trim_start_matches("src/"))
    }

    /// A program that reads Go packages, as it finds these.
    pub(crate) fn go(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.goroot.join("bin").display())).env("GOENV", "off");
        command.env("GOROOT", &self.goroot).env("GOPATH", &self.gopath).env("GO111MODULE", "off");
        command.current_dir(&self.sources);
        command
    }

    /// Builds the package in the directory `package` as `into`; `texts` are files, by path, that the sources lack.
    ///
    /// # Errors
    ///
    /// When the build fails.
    pub(crate) fn build(&self, package: &str, texts: &[(String, String)], into: &Path) -> Result<()> {
        let work = tempfile::tempdir().context("cannot make a build directory")?;
        let mut go = golang::build(&self.goroot, &self.gopath, work.path())?;
        if !texts.is_empty() {
            let texts: Vec<(PathBuf, String)> =
                texts.iter().map(|(place, text)| (self.sources.join(place), text.clone())).collect();
            go.arg("-overlay").arg(golang::overlay(&texts, work.path())?);
        }
        go.args(["-ldflags", &stamp(), "-o"]).arg(into).arg(self.import(package));
        host::run(go.current_dir(&self.sources)).map(drop)
    }
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

/// pod_manager.go that lists its pods while it adds one, under the lock that both need: the kind of bug of pull request 133926 of Kubernetes.
fn locking_itself_out(text: &str) -> Result<String> {
    let begin = "\tpm.lock.Lock()\n\tdefer pm.lock.Unlock()\n\tpm.updatePodsInternal(pod)\n";
    let (before, after) = text.split_once(begin).context("there is no UpdatePod")?;
    // A name without an import: the file has none of `strings`.
    let bug = format!(
        "\tif n := len({LOCKING_POD:?}); len(pod.Name) > n && pod.Name[:n] == {LOCKING_POD:?} {{\n\t\tpm.GetPods()\n\t}}\n"
    );
    let (lock, update) = begin.split_at(begin.len() - "\tpm.updatePodsInternal(pod)\n".len());
    Ok(format!("{before}{lock}{bug}{update}{after}"))
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
    fn the_pod_manager_lists_under_its_lock() {
        let text = "{\n\tpm.lock.Lock()\n\tdefer pm.lock.Unlock()\n\tpm.updatePodsInternal(pod)\n}\n";
        let text = locking_itself_out(text).unwrap();
        let (lock, list) = (text.find("Lock()").unwrap(), text.find("\t\tpm.GetPods()\n").unwrap());
        assert!(lock < list && list < text.find("updatePods").unwrap(), "{text}");
        locking_itself_out("").unwrap_err();
    }

    #[test]
    fn the_channel_becomes_small() {
        let text = with_small_channel("\tplegChannelCapacity = 1000\n\tx = plegChannelCapacity\n").unwrap();
        assert_eq!(text, "\tplegChannelCapacity = 4\n\tx = plegChannelCapacity\n");
        with_small_channel("").unwrap_err();
    }
}
