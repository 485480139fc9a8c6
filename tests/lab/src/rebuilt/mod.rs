//! Turns Debian's source of containerd 1.7 into programs with a bug that other releases have, once, in the cache: the one
//! change is made to the source, and what the packages lack, the program itself, is our own.

pub mod deadlocked_shim;
pub mod deadlocking;
pub mod lossy_shim;
pub mod self_locking_shim;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::packages::{self, Suite, Tree};
use crate::{cache, golang, host};

/// containerd's source and what it and its shim import: all of trixie.
const SOURCES: [&str; 99] = [
    "golang-dbus-dev",
    "golang-github-appc-cni-dev",
    "golang-github-beorn7-perks-dev",
    "golang-github-cespare-xxhash-dev",
    "golang-github-cilium-ebpf-dev",
    "golang-github-containerd-cgroups-dev",
    "golang-github-containerd-console-dev",
    "golang-github-containerd-containerd-dev",
    "golang-github-containerd-continuity-dev",
    "golang-github-containerd-errdefs-dev",
    "golang-github-containerd-fifo-dev",
    "golang-github-containerd-go-cni-dev",
    "golang-github-containerd-go-runc-dev",
    "golang-github-containerd-imgcrypt-dev",
    "golang-github-containerd-log-dev",
    "golang-github-containerd-nri-dev",
    "golang-github-containerd-platforms-dev",
    "golang-github-containerd-ttrpc-dev",
    "golang-github-containerd-typeurl-dev",
    "golang-github-containernetworking-plugins-dev",
    "golang-github-containers-ocicrypt-dev",
    "golang-github-coreos-bbolt-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-github-davecgh-go-spew-dev",
    "golang-github-distribution-reference-dev",
    "golang-github-docker-go-events-dev",
    "golang-github-docker-go-metrics-dev",
    "golang-github-docker-go-units-dev",
    "golang-github-docker-spdystream-dev",
    "golang-github-emicklei-go-restful-dev",
    "golang-github-fsnotify-fsnotify-dev",
    "golang-github-fullsailor-pkcs7-dev",
    "golang-github-fxamacker-cbor-dev",
    "golang-github-go-jose-go-jose-dev",
    "golang-github-go-logr-logr-dev",
    "golang-github-go-logr-stdr-dev",
    "golang-github-gogo-protobuf-dev",
    "golang-github-golang-protobuf-1-5-dev",
    "golang-github-google-go-cmp-dev",
    "golang-github-google-gofuzz-dev",
    "golang-github-google-uuid-dev",
    "golang-github-gorilla-websocket-dev",
    "golang-github-grpc-ecosystem-go-grpc-prometheus-dev",
    "golang-github-hashicorp-errwrap-dev",
    "golang-github-hashicorp-go-multierror-dev",
    "golang-github-imdario-mergo-dev",
    "golang-github-intel-goresctrl-dev",
    "golang-github-json-iterator-go-dev",
    "golang-github-klauspost-compress-dev",
    "golang-github-kubernetes-cri-api-dev",
    "golang-github-moby-locker-dev",
    "golang-github-moby-sys-dev",
    "golang-github-modern-go-concurrent-dev",
    "golang-github-modern-go-reflect2-dev",
    "golang-github-munnerz-goautoneg-dev",
    "golang-github-mxk-go-flowrate-dev",
    "golang-github-opencontainers-go-digest-dev",
    "golang-github-opencontainers-image-spec-dev",
    "golang-github-opencontainers-runtime-tools-dev",
    "golang-github-opencontainers-selinux-dev",
    "golang-github-opencontainers-specs-dev",
    "golang-github-pelletier-go-toml-dev",
    "golang-github-prometheus-client-golang-dev",
    "golang-github-prometheus-client-model-dev",
    "golang-github-prometheus-common-dev",
    "golang-github-prometheus-procfs-dev",
    "golang-github-sirupsen-logrus-dev",
    "golang-github-stefanberger-go-pkcs11uri-dev",
    "golang-github-tchap-go-patricia-dev",
    "golang-github-vishvananda-netlink-dev",
    "golang-github-vishvananda-netns-dev",
    "golang-github-x448-float16-dev",
    "golang-gocapability-dev",
    "golang-golang-x-crypto-dev",
    "golang-golang-x-exp-dev",
    "golang-golang-x-mod-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-oauth2-dev",
    "golang-golang-x-sync-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-term-dev",
    "golang-golang-x-text-dev",
    "golang-golang-x-time-dev",
    "golang-google-genproto-dev",
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
    "golang-gopkg-inf.v0-dev",
    "golang-gopkg-yaml.v3-dev",
    "golang-k8s-api-dev",
    "golang-k8s-apimachinery-dev",
    "golang-k8s-apiserver-dev",
    "golang-k8s-client-go-dev",
    "golang-k8s-klog-dev",
    "golang-k8s-sigs-json-dev",
    "golang-k8s-sigs-structured-merge-diff-dev",
    "golang-k8s-sigs-yaml-dev",
    "golang-k8s-utils-dev",
    "golang-opentelemetry-otel-dev",
    "golang-tags.cncf-container-device-interface-dev",
];

