//! A client of a runtime with the library that the kubelet of sid's Kubernetes has, so its HTTP/2 is grpc-go's newest, and its
//! lists may come as streams. It keeps a book of what it asked; its source, `main.go` and `book.go`, is ours.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::packages::{self, Suite, Tree};
use crate::{cache, golang, host};

/// The library and what it imports: all of sid. It asks by v1 of the CRI, which containerd 1.4 does not speak.
const SOURCES: [&str; 17] = [
    "golang-github-cespare-xxhash-v2-dev",
    "golang-github-go-logr-logr-dev",
    "golang-github-go-logr-stdr-dev",
    "golang-github-golang-protobuf-1-5-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev",
    "golang-google-genproto-dev",
    "golang-google-grpc-dev",
    "golang-google-protobuf-dev",
    "golang-k8s-component-base-dev",
    "golang-k8s-cri-api-dev",
    "golang-k8s-cri-client-dev",
    "golang-k8s-klog-dev",
    "golang-k8s-utils-dev",
    "golang-opentelemetry-contrib-dev",
    "golang-opentelemetry-otel-dev",
];
const GO: &str = "1.27";
/// The program, as a Go package.
const PACKAGE: &str = "plegtrace/go-client";
const FILES: [(&str, &str); 2] = [("main.go", include_str!("main.go")), ("book.go", include_str!("book.go"))];
/// Where it lies in the cache; another name when its source changes.
const ENTRY: &str = "go-client-1";
/// What it writes once an operation has ended.
const DONE: &str = "done";

/// The path of the program, built when the cache does not have it yet (a minute on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the archive), or the
/// build fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        let gopath = fetch()?.path("usr/share/gocode")?;
        let goroot = packages::go(Suite::Sid, GO)?;
        host::progress("building a client with Kubernetes' own library: a minute, once");
        let work = tempfile::tempdir_in(dir).context("cannot make a build directory")?;
        let file =
            |(name, text): (&str, &str)| (gopath.join("src").join(PACKAGE).join(name), text.to_owned());
        let overlay = golang::overlay(&FILES.map(file), work.path())?;
        let mut go = golang::build(&goroot, &gopath, work.path())?;
        go.arg("-overlay").arg(overlay).args(["-ldflags", "-s -w", "-o"]).arg(dir.join("go-client"));
        host::run(go.arg(PACKAGE)).map(drop)
    })?;
    Ok(dir.join("go-client"))
}

/// Its sources, downloaded when the cache does not have them yet.
///
/// # Errors
///
/// As for [`program`], but for the build.
pub fn fetch() -> Result<Tree> {
    packages::unpack_as("go-client-source", Suite::Sid, &SOURCES)
}

/// How often a method (`/runtime.v1.RuntimeService/Version`) ended with a code of gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The path of the requests.
    pub method: String,
    /// The code.
    pub code: u32,
    /// How often.
    pub count: u64,
}

/// A running client; it ends when it is dropped, or with the process that started it.
#[derive(Debug)]
pub struct GoClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl GoClient {
    /// Starts a client of the runtime at `socket`, which does not connect yet.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when it cannot be run.
    pub fn start(socket: &Path) -> Result<GoClient> {
        let mut command = Command::new(program()?);
        command.arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot run the client")?;
        let input = child.stdin.take().context("the client has no input")?;
        let output = BufReader::new(child.stdout.take().context("the client has no output")?);
        Ok(GoClient { child, input, output })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Does an operation, of which `main.go` has the list, and waits for its end; how the runtime answers is in the book.
    ///
    /// # Errors
    ///
    /// When the client has ended: it cannot connect, or there is no such operation.
    pub fn ask(&mut self, operation: &str) -> Result<()> {
        let lines = self.lines(operation)?;
        ensure!(lines.is_empty(), "{operation}: {lines:?}");
        Ok(())
    }

    /// What it has asked so far.
    ///
    /// # Errors
    ///
    /// When the client has ended.
    pub fn book(&mut self) -> Result<Vec<Asked>> {
        self.lines("book")?.iter().map(|line| entry(line)).collect()
    }

    fn lines(&mut self, operation: &str) -> Result<Vec<String>> {
        writeln!(self.input, "{operation}").with_context(|| format!("no client to {operation}"))?;
        let mut lines = Vec::new();
        for line in self.output.by_ref().lines() {
            let line = line.context("cannot read what the client says")?;
            if line == DONE {
                return Ok(lines);
            }
            lines.push(line);
        }
        bail!("the client ended at: {operation}")
    }
}

impl Drop for GoClient {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn entry(line: &str) -> Result<Asked> {
    let [method, code, count] = line.split(' ').collect::<Vec<_>>()[..] else { bail!("no entry: {line}") };
    Ok(Asked { method: method.to_owned(), code: code.parse()?, count: count.parse()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_book() {
        let asked = entry("/runtime.v1.RuntimeService/StreamContainers 12 3").unwrap();
        let method = "/runtime.v1.RuntimeService/StreamContainers".to_owned();
        assert_eq!(asked, Asked { method, code: 12, count: 3 });
        entry("done").unwrap_err();
    }
}
