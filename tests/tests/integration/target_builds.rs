//! The shapes a Go binary can have, each compiled with real toolchains from Go 1.15 to 1.27: static, position
//! independent, cgo, externally linked, static-PIE, packed relocations; stripped, and without section headers.
//!
//! Truth is the symbol table of the unstripped twin: every function, the text base and the moduledata must be equal.
//! Go 1.13, 1.14, 1.16, 1.17, 1.18 and 1.20 are in no Debian suite: their layouts are covered by unit tests only.
//!
//! `go_1_19` needs bookworm's toolchain, the tests of `others` those that they are named after, the one of arm64 Go 1.15 and
//! 1.24. What a toolchain has compiled is kept, so that Go's library is compiled once for each mode.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::target_kit::{available, check_against_objdump, output, resolve_all, symbols};
use plegtrace::target::{
    Convention, FieldPath, GSource, GoBinary, OnDisk, Overrides, Pattern, SiteRefusal, Witness, discover,
    on_disk,
};
use plegtrace_lab::packages::{self, Suite};
use plegtrace_lab::{cache, golang, host};

/// Toolchains by suite.
const TOOLCHAINS: &[(Suite, &str)] = &[
    (Suite::Bullseye, "1.15"),
    (Suite::Bookworm, "1.19"),
    (Suite::BookwormBackports, "1.21"),
    (Suite::BookwormBackports, "1.22"),
    (Suite::BookwormBackports, "1.23"),
    (Suite::Trixie, "1.24"),
    (Suite::TrixieBackports, "1.25"),
    (Suite::Sid, "1.26"),
    (Suite::Sid, "1.27"),
];

/// Toolchains that the releases build their packages with: all modes; the others: the plain one.
const ALL_MODES: &[&str] = &["1.15", "1.19", "1.24", "1.26", "1.27"];

struct Mode {
    name: &'static str,
    cgo: bool,
    arch: &'static str,
    args: &'static [&'static str],
    in_all: bool,
}

const MODES: &[Mode] = &[
    Mode { name: "static", cgo: false, arch: "amd64", args: &[], in_all: true },
    Mode { name: "pie", cgo: false, arch: "amd64", args: &["-buildmode=pie"], in_all: false },
    Mode { name: "cgo", cgo: true, arch: "amd64", args: &[], in_all: false },
    Mode {
        name: "external-pie",
        cgo: true,
        arch: "amd64",
        args: &["-buildmode=pie", "-ldflags=-linkmode=external"],
        in_all: false,
    },
    Mode {
        name: "static-pie",
        cgo: true,
        arch: "amd64",
        args: &["-buildmode=pie", "-ldflags=-linkmode=external -extldflags=-static-pie"],
        in_all: false,
    },
    Mode {
        name: "relr-pie",
        cgo: true,
        arch: "amd64",
        args: &["-buildmode=pie", "-ldflags=-linkmode=external -extldflags=-Wl,-z,pack-relative-relocs"],
        in_all: false,
    },
];

/// A program with each kind of prologue; it says that it runs and waits for the end of its input.
const MAIN: &str = r#"package main

import "os"

type inner struct {
	name string
	id   uint32
}
type wide struct{ id uint64 }
type plain struct {
	pad uint64
	id  uint32
}
type byValue struct {
	pad [3]uint64
	inner
	more string
}
type byPointer struct {
	pad int
	*inner
}
type both struct {
	inner
	plain
}
type chained struct{ *byPointer }

//go:noinline
func described(values ...interface{}) int { return len(values) }

type shape struct{ n int }

//go:noinline
func (s *shape) small(a, b int) int { return s.large(a)[b&63] + s.n }

//go:noinline
func (s *shape) large(a int) (out [64]int) {
	for i := range out {
		out[i] = a * i
	}
	return
}

//go:noinline
func huge(a int) int {
	var buf [1 << 17]byte
	for i := range buf {
		buf[i] = byte(a + i)
	}
	if a == 3 {
		return int(buf[7])
	}
	return int(buf[a&0xffff]) + extra(a)
}

