//! The goroutines that plegtrace reads from outside are those that the program itself prints: same goroutines, same
//! states, same stacks, frame by frame. Go programs of nine toolchains that wait in some forty ways.
//!
//! All tests need bookworm's Go 1.19, but `refusals`, which needs none, and those of `others`, which need the toolchain that
//! they are named after. What a toolchain has compiled is kept, so that Go's library is compiled once.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::target_kit::available;
use plegtrace::census::goroutines::{GoroutineError, Limits, Reader};
use plegtrace::clock::monotonic_ns;
use plegtrace::input::{Component, GoroutinesFact};
use plegtrace_lab::packages::{self, Suite};
use plegtrace_lab::{cache, golang, host};
use plegtrace_tests::goroutines::{by_goid, compare};
use plegtrace_tests::program;
use serde_json::Value;

const PLAIN: &str = include_str!("goroutine_kit/plain.go");
const GENERIC: &str = include_str!("goroutine_kit/generic.go");
const CGO: &str = include_str!("goroutine_kit/cgo.go");
/// Goroutines that the program parks, at least.
const AT_LEAST: usize = 32;
/// No read here takes longer, even on a busy machine.
const LIMIT_NS: u64 = 30_000_000_000;

/// A way to build the program.
pub(crate) struct Mode {
    name: &'static str,
    cgo: bool,
    args: &'static [&'static str],
}

pub(crate) const STATIC: Mode = Mode { name: "static", cgo: false, args: &["-ldflags=-s -w"] };
const PIE: Mode = Mode { name: "pie", cgo: false, args: &["-buildmode=pie"] };
const CGO_PIE: Mode =
    Mode { name: "cgo-pie", cgo: true, args: &["-buildmode=pie", "-ldflags=-s -w -linkmode=external"] };

/// What is built.
pub(crate) struct Sources {
    name: &'static str,
    /// Raise it when a source changes: built programs are cached.
    generation: u32,
    main: &'static str,
    /// There is a second file, which depends on release and mode.
    extra: bool,
    /// The module, and its other packages: path and source of each file.
    module: &'static str,
    packages: &'static [(&'static str, &'static str)],
}

/// A module of one package.
const ALONE: &str = "example.test/parked";

const PARKED: Sources = Sources {
    name: "goroutines",
    generation: 2,
    main: include_str!("goroutine_kit/parked.go"),
    extra: true,
    module: ALONE,
    packages: &[],
};
pub(crate) const AGES: Sources = Sources {
    name: "goroutine-ages",
    generation: 1,
    main: include_str!("goroutine_kit/ages.go"),
    extra: false,
    module: ALONE,
    packages: &[],
};
/// A kubelet's relists, with the names and types of Kubernetes 1.36.
pub(crate) const RELISTS: Sources = Sources {
    name: "goroutine-relists",
    generation: 1,
    main: include_str!("goroutine_kit/relists/main.go"),
    extra: false,
    module: "k8s.io/kubernetes",
    packages: &[("pkg/kubelet/pleg/generic.go", include_str!("goroutine_kit/relists/generic.go"))],
};

/// Builds a program once; results live in the cache. `None` when the toolchain has left the archive.
pub(crate) fn build(suite: Suite, go: &str, mode: &Mode, sources: &Sources) -> Option<PathBuf> {
    let goroot = available(&format!("Go {go} of {suite}"), packages::go(suite, go))?;
    if mode.cgo {
        host::ensure(&["gcc", "libc6-dev"]).expect("a C compiler");
    }
    let minor: u32 = go.trim_start_matches("1.").parse().expect("a minor release");
    let (extra, language) = match (mode.cgo, minor) {
        (true, _) => (CGO, "1.15"),
        (false, 18..) => (GENERIC, "1.18"),
        (false, _) => (PLAIN, "1.15"),
    };
    let name = format!("{}/{}-go{go}-{}", sources.name, sources.generation, mode.name);
    let dir = cache::entry(&name, |dir| {
        let (source, scratch) = (dir.join("src"), dir.join("scratch"));
        fs::create_dir_all(&source)?;
        fs::write(source.join("go.mod"), format!("module {}\n\ngo {language}\n", sources.module))?;
        fs::write(source.join("main.go"), sources.main)?;
        for (path, text) in sources.packages {
            fs::create_dir_all(source.join(path).parent().expect("a path"))?;
            fs::write(source.join(path), text)?;
        }
        if sources.extra {
            fs::write(source.join("extra.go"), extra)?;
        }
        fs::create_dir_all(&scratch)?;
        let mut command = Command::new(goroot.join("bin/go"));
        command.current_dir(&source).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("GOROOT", &goroot).env("HOME", &scratch).env("GOCACHE", golang::compiled(&goroot)?);
        command.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
        command.env("GOMAXPROCS", "2").env("CGO_ENABLED", if mode.cgo { "1" } else { "0" });
        host::run(command.args(["build", "-o", "../program"]).args(mode.args).arg("."))?;
        Ok(fs::remove_dir_all(scratch)?)
    });
    Some(dir.unwrap_or_else(|error| panic!("go{go} {}: {error:#}", mode.name)).join("program"))
}

