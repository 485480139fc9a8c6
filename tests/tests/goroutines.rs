//! The goroutines that plegtrace reads from outside are those that the program itself prints: same goroutines, same
//! states, same stacks, frame by frame. Go programs of five toolchains that wait in some forty ways.

mod target_kit;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use plegtrace::census::goroutines::{Limits, Reader};
use plegtrace::input::{Component, GoroutinesFact};
use plegtrace::session::clock::monotonic_ns;
use plegtrace_lab::packages::{self, Suite};
use plegtrace_lab::{cache, host};
use plegtrace_tests::goroutines::{by_goid, compare};
use target_kit::available;

const PARKED: &str = include_str!("goroutine_kit/parked.go");
const PLAIN: &str = include_str!("goroutine_kit/plain.go");
const GENERIC: &str = include_str!("goroutine_kit/generic.go");
const CGO: &str = include_str!("goroutine_kit/cgo.go");
/// Raise it when a source changes: built programs are cached.
const GENERATION: u32 = 1;
/// Goroutines that the program parks, at least.
const AT_LEAST: usize = 30;
/// No read here takes longer, even on a busy machine.
const LIMIT_NS: u64 = 30_000_000_000;

/// A way to build the program.
struct Mode {
    name: &'static str,
    cgo: bool,
    args: &'static [&'static str],
}

const STATIC: Mode = Mode { name: "static", cgo: false, args: &["-ldflags=-s -w"] };
const PIE: Mode = Mode { name: "pie", cgo: false, args: &["-buildmode=pie"] };
const CGO_PIE: Mode = Mode {
    name: "cgo-pie",
    cgo: true,
    args: &["-buildmode=pie", "-ldflags=-s -w -linkmode=external"],
};

/// Builds the program once; results live in the cache. `None` when the toolchain has left the archive.
fn build(suite: Suite, go: &str, mode: &Mode) -> Option<PathBuf> {
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
    let name = format!("goroutines/{GENERATION}-go{go}-{}", mode.name);
    let dir = cache::entry(&name, |dir| {
        let (source, scratch) = (dir.join("src"), dir.join("scratch"));
        fs::create_dir_all(&source)?;
        fs::write(source.join("go.mod"), format!("module example.test/parked\n\ngo {language}\n"))?;
        fs::write(source.join("main.go"), PARKED)?;
        fs::write(source.join("extra.go"), extra)?;
        fs::create_dir_all(&scratch)?;
        let mut command = Command::new(goroot.join("bin/go"));
        command.current_dir(&source).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("GOROOT", &goroot).env("HOME", &scratch).env("GOCACHE", scratch.join("cache"));
        command.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
        command.env("GOMAXPROCS", "2").env("CGO_ENABLED", if mode.cgo { "1" } else { "0" });
        host::run(command.args(["build", "-o", "../program"]).args(mode.args).arg("."))?;
        Ok(fs::remove_dir_all(scratch)?)
    });
    Some(dir.unwrap_or_else(|error| panic!("go{go} {}: {error:#}", mode.name)).join("program"))
}

/// The running program, ended when dropped.
struct Parked {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Parked {
    fn start(program: &Path, arguments: &[&str]) -> Parked {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut parked = Parked { child, out };
        parked.read_until("ready");
        parked
    }

    fn pid(&self) -> u32 {
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
    fn dump(&mut self) -> String {
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

fn read(reader: &Reader) -> GoroutinesFact {
    reader.read(&Limits::until(monotonic_ns() + LIMIT_NS), &monotonic_ns).expect("it can be read")
}

/// Ours, Go's, ours: what stood still is equal.
fn check(suite: Suite, go: &str, mode: &Mode) {
    let Some(program) = build(suite, go, mode) else { return };
    let mut parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    let before = read(&reader);
    let dump = parked.dump();
    let after = read(&reader);
    for fact in [&before, &after] {
        assert_eq!(fact.unread, 0);
        assert_eq!(by_goid(fact).len(), fact.total as usize, "each goroutine is in one group");
    }
    let comparison = compare(&before, &dump, &after);
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
    go_1_15 => Bullseye "1.15" STATIC,
    go_1_15_cgo => Bullseye "1.15" CGO_PIE,
    go_1_19 => Bookworm "1.19" STATIC,
    go_1_19_cgo => Bookworm "1.19" CGO_PIE,
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