//go:noinline
//go:nosplit
func leaf(a int) int { return a*3 + 1 }

func main() {
	described(&wide{}, &plain{}, &byValue{}, &byPointer{}, &both{}, &chained{})
	s := &shape{n: leaf(len(os.Args))}
	println("running", s.small(2, 3)+huge(len(os.Args)))
	buf := make([]byte, 1)
	os.Stdin.Read(buf)
}
"#;
const EXTRA_GO: &str = "package main\n\nfunc extra(a int) int { return a }\n";
const EXTRA_CGO: &str = "package main\n\n// static int twice(int a) { return 2 * a; }\nimport \"C\"\n\nfunc extra(a int) int { return int(C.twice(C.int(a))) }\n";

/// Builds the program once per toolchain and mode; results live in the cache.
fn build(goroot: &Path, go: &str, mode: &Mode) -> PathBuf {
    host::ensure(&["gcc", "libc6-dev", "binutils"]).expect("a C compiler");
    let name = format!("target-builds/2-go{go}-{}", mode.name);
    let dir = cache::entry(&name, |dir| {
        let source = dir.join("src");
        fs::create_dir_all(&source)?;
        fs::write(source.join("go.mod"), "module example.test/shapes\n\ngo 1.15\n")?;
        fs::write(source.join("main.go"), MAIN)?;
        fs::write(source.join("extra.go"), if mode.cgo { EXTRA_CGO } else { EXTRA_GO })?;
        let mut command = toolchain(goroot, &source, mode)?;
        command.args(["build", "-o", "../program"]).args(mode.args).arg(".");
        host::run(&mut command)?;
        if mode.arch == "amd64" {
            host::run(
                Command::new("strip").args(["-s", "-o"]).arg(dir.join("stripped")).arg(dir.join("program")),
            )?;
        } else {
            fs::copy(dir.join("program"), dir.join("stripped"))?;
        }
        without_sections(&dir.join("stripped"), &dir.join("headless"))?;
        fs::remove_dir_all(dir.join("scratch"))?;
        Ok(())
    });
    dir.unwrap_or_else(|error| panic!("go{go} {}: {error:#}", mode.name))
}

/// `go`, with nothing of this machine's own settings; its home is `scratch` beside the source.
fn toolchain(goroot: &Path, source: &Path, mode: &Mode) -> anyhow::Result<Command> {
    let scratch = source.parent().unwrap_or(source).join("scratch");
    fs::create_dir_all(&scratch)?;
    let mut command = Command::new(goroot.join("bin/go"));
    command.current_dir(source).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("GOROOT", goroot).env("HOME", &scratch).env("GOCACHE", golang::compiled(goroot)?);
    command
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOARCH", mode.arch);
    command.env("GOMAXPROCS", "2").env("CGO_ENABLED", if mode.cgo { "1" } else { "0" });
    Ok(command)
}

/// The same file with no section header table, as `sstrip` makes it.
fn without_sections(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(from)?;
    // e_shoff (8 bytes at 40), e_shentsize, e_shnum, e_shstrndx (2 bytes each at 58).
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    Ok(fs::write(to, bytes)?)
}

