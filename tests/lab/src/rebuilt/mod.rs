//! Turns Debian's source of containerd 1.7 into programs with a bug that other releases have, once, in the cache: the one
//! change is made to the source, and what the packages lack, the program itself, is our own.

pub mod deadlocking;
pub mod lossy_shim;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Map, json};

use crate::packages::{self, Suite, Tree};
use crate::{cache, host};

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

/// The last release that lost exits.
const VERSION: &str = "1.7.21";
/// Where both lie in the cache.
const ENTRY: &str = "containerd-1.7-rebuilt";

/// One of them.
struct Program {
    /// The name of its file, and of its directory below `cmd` in containerd's source.
    name: &'static str,
    /// Its `main.go`.
    main: &'static str,
    /// The file of the source that is changed, below the GOPATH's `src`, and how.
    changed: (&'static str, fn(&str) -> Result<String>),
}

/// All of them are built at once: they share most of what they import, and neither has what the other changes.
const ALL: [Program; 2] = [lossy_shim::PROGRAM, deadlocking::PROGRAM];

/// The path of a program, built when the cache does not have it yet (two minutes on two cores).
fn build(name: &str) -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        let sources = packages::unpack_as("containerd-1.7-source", Suite::Trixie, &SOURCES)?;
        let goroot = packages::go(Suite::Trixie, "1.24")?;
        host::progress("building containerd 1.7 and its shim, each with a bug: two minutes, once");
        compile(&sources, &goroot, dir)
    })?;
    Ok(dir.join(name))
}

fn compile(sources: &Tree, goroot: &Path, into: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let gopath = sources.path("usr/share/gocode")?;
    let overlay = overlay(&gopath.join("src"), work.path())?;
    let version = format!("-s -w -X {CONTAINERD}/version.Version={VERSION}");
    let mut go = Command::new(goroot.join("bin/go"));
    go.arg("build").arg("-overlay").arg(overlay).args(["-ldflags", &version, "-o"]).arg(into);
    go.args(ALL.map(|program| format!("{CONTAINERD}/cmd/{}", program.name))).current_dir(work.path());
    go.env("GOROOT", goroot).env("GOPATH", gopath).env("GOCACHE", work.path().join("cache"));
    go.env("GOTMPDIR", work.path()).env("GOENV", "off").env("GOFLAGS", "").env("GO111MODULE", "off");
    host::run(go.env("CGO_ENABLED", "0")).map(drop)
}

/// The file that tells Go which files to take instead of those in the sources, which stay as they are.
fn overlay(sources: &Path, work: &Path) -> Result<PathBuf> {
    let mut replaced = Map::new();
    for Program { name, main, changed: (file, change) } in ALL {
        let file = sources.join(file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let main_file = sources.join(CONTAINERD).join("cmd").join(name).join("main.go");
        for (place, text) in [(file, change(&text)?), (main_file, main.to_owned())] {
            let own = work.join(format!("{}.go", replaced.len()));
            fs::write(&own, text).with_context(|| format!("cannot write {}", own.display()))?;
            replaced.insert(place.display().to_string(), json!(own));
        }
    }
    let overlay = work.join("overlay.json");
    fs::write(&overlay, json!({ "Replace": replaced }).to_string()).context("cannot write the overlay")?;
    Ok(overlay)
}