/// The running program, ended when dropped.
pub(crate) struct Parked {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Parked {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Parked {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut parked = Parked { child, out };
        parked.read_until("ready");
        parked
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn read_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert!(self.out.read_line(&mut line).expect("it speaks") > 0, "it ended: {text}");
            if line.trim_end() == end {
                return text;
            }
            text.push_str(&line);
        }
    }

    /// What the runtime says.
    pub(crate) fn dump(&mut self) -> String {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
        self.read_until("end of dump")
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) fn read(reader: &Reader) -> GoroutinesFact {
    reader.read(&Limits::until(monotonic_ns() + LIMIT_NS), &monotonic_ns).expect("it can be read")
}

/// Ours, Go's, ours: what stood still is equal.
fn check(suite: Suite, go: &str, mode: &Mode) {
    let Some(program) = build(suite, go, mode, &PARKED) else { return };
    let mut parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    let before = read(&reader);
    let dump = parked.dump();
    let after = read(&reader);
    let last = parked.dump();
    for fact in [&before, &after] {
        assert_eq!(fact.unread, 0);
        assert_eq!(by_goid(fact).len(), fact.total as usize, "each goroutine is in one group");
    }
    let comparison = compare(&before, &dump, &after, &last);
    comparison.assert_equal(AT_LEAST);
    assert!(comparison.different.is_empty(), "{}", comparison.different.join("\n"));
    eprintln!("go{go} {}: {} of {} goroutines compared", mode.name, comparison.compared, before.total);
}

macro_rules! toolchains {
    ($($test:ident => $suite:ident $version:literal $mode:ident),* $(,)?) => {
        $(
            /// Equal to the program's own dump.
            #[test]
            fn $test() {
                check(Suite::$suite, $version, &$mode);
            }
        )*
    };
}

toolchains! {
    go_1_19 => Bookworm "1.19" STATIC,
    go_1_19_cgo => Bookworm "1.19" CGO_PIE,
}

/// What other suites have.
mod others {
    use super::{CGO_PIE, PIE, STATIC, Suite, check};

