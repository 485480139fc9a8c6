//! The script, run with a `kubectl` that writes down its arguments and answers as the real one does (1.28 and later).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::pages::tests::write_script;
use super::super::tarball::tests::{files, gunzip};
use super::*;
use crate::paths;

/// Nothing here takes so long, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Files beside it decide: `code` (of plegtrace), `refuse`, `phase`; `log` until there is a file `end`, when `hold` is there.
const KUBECTL: &str = r#"#!/bin/sh
here=${0%/*}
printf '%s\n' "$*" >> "$here/calls"
while [ "${1#--}" != "$1" ]; do shift; done
case $1 in
debug)
    [ ! -e "$here/refuse" ] || { echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1; }
    for argument; do printf '<%s>' "$argument"; done > "$here/debug"
    echo "Creating debugging pod node-debugger-n1-abcde with container debugger on node n1."
    ;;
get)
    case $* in
    *exitCode*) [ -e "$here/hold" ] && [ ! -e "$here/end" ] || cat "$here/code" ;;
    *) cat "$here/phase" ;;
    esac
    ;;
logs)
    cat "$here/log"
    [ -e "$here/hold" ] || exit 0
    # Not longer than there is a cluster.
    while [ ! -e "$here/end" ] && [ -e "$here/log" ]; do sleep 0.02; done
    echo 'said at the end'
    ;;
delete) : > "$here/end" ;;
esac
"#;

/// A directory with the stub, in which the script is run.
struct Cluster(TempDir);

impl Cluster {
    fn new(log: &[u8], code: &str) -> Self {
        let cluster = Self(tempfile::tempdir().unwrap());
        write_script(&cluster.path("kubectl"), KUBECTL);
        cluster.put("log", log);
        cluster.put("code", code.as_bytes());
        cluster.put("phase", b"Running ");
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new("sh");
        command.arg(script()).args(arguments).current_dir(self.0.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display()));
        command.env_remove("PLEGTRACE_IMAGE").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        said(self.start(arguments).wait_with_output().unwrap())
    }

    /// How often the pod was deleted.
    fn deleted(&self) -> usize {
        self.text("calls").lines().filter(|line| line.contains("delete pod node-debugger-n1-abcde ")).count()
    }
}

fn script() -> PathBuf {
    paths::workspace().join("tracer/packaging").join(SCRIPT)
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !look() {
        assert!(begin.elapsed() < DEADLINE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The report comes through with plegtrace's exit code, its arguments as they were typed, and the pod goes.
#[test]
fn a_report() {
    let cluster = Cluster::new(b"STALL [R1, high]\n", "1");
    let (code, out, err) = cluster.run(&["n1", "--context=c 1", "--", "-d", "60", "two words"]);
    assert_eq!((code, out.as_str(), err.as_str()), (1, "STALL [R1, high]\n", ""));
    let image = format!("<--image=plegtrace:{}>", env!("CARGO_PKG_VERSION"));
    let options = "<--arguments-only><--attach=false><--><-d><60><two words>";
    assert_eq!(cluster.text("debug"), format!("<debug><node/n1><--profile=sysadmin>{image}{options}"));
    let calls = cluster.text("calls");
    assert!(calls.lines().all(|line| line.starts_with("--context=c 1 --namespace=kube-system ")), "{calls}");
    assert_eq!(cluster.deleted(), 1);
}

/// Pictures and recordings go to a file, whole; an error of plegtrace does not.
#[test]
fn files_are_fetched() {
    let bytes = [&[0, 10, 13, 255][..], &[b'x'; 70_000]].concat();
    let cluster = Cluster::new(&bytes, "0");
    let (code, out, _) = cluster.run(&["n1", "-o", "recording", "--image", "r/p:1", "--", "-d", "5"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(fs::read(cluster.path("plegtrace-n1.plegtrace")).unwrap() == bytes);
    let asked = cluster.text("debug");
    assert!(
        asked.ends_with("<--image=r/p:1><--arguments-only><--attach=false><--><record><--quiet><-><-d><5>")
    );
    let (code, ..) = cluster.run(&["node/n1", "--output=svg", "-f", "a b.svg"]);
    assert!(code == 0 && fs::read(cluster.path("a b.svg")).unwrap() == bytes);
    assert!(cluster.text("debug").ends_with("<--><--quiet><--output><svg>"));
    let failed = Cluster::new(b"plegtrace: cannot run here\n", "3");
    let (code, out, err) = failed.run(&["n1", "-o", "svg"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.ends_with("plegtrace: cannot run here\n"), "{err}");
    let left: Vec<PathBuf> = fs::read_dir(failed.0.path())
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| is_ours(it))
        .collect();
    assert_eq!((left, failed.deleted()), (vec![], 1));
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("plegtrace-"))
}

/// Without a pod there is nothing to delete; a pod that cannot start is deleted, and what it lacks is named.
#[test]
fn no_pod() {
    let refused = Cluster::new(b"", "0");
    refused.put("refuse", b"");
    let (code, out, err) = refused.run(&["n1"]);
    assert!(code == 3 && out.is_empty() && err.contains("pods is forbidden"), "{code} {err}");
    assert_eq!(refused.deleted(), 0);
    let imageless = Cluster::new(b"", "0");
    imageless.put("phase", b"Pending ErrImagePull");
    let (code, _, err) = imageless.run(&["n1"]);
    assert!(code == 3 && err.contains("ErrImagePull of image plegtrace:"), "{code} {err}");
    assert_eq!(imageless.deleted(), 1);
}

/// A log that breaks off while plegtrace runs is not taken for a report.
#[test]
fn a_log_that_breaks_off() {
    let cluster = Cluster::new(b"<svg", "");
    let (code, _, err) = cluster.run(&["n1", "-o", "svg"]);
    assert!(code == 3 && err.contains("incomplete"), "{code} {err}");
    assert!(!cluster.path("plegtrace-n1.svg").exists() && cluster.deleted() == 1);
}

/// A signal ends plegtrace, not by force, and what it says at its end still comes through.
#[test]
fn an_interrupt() {
    let cluster = Cluster::new(b"observing\n", "0");
    cluster.put("hold", b"");
    let mut child = cluster.start(&["n1"]);
    until("its log is read", || cluster.text("calls").contains(" logs --follow "));
    // SAFETY: kill(2) with the number of a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGINT) }, 0);
    until("it ends", || child.try_wait().unwrap().is_some());
    let (code, out, err) = said(child.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (130, "observing\nsaid at the end\n"));
    assert!(err.contains("plegtrace is ending"), "{err}");
    let calls = cluster.text("calls");
    assert!(cluster.deleted() == 1 && calls.contains("--grace-period=120"), "{calls}");
}

/// What makes no sense reaches no cluster; help needs none.
#[test]
fn usage() {
    let cluster = Cluster::new(b"", "0");
    cluster.put("there", b"");
    let wrong: [&[&str]; 8] = [
        &[],
        &["n1", "n2"],
        &["n1", "--no-such"],
        &["n1;id"],
        &["n1", "-o", "xml"],
        &["n1", "-o"],
        &["n1", "-f", "there"],
        &["--", "n1"],
    ];
    for arguments in wrong {
        let (code, out, err) = cluster.run(arguments);
        assert!(code == 2 && out.is_empty() && err.contains("--help"), "{arguments:?}: {code} {err}");
    }
    let (code, out, err) = cluster.run(&["--help"]);
    assert!(code == 0 && err.is_empty() && out.contains("-o, --output FORMAT"), "{out}{err}");
    assert!(out.lines().all(|line| line.len() <= 100));
    assert_eq!(cluster.text("calls"), "");
}

/// The archive has the script, which can be executed, and the licences; the manifest names its sum.
#[test]
fn krew_finds_what_it_installs() {
    let (release, payload) = (Release::sample(), Payload::sample());
    let [archive, manifest] = assets(&release, &payload).unwrap();
    assert_eq!(archive.name, "kubectl-plegtrace-1.2.3.tar.gz");
    let packed = files(&gunzip(&archive.contents), release.time);
    let names: Vec<(&str, u32)> = packed.iter().map(|file| (file.path.as_str(), file.mode)).collect();
    assert_eq!(names, [("LICENSE-APACHE", 0o644), ("LICENSE-MIT", 0o644), ("kubectl-plegtrace", 0o755)]);
    let manifest = String::from_utf8(manifest.contents).unwrap();
    assert!(manifest.contains(&format!("sha256: \"{}\"\n", sha256(&archive.contents))), "{manifest}");
    assert!(manifest.contains("  version: \"v1.2.3\"\n") && manifest.contains(&archive.name), "{manifest}");
    assert!(manifest.contains("bin: kubectl-plegtrace\n") && !manifest.contains('@'), "{manifest}");
}