/// containerd, as a Go package.
const CONTAINERD: &str = "github.com/containerd/containerd";

/// Where all lie in the cache.
const ENTRY: &str = "containerd-1.7-rebuilt-3";

/// Makes of the text of a file what the bug makes of it.
type Change = fn(&str) -> Result<String>;

/// One of them.
struct Program {
    /// The name of its file, and of its directory below `cmd` in containerd's source.
    name: &'static str,
    /// Its `main.go`.
    main: &'static str,
    /// The files of the source that are changed, below the GOPATH's `src`, and how.
    changed: &'static [(&'static str, Change)],
}

/// Programs that are built at once: they share most of what they import, and none has what another one changes.
struct Batch {
    /// Where they lie in the entry of the cache.
    directory: &'static str,
    /// The release that they say they are.
    version: &'static str,
    programs: &'static [Program],
}

/// The last release that lost exits.
const LOSSY: Batch =
    Batch { directory: "lossy", version: "1.7.21", programs: &[lossy_shim::PROGRAM, deadlocking::PROGRAM] };
/// The last release whose shim locked itself out.
const SELF_LOCKING: Batch =
    Batch { directory: "self-locking", version: "1.7.7", programs: &[self_locking_shim::PROGRAM] };
/// A release whose shim waited for itself when many commands ended while it started one.
const DEADLOCKED: Batch =
    Batch { directory: "deadlocked", version: "1.2.0", programs: &[deadlocked_shim::PROGRAM] };

/// The sources of all, downloaded when the cache does not have them yet.
///
/// # Errors
///
/// When they cannot be had ([`packages::Error::Gone`] in the chain when they left the archive).
pub fn fetch() -> Result<Tree> {
    packages::unpack_as("containerd-1.7-source", Suite::Trixie, &SOURCES)
}

/// The path of a program, built when the cache does not have it yet (two minutes on two cores).
fn build(batch: &Batch, program: &Program) -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        let sources = fetch()?;
        let goroot = packages::go(Suite::Trixie, "1.24")?;
        host::progress("building containerd 1.7 and its shim, each with a bug: two minutes, once");
        // What they share is compiled once.
        let work = tempfile::tempdir_in(dir).context("cannot make a build directory")?;
        [&LOSSY, &SELF_LOCKING, &DEADLOCKED]
            .iter()
            .try_for_each(|batch| compile(batch, &sources, &goroot, work.path(), dir))
    })?;
    Ok(dir.join(batch.directory).join(program.name))
}

fn compile(batch: &Batch, sources: &Tree, goroot: &Path, work: &Path, into: &Path) -> Result<()> {
    let own = work.join(batch.directory);
    let into = into.join(batch.directory);
    for made in [&own, &into] {
        fs::create_dir(made).with_context(|| format!("cannot make {}", made.display()))?;
    }
    let gopath = sources.path("usr/share/gocode")?;
    let overlay = overlay(batch.programs, &gopath.join("src"), &own)?;
    let version = format!("-s -w -X {CONTAINERD}/version.Version={}", batch.version);
    let mut go = golang::build(goroot, &gopath, work)?;
    go.arg("-overlay").arg(overlay).args(["-ldflags", &version, "-o"]).arg(into.join(""));
    go.args(batch.programs.iter().map(|program| format!("{CONTAINERD}/cmd/{}", program.name)));
    host::run(&mut go).map(drop)
}

/// The file that tells Go which files to take instead of those in the sources, which stay as they are.
fn overlay(programs: &[Program], sources: &Path, work: &Path) -> Result<PathBuf> {
    let mut texts = Vec::new();
    for Program { name, main, changed } in programs {
        texts.push((sources.join(CONTAINERD).join("cmd").join(name).join("main.go"), (*main).to_owned()));
        for (file, change) in *changed {
            let file = sources.join(file);
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            texts.push((file, change(&text)?));
        }
    }
    golang::overlay(&texts, work)
}