    toolchains! {
        go_1_15 => Bullseye "1.15" STATIC,
        go_1_15_cgo => Bullseye "1.15" CGO_PIE,
        go_1_21 => BookwormBackports "1.21" STATIC,
        go_1_22 => BookwormBackports "1.22" PIE,
        go_1_23 => BookwormBackports "1.23" STATIC,
        go_1_24 => Trixie "1.24" PIE,
        go_1_24_cgo => Trixie "1.24" CGO_PIE,
        go_1_25 => TrixieBackports "1.25" STATIC,
        go_1_26 => Sid "1.26" PIE,
        go_1_27 => Sid "1.27" STATIC,
        go_1_27_cgo => Sid "1.27" CGO_PIE,
    }
}

/// How a run of plegtrace ended, and what it said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs `plegtrace goroutines ARGUMENTS`.
fn plegtrace(arguments: &[&str]) -> Said {
    let mut command = Command::new(program::path().expect("plegtrace is built"));
    let output =
        command.arg("goroutines").args(arguments).env_remove("NO_COLOR").stdin(Stdio::null()).output();
    let output = output.expect("plegtrace starts");
    let text = |bytes| String::from_utf8(bytes).expect("plegtrace writes UTF-8");
    let code = output.status.code().expect("it ends by itself");
    Said { code, out: text(output.stdout), err: text(output.stderr) }
}

/// The program as most tests take it.
fn parked_program() -> Option<PathBuf> {
    build(Suite::Bookworm, "1.19", &STATIC, &PARKED)
}

/// 20,000 goroutines more: all are there, in little memory.
#[test]
fn twenty_thousand() {
    let Some(program) = parked_program() else { return };
    let parked = Parked::start(&program, &["20000"]);
    let began = Instant::now();
    let said = plegtrace(&[&parked.pid().to_string(), "-o", "json"]);
    let took = began.elapsed();
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    let groups = document["groups"].as_array().expect("a list");
    let counted: u64 = groups.iter().map(|group| group["count"].as_u64().expect("a count")).sum();
    let peak = document["rss_peak_bytes"].as_u64().expect("a size");
    eprintln!(
        "{counted} goroutines: {took:?}, of which reading {:?}; peak {} KiB",
        Duration::from_nanos(document["took_ns"].as_u64().expect("a duration")),
        peak >> 10
    );
    assert_eq!((&document["unread"], &document["total"]), (&0.into(), &counted.into()));
    assert!(counted > 20_000, "{counted}");
    let alike: Vec<u64> = groups.iter().filter_map(|group| group["count"].as_u64()).take(10).collect();
    assert_eq!(alike, [2000; 10], "ten depths of recursion, each with its own stack");
    assert!(0 < peak && peak < 80 << 20, "{} KiB", peak >> 10);
}

/// What people see: a header, sections, no colours in a file; and the program runs on as if nothing had been.
#[test]
fn as_text() {
    let Some(program) = parked_program() else { return };
    let mut parked = Parked::start(&program, &[]);
    let said = plegtrace(&[&parked.pid().to_string()]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut lines = said.out.lines();
    let header = lines.next().expect("a header");
    assert!(
        header.starts_with(&format!("process {}   ", parked.pid())) && header.contains("   go1.19"),
        "{header}"
    );
    assert!(lines.next().is_some_and(|line| line.contains(" goroutines in ")), "{}", said.out);
    for part in
        ["[select]:\n  main.", "[sync.Cond.Wait]:\n  sync.", "main.recurse   × ", "[syscall]:\n  syscall."]
    {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    assert!(!said.out.contains('\x1b'));
    assert!(parked.dump().contains("main.park"), "it still answers");
}

/// Exit codes and one sentence each: no such process, a kernel thread or zombie, not Go, no permission.
#[test]
fn refusals() {
    // Linux has no process ids beyond 2^22.
    let said = plegtrace(&["4194305"]);
    assert_eq!((said.code, said.err.as_str()), (2, "plegtrace: there is no process 4194305\n"));
    assert_eq!(plegtrace(&["x"]).code, 2);
    let mut sleep = Command::new("sleep").arg("600").spawn().expect("sleep starts");
    let pid = sleep.id().to_string();
    let said = plegtrace(&[&pid]);
    assert_eq!((said.code, said.out.as_str()), (5, ""), "{}", said.err);
    assert!(said.err.contains(&pid) && said.err.contains("not a Go binary"), "{}", said.err);
    sleep.kill().expect("our child");
    let zombie = plegtrace_lab::process::wait_for("its end", Duration::from_secs(10), || {
        Ok((plegtrace_lab::process::state(sleep.id()) == Some('Z')).then_some(()))
    });
    zombie.expect("it ends");
    assert_eq!(plegtrace(&[&pid]).code, 5);
    sleep.wait().expect("our child");
}

/// A process of somebody else: refused, with what to do. Needs root to become somebody else.
#[test]
fn no_permission() {
    if host::require_root().is_err() {
        return host::declare_skip("no_permission", &anyhow::anyhow!("only root can become somebody else"));
    }
    let Some(program) = parked_program() else { return };
    let parked = Parked::start(&program, &[]);
    let dir = tempfile::tempdir().expect("scratch directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let copy = dir.path().join("plegtrace");
    program::copy(&program::path().expect("plegtrace is built"), &copy).expect("a copy");
    let mut command = Command::new(&copy);
    command.arg("goroutines").arg(parked.pid().to_string()).uid(65534).gid(65534).current_dir("/");
    let output = command.output().expect("plegtrace starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{err}");
    assert!(err.contains("no permission") && err.contains("\nhint: "), "{err}");
}

/// The reader notices that a process has ended, and that another one has its place.
#[test]
fn ended_while_reading() {
    let Some(program) = parked_program() else { return };
    let parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    let other = Parked::start(&program, &[]);
    let again = Reader::with_program(other.pid(), Component::Helper, reader.program().clone());
    assert!(read(&again.expect("it runs")).total > 30, "one analysis serves both");
    drop(parked);
    let fact = reader.read(&Limits::until(u64::MAX), &monotonic_ns);
    assert!(matches!(fact, Err(GoroutineError::Gone(_))), "{fact:?}");
}

/// A reader that is kept is for the process it was opened for, and only as long as that runs the file that was read.
#[test]
fn kept_readers() {
    let Some(program) = parked_program() else { return };
    let parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    assert!(reader.is_for(parked.pid(), Component::Helper) && reader.lives() && reader.is_current());
    assert!(!reader.is_for(parked.pid(), Component::Kubelet) && !reader.is_for(1, Component::Helper));
    // What was looked up before is the same the second time.
    let frames = |fact: GoroutinesFact| fact.groups.into_iter().map(|group| group.frames).collect::<Vec<_>>();
    // `main` itself may still be on its way from the line that says it is ready to the one that it waits for.
    let parked_only = |fact: GoroutinesFact| {
        let mut all = frames(fact);
        let ours = |frame: &String| frame.starts_with("main.");
        all.retain(|frames| frames.iter().any(ours) && !frames.iter().any(|frame| frame == "main.main"));
        all.sort();
        all
    };
    let first = parked_only(read(&reader));
    assert!(!first.is_empty());
    assert_eq!(parked_only(read(&reader)), first);
    // Another file of the same bytes is another file.
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("program");
    program::copy(&program, &copy).expect("a copy");
    let other = Parked::start(&copy, &[]);
    let wrong = Reader::with_program(other.pid(), Component::Helper, reader.program().clone());
    assert!(!wrong.expect("it runs").is_current());
    drop(parked);
    assert!(!reader.lives() && !reader.is_current());
}

/// A deadline that is over: nothing is claimed, everything is counted as unread.
#[test]
fn no_time() {
    let Some(program) = parked_program() else { return };
    let parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    let fact = reader.read(&Limits::until(0), &monotonic_ns).expect("it can be read");
    assert!(fact.total > 30 && fact.unread == fact.total && fact.groups.is_empty(), "{fact:?}");
}
