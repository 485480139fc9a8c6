//! Turns Debian's source of containerd 1.7 into a shim that loses the exit of a container, once, in the cache. Up to 1.7.21 a
//! shim put that exit off for commands that never started (containerd pull request 10651): the repair is taken back where a
//! command cannot be started, which is where it can be made to happen each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::packages::{self, Suite, Tree};
use crate::{cache, host};

/// containerd's source and what its shim imports: all of trixie.
const SOURCES: [&str; 36] = [
    "golang-dbus-dev",
    "golang-github-cespare-xxhash-dev",
    "golang-github-cilium-ebpf-dev",
    "golang-github-containerd-cgroups-dev",
    "golang-github-containerd-console-dev",
    "golang-github-containerd-containerd-dev",
    "golang-github-containerd-continuity-dev",
    "golang-github-containerd-errdefs-dev",
    "golang-github-containerd-fifo-dev",
    "golang-github-containerd-go-runc-dev",
    "golang-github-containerd-log-dev",
    "golang-github-containerd-platforms-dev",
    "golang-github-containerd-ttrpc-dev",
    "golang-github-containerd-typeurl-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-github-docker-go-events-dev",
    "golang-github-docker-go-units-dev",
    "golang-github-gogo-protobuf-dev",
    "golang-github-golang-protobuf-1-5-dev",
    "golang-github-google-go-cmp-dev",
    "golang-github-hashicorp-errwrap-dev",
    "golang-github-hashicorp-go-multierror-dev",
    "golang-github-klauspost-compress-dev",
    "golang-github-moby-sys-dev",
    "golang-github-opencontainers-go-digest-dev",
    "golang-github-opencontainers-image-spec-dev",
    "golang-github-opencontainers-specs-dev",
    "golang-github-sirupsen-logrus-dev",
    "golang-golang-x-exp-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-sync-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev",
    "golang-google-genproto-dev",
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
];

/// containerd, below the GOPATH's `src`.
const CONTAINERD: &str = "github.com/containerd/containerd";
/// The file with the repair, in there.
const REPAIRED: &str = "runtime/v2/runc/task/service.go";
/// The last release with the bug.
const VERSION: &str = "1.7.21";
/// The name that containerd looks for.
const NAME: &str = "containerd-shim-runc-v2";

/// What the packages lack: the program itself. It is as short as this.
const MAIN: &str = r#"package main

import (
	"context"

	"github.com/containerd/containerd/runtime/v2/runc/manager"
	_ "github.com/containerd/containerd/runtime/v2/runc/pause"
	_ "github.com/containerd/containerd/runtime/v2/runc/task/plugin"
	"github.com/containerd/containerd/runtime/v2/shim"
)

func main() {
	shim.RunManager(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}
"#;

/// The path of the program, built when the cache does not have it yet (a minute on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry("containerd-shim-1.7-lossy", |dir| {
        let sources = packages::unpack_as("containerd-source", Suite::Trixie, &SOURCES)?;
        let goroot = packages::go(Suite::Trixie, "1.24")?;
        host::progress("building a shim of containerd 1.7 that loses exits: a minute, once");
        compile(&sources, &goroot, dir)
    })?;
    Ok(dir.join(NAME))
}

fn compile(sources: &Tree, goroot: &Path, into: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let gopath = work.path().join("gopath");
    host::run(Command::new("cp").arg("-a").arg(sources.path("usr/share/gocode")?).arg(&gopath))?;
    let containerd = gopath.join("src").join(CONTAINERD);
    let file = containerd.join(REPAIRED);
    let text = fs::read_to_string(&file).context("cannot read the repaired source")?;
    fs::write(&file, without_repair(&text)?).context("cannot write the source without the repair")?;
    let main = containerd.join("cmd").join(NAME);
    fs::create_dir_all(&main).context("cannot make a directory for the program")?;
    fs::write(main.join("main.go"), MAIN).context("cannot write the program")?;
    let mut go = Command::new(goroot.join("bin/go"));
    go.args(["build", "-ldflags", &format!("-s -w -X {CONTAINERD}/version.Version={VERSION}"), "-o"]);
    go.arg(into.join(NAME)).arg(format!("{CONTAINERD}/cmd/{NAME}")).current_dir(work.path());
    go.env("GOROOT", goroot).env("GOPATH", &gopath).env("GOCACHE", work.path().join("cache"));
    go.env("GOTMPDIR", work.path()).env("GOENV", "off").env("GOFLAGS", "").env("GO111MODULE", "off");
    host::run(go.env("CGO_ENABLED", "0")).map(drop)
}

/// Takes the repair back: a command that could not be started counts as running for ever.
fn without_repair(text: &str) -> Result<String> {
    let (start, end) =
        ("\t\t// If we failed to even start the process, s.runningExecs\n", "\t\thandleStarted(");
    let (before, rest) = text.split_once(start).context("the repair is not there")?;
    let (repair, after) = rest.split_once(end).context("the repair has no end")?;
    ensure!(repair.contains("s.runningExecs[container]--"), "this is not the repair");
    Ok(format!("{before}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repair_is_taken_back() {
        let text = "\tif err != nil {\n\t\t// If we failed to even start the process, s.runningExecs\n\t\t// more\n\t\tif x {\n\t\t\t\
            s.runningExecs[container]--\n\t\t}\n\t\thandleStarted(container, p)\n\t\treturn\n";
        assert_eq!(
            without_repair(text).unwrap(),
            "\tif err != nil {\n\t\thandleStarted(container, p)\n\t\treturn\n"
        );
        without_repair("\t\thandleStarted(container, p)\n").unwrap_err();
    }
}