/// Everything the analysis says about a stripped binary equals the symbol table of its twin.
fn check(dir: &Path, file: &str, truth: &BTreeMap<String, BTreeSet<u64>>) -> GoBinary {
    let path = dir.join(file);
    let binary = GoBinary::open(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let symbol = |name: &str| truth.get(name).and_then(BTreeSet::first).copied();
    assert_eq!(Some(binary.text().start), symbol("runtime.text"), "{}", path.display());
    assert_eq!(Some(binary.text().end), symbol("runtime.etext"), "{}", path.display());
    assert_eq!(Some(binary.moduledata()), symbol("runtime.firstmoduledata"), "{}", path.display());
    let mut compared = 0;
    for function in binary.functions() {
        // The symbol table marks the wrappers of assembly functions with a suffix.
        let places = [
            function.name.to_owned(),
            format!("{}.abi0", function.name),
            format!("{}.abiinternal", function.name),
        ];
        let places: Vec<u64> = places.iter().filter_map(|name| truth.get(name)).flatten().copied().collect();
        if !places.is_empty() {
            assert!(places.contains(&function.entry), "{} in {}", function.name, path.display());
            compared += 1;
        }
    }
    assert!(compared * 10 >= binary.function_count() * 9, "{compared} of {}", binary.function_count());
    check_kept(&binary);
    check_fields(&binary, &path.display().to_string());
    // What the reader of goroutines looks for.
    for (function, data) in
        [("runtime.allgadd", "runtime.allgs"), ("runtime.waitReason.String", "runtime.waitReasonStrings")]
    {
        let found = binary.data_references(function);
        assert!(symbol(data).is_some_and(|at| found.contains(&at)), "{data} in {}", path.display());
    }
    binary
}

/// What is kept of a function table says the same as the table.
fn check_kept(binary: &GoBinary) {
    let kept = binary.kept();
    for function in binary.functions() {
        let inside = [0, function.size / 2, function.size.saturating_sub(1)].map(|at| function.entry + at);
        for at in inside {
            let index = binary.function_index_at(at);
            assert_eq!((kept.index_at(at), kept.stack_depth_at(at)), (index, binary.stack_depth_at(at)));
            let name = index.and_then(|index| kept.name(index));
            assert_eq!(name.as_deref(), binary.function_at(at).map(|found| found.name));
        }
    }
    let text = binary.text();
    for outside in [0, text.start - 1, text.end, u64::MAX] {
        assert_eq!((kept.index_at(outside), kept.stack_depth_at(outside)), (None, None), "{outside:#x}");
    }
}

/// Where the program's structs have their field `id`, by the rules of Go's layout.
const FIELDS: [(&str, Option<FieldPath>); 7] = [
    ("plain", Some(FieldPath { offset: 8, then: None })),
    ("byValue", Some(FieldPath { offset: 40, then: None })),
    ("byPointer", Some(FieldPath { offset: 8, then: Some(16) })),
    ("wide", None),
    ("both", None),
    ("chained", None),
    ("absent", None),
];

fn check_fields(binary: &GoBinary, of: &str) {
    let (names, paths): (Vec<&str>, Vec<Option<FieldPath>>) = FIELDS.into_iter().unzip();
    assert_eq!(binary.uint32_fields("main", &names, "id"), paths, "{names:?} in {of}");
    for (package, field) in [("example.test/main", "id"), ("main", "ide")] {
        let none = vec![None; names.len()];
        assert_eq!(binary.uint32_fields(package, &names, field), none, "{package}, {field} in {of}");
    }
    // One alone is found as well as all together.
    for (name, path) in FIELDS {
        assert_eq!(binary.uint32_fields("main", &[name], "id"), [path], "{name} in {of}");
    }
}

/// Functions with a stack check, and those that have none (`large` in the stack ABI: its frame is the caller's).
const CHECKED: &[&str] = &["main.main", "main.(*shape).small", "main.huge"];
const OTHERS: &[&str] = &["main.(*shape).large", "main.leaf"];

fn check_sites(dir: &Path, file: &str, binary: &GoBinary) {
    for function in resolve_all(binary, CHECKED) {
        check_against_objdump(&dir.join(file), binary, &function);
        let start = binary.start_site(&function).expect("checked");
        let want = match binary.abi().convention {
            Convention::Registers => GSource::Register,
            Convention::Stack => GSource::Rcx,
        };
        assert_eq!(start.g_source, want, "{}", function.name);
        assert_eq!(start.price, plegtrace::target::Price::Emulated, "{}", function.name);
        let returns = binary.ret_sites(&function).expect("checked");
        assert!(returns.iter().all(|site| site.g_source != GSource::Unknown), "{}", function.name);
    }
    for function in resolve_all(binary, OTHERS) {
        check_against_objdump(&dir.join(file), binary, &function);
    }
}

/// A running program, ended when dropped.
struct Running(Child);

impl Running {
    fn start(path: &Path) -> Self {
        let child =
            Command::new(path).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("program starts");
        let mut running = Self(child);
        // The program has run its own code when it speaks.
        let mut first = [0; 7];
        running.0.stderr.as_mut().expect("piped").read_exact(&mut first).expect("program speaks");
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The kernel's `start_code` of a running process, less its load bias, is what the analysis says.
fn check_start_code(path: &Path, binary: &GoBinary) {
    let running = Running::start(path);
    let read =
        |what: &str| fs::read_to_string(format!("/proc/{}/{what}", running.0.id())).expect("own child");
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("stat").1.split_whitespace().collect();
    let start_code: u64 = fields[23].parse().expect("startcode");
    let exe = fs::canonicalize(path).expect("path");
    let maps = read("maps");
    let code =
        maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(exe.to_str().expect("UTF-8")));
    let code: Vec<&str> = code.expect("code is mapped").split_whitespace().collect();
    let mapped = u64::from_str_radix(code[0].split('-').next().expect("range"), 16).expect("address");
    let file_offset = u64::from_str_radix(code[2], 16).expect("offset");
    // Any site tells the distance between file offset and address of the code segment.
    let main = &binary.resolve(&[Pattern::new("main.main")])[0];
    let site = binary.start_site(main).expect("main is probed");
    let ip = site.file_offset - file_offset + mapped;
    assert_eq!(ip - start_code, site.ip_minus_start_code, "{}", path.display());
}

fn check_toolchain(go: &str) {
    let (suite, go) = *TOOLCHAINS.iter().find(|(_, version)| *version == go).expect("listed");
    let Some(goroot) = available(&format!("Go {go} of {suite}"), packages::go(suite, go)) else { return };
    for mode in MODES.iter().filter(|mode| mode.in_all || ALL_MODES.contains(&go)) {
        let dir = build(&goroot, go, mode);
        let truth = symbols(&dir.join("program"));
        for file in ["program", "stripped", "headless"] {
            let binary = check(&dir, file, &truth);
            assert_eq!(binary.version().to_string(), format!("go{go}"));
            assert_eq!(binary.build_info().main_path.as_deref(), Some("example.test/shapes"));
            assert_eq!(binary.is_pie(), mode.name.contains("pie"), "{}", mode.name);
            if file == "stripped" {
                check_sites(&dir, file, &binary);
                check_start_code(&dir.join(file), &binary);
            }
        }
        if mode.name == "static" {
            check_goroutine_offsets(&dir.join("program"));
            check_witness(&dir.join("program"), &truth);
            check_replaced(&dir.join("program"));
        }
        eprintln!("go{go} {}: ok", mode.name);
    }
}

/// A function whose symbol says another address than the function table is refused, the others are not.
fn check_witness(path: &Path, truth: &BTreeMap<String, BTreeSet<u64>>) {
    let mut bytes = fs::read(path).expect("readable");
    let honest =
        GoBinary::from_bytes(bytes.clone()).expect("understood").resolve(&[Pattern::new("main.huge")]);
    assert_eq!(honest[0].witness, Witness::Agrees);
    let address = truth["main.huge"].first().expect("has a symbol").to_le_bytes();
    let is_symbol = |window: &[u8]| window[4] & 0xf == 2 && window[6..8] != [0, 0] && window[8..] == address;
    let symbols: Vec<usize> =
        (0..bytes.len() - 16).step_by(8).filter(|at| is_symbol(&bytes[*at..*at + 16])).collect();
    assert!(!symbols.is_empty(), "the symbol is in the file");
    for at in symbols {
        bytes[at + 8] ^= 1;
    }
    let binary = GoBinary::from_bytes(bytes).expect("understood");
    let liar = &binary.resolve(&[Pattern::new("main.huge")])[0];
    assert!(matches!(binary.start_site(liar), Err(SiteRefusal::SymbolDisagrees { .. })), "{liar:?}");
    assert!(binary.ret_sites(liar).is_err());
    assert!(binary.start_site(&binary.resolve(&[Pattern::new("main.main")])[0]).is_ok());
}

/// Copies a program that is to be run, in a process of its own: a descriptor for writing in this one could be inherited
/// by a child of another test, and the program would be busy.
fn copy(from: &Path, to: &Path) {
    host::run(Command::new("cp").arg(from).arg(to)).expect("scratch file");
}

/// A running program whose file is replaced, then removed, is told from one that is as it was started.
fn check_replaced(program: &Path) {
    let dir = tempfile::tempdir().expect("scratch directory");
    let path = dir.path().join("kubelet");
    copy(program, &path);
    let running = Running::start(&path);
    let proc_pid = PathBuf::from(format!("/proc/{}", running.0.id()));
    let binary = GoBinary::open(&proc_pid.join("exe")).expect("understood");
    assert_eq!(on_disk(&proc_pid), OnDisk::Same);
    assert!(binary.file().still_same(&path).unwrap());
    copy(program, &dir.path().join("new"));
    fs::rename(dir.path().join("new"), &path).expect("scratch file");
    assert_eq!(on_disk(&proc_pid), OnDisk::Replaced);
    assert!(
        !binary.file().still_same(&path).unwrap() && binary.file().still_same(&proc_pid.join("exe")).unwrap()
    );
    fs::remove_file(&path).expect("scratch file");
    assert_eq!(on_disk(&proc_pid), OnDisk::Deleted);
    let node = discover(Path::new("/"), &Overrides::default()).expect("a process list");
    let found = node.processes.iter().find(|process| process.pid == running.0.id()).expect("named kubelet");
    assert!(found.exe_deleted && found.exe.as_deref() == Some(path.as_path()), "{found:?}");
}

/// Offsets in `runtime.g` equal those in the debug information the toolchain wrote.
fn check_goroutine_offsets(path: &Path) {
    let binary = GoBinary::open(path).expect("checked");
    let members = dwarf_members(path, "runtime.g");
    let of = |name: &str| *members.get(name).unwrap_or_else(|| panic!("no member {name}: {members:?}"));
    let g = binary.abi().g;
    assert_eq!(
        (g.m, g.goid, g.atomicstatus),
        (of("m"), of("goid"), of("atomicstatus")),
        "{}",
        path.display()
    );
    assert_eq!((g.waitsince, g.waitreason), (of("waitsince"), of("waitreason")), "{}", path.display());
    let sched = dwarf_members(path, "runtime.gobuf");
    let in_sched = |name: &str| of("sched") + sched[name];
    assert_eq!((g.sched_sp, g.sched_pc, g.sched_bp), (in_sched("sp"), in_sched("pc"), in_sched("bp")));
    assert_eq!(g.stack_hi, dwarf_members(path, "runtime.stack")["hi"]);
    let gc = binary.abi().gc.expect("read of these releases");
    let memstats = dwarf_members(path, "runtime.mstats");
    let behind = |name: &str| memstats[name] - memstats["last_gc_unix"];
    assert_eq!(
        (gc.pause_ns, gc.pause_end, gc.numgc, gc.last_gc_nanotime),
        (behind("pause_ns"), behind("pause_end"), behind("numgc"), behind("last_gc_nanotime")),
        "{}",
        path.display()
    );
}

/// Members of a Go structure with their offsets, from objdump's listing of the debug information.
fn dwarf_members(path: &Path, structure: &str) -> BTreeMap<String, u32> {
    let text = output(Command::new("objdump").arg("--dwarf=info").arg(path));
    let value = |line: &str| line.rsplit([' ', '\t']).next().unwrap_or("").to_owned();
    let mut members = BTreeMap::new();
    let (mut inside, mut name) = (false, None);
    for line in text.lines() {
        if line.contains("(DW_TAG_structure_type)") {
            if inside {
                break;
            }
            name = None;
        } else if line.contains("DW_AT_name") {
            let found = value(line.trim_end());
            inside = inside || found == structure;
            name = Some(found);
        } else if line.contains("DW_AT_data_member_location") && inside {
            let offset = value(line.trim_end()).parse().expect("offset");
            members.insert(name.take().expect("a name comes first"), offset);
        } else if inside && line.contains("Abbrev Number: 0") {
            break;
        }
    }
    members
}

const ARM64: Mode = Mode { name: "arm64", cgo: false, arch: "arm64", args: &[], in_all: false };

/// arm64, cross-compiled: addresses against the symbol table, sites against Go's own disassembler. Nothing runs.
fn check_arm64() {
    for go in ["1.15", "1.24"] {
        let (suite, go) = *TOOLCHAINS.iter().find(|(_, version)| *version == go).expect("listed");
        let Some(goroot) = available(&format!("Go {go} of {suite}"), packages::go(suite, go)) else {
            continue;
        };
        let dir = build(&goroot, go, &ARM64);
        let truth = symbols(&dir.join("program"));
        let binary = check(&dir, "headless", &truth);
        for function in resolve_all(&binary, &[CHECKED, OTHERS].concat()) {
            let theirs = go_disassembly(&goroot, &dir, &function.name);
            let of = |mnemonic: &str| -> BTreeSet<u64> {
                theirs.iter().filter(|(_, text)| text.starts_with(mnemonic)).map(|(at, _)| *at).collect()
            };
            let returns = binary.ret_sites(&function).expect("arm64 returns");
            assert_eq!(
                returns.iter().map(|site| site.vaddr).collect::<BTreeSet<_>>(),
                of("RET"),
                "{}",
                function.name
            );
            let start = binary.start_site(&function).expect("arm64 start");
            let has_check = theirs.values().any(|text| text.contains("runtime.morestack"));
            assert_eq!(of("BLS").contains(&start.vaddr), has_check, "{} go{go}: {start:x?}", function.name);
            assert_eq!(start.g_source, GSource::Register);
        }
        eprintln!("go{go} arm64: ok");
    }
}

/// Address → instruction, by `go tool objdump`.
fn go_disassembly(goroot: &Path, dir: &Path, name: &str) -> BTreeMap<u64, String> {
    let escaped: String =
        name.chars().flat_map(|c| if c.is_alphanumeric() { vec![c] } else { vec!['\\', c] }).collect();
    let mut command = toolchain(goroot, &dir.join("src"), &ARM64).expect("toolchain");
    command
        .env("GOARCH", "amd64")
        .args(["tool", "objdump", "-s", &format!("^{escaped}$")])
        .arg(dir.join("program"));
    let text = output(&mut command);
    let lines = text.lines().filter_map(|line| {
        let mut fields =
            line.split('\t').filter(|field| !field.is_empty()).skip_while(|field| !field.starts_with("0x"));
        let at = u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok()?;
        Some((at, fields.nth(1)?.trim().to_owned()))
    });
    lines.collect()
}

macro_rules! toolchains {
    ($($test:ident => $version:literal),* $(,)?) => {
        $(
            /// Every build mode of this toolchain equals its symbol table.
            #[test]
            fn $test() {
                check_toolchain($version);
            }
        )*
    };
}

toolchains! {
    go_1_19 => "1.19",
}

/// What other suites have.
mod others {
    use super::{check_arm64, check_toolchain};

    /// Nothing of arm64 runs here.
    #[test]
    fn arm64_sites_agree_with_go_objdump() {
        check_arm64();
    }

    toolchains! {
        go_1_15 => "1.15",
        go_1_21 => "1.21",
        go_1_22 => "1.22",
        go_1_23 => "1.23",
        go_1_24 => "1.24",
        go_1_25 => "1.25",
        go_1_26 => "1.26",
        go_1_27 => "1.27",
    }
}
