//! Probe sites in the real containerd, shim and runc of four Debian releases: goldens where the archive stands still
//! (bookworm, trixie), and on all four what must always hold: the wanted functions are there, and returns are where
//! an independent disassembler sees them.
//!
//! What no test of `others` asks for is bookworm's.
//!
//! A golden belongs to one package version. When the archive has another one, that comparison is a declared skip.
//! `PLEGTRACE_BLESS=1` writes the goldens anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::target_kit::{available, check_against_objdump, golden_dir, resolve_all};
use plegtrace::input::Component;
use plegtrace::plan::{Budget, Planner};
use plegtrace::probes::Inspected;
use plegtrace::target::{self, GoBinary, Match};
use plegtrace_lab::host;
use plegtrace_lab::packages::{self, Suite, Tree};

const CONTAINERD: &[&str] = &[
    "_RuntimeService_ListContainers_Handler",
    "_RuntimeService_ListPodSandbox_Handler",
    "_RuntimeService_PodSandboxStatus_Handler",
    "_RuntimeService_UpdateContainerResources_Handler",
    "_RuntimeService_ExecSync_Handler",
    "_ImageService_ListImages_Handler",
    "google.golang.org/grpc.(*Server).sendResponse",
    "google.golang.org/grpc.(*Server).handleStream",
    "google.golang.org/grpc.(*Server).processUnaryRPC",
    "transport.(*http2Server).WriteStatus|transport.(*http2Server).writeStatus",
    "transport.(*http2Server).operateHeaders",
    "ttrpc.(*Client).Call",
    "ttrpc.(*Client).dispatch",
    "(*criService).RunPodSandbox",
    "(*criService).setupPodNetwork",
    "(*criService).execInContainer",
    "bbolt.(*Tx).Commit",
    "libcni.(*CNIConfig).AddNetworkList",
    "os/exec.(*Cmd).Start",
    "runtime.allgadd",
];

const SHIM: &[&str] = &[
    "(*service).Create",
    "(*service).Start",
    "(*service).Exec",
    "(*service).Kill",
    "(*service).Wait",
    "(*Init).Create",
    "(*execProcess).Start",
    "go-runc.(*Runc).Create",
    "go-runc.(*Runc).Exec",
    "go-runc.(*Runc).runOrError",
];

const RUNC: &[&str] = &[
    "main.startContainer",
    "main.(*runner).run",
    "libcontainer.(*initProcess).start",
    "libcontainer.(*setnsProcess).start",
    "libcontainer.(*linuxStandardInit).Init",
    "libcontainer.prepareRootfs",
    "configs.HookList.RunHooks",
    "systemd.startUnit",
    "systemd.stopUnit",
    "fs.(*FreezerGroup).Set",
    "fs2.setFreezer",
];

/// File in the tree, wanted functions.
type Program = (&'static str, &'static [&'static str]);
const PROGRAMS: [Program; 3] =
    [("usr/bin/containerd", CONTAINERD), ("usr/bin/containerd-shim-runc-v2", SHIM), ("usr/sbin/runc", RUNC)];

/// Functions of the binary with their sites; checked against objdump on the way.
fn inspect(path: &Path, wanted: &[&str]) -> (GoBinary, Vec<Match>) {
    let binary = GoBinary::open(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let matches = resolve_all(&binary, wanted);
    for function in &matches {
        check_against_objdump(path, &binary, function);
    }
    (binary, matches)
}

fn describe(package: &str, binary: &GoBinary, matches: &[Match]) -> String {
    let text = binary.text();
    let mut out = format!(
        "package {package}\ngo {} layout {:?} functions {}\ntext {:#x}..{:#x} start_code {:#x} tls {:?}\n",
        binary.build_info().go_version,
        binary.layout(),
        binary.function_count(),
        text.start,
        text.end,
        binary.start_code_offset(),
        binary.tls_g_offset(),
    );
    for function in matches {
        let start = binary.start_site(function).expect("checked");
        let offsets = |vaddr: u64| format!("+{:#x}", vaddr - function.entry_vaddr);
        let returns: Vec<String> =
            binary.ret_sites(function).expect("checked").iter().map(|site| offsets(site.vaddr)).collect();
        writeln!(
            out,
            "{}\n  entry {:#x} size {} file {:#x}\n  start {} {:?} {:?} {:02x?}\n  returns {}",
            function.name,
            function.entry_vaddr,
            function.size,
            start.file_offset,
            offsets(start.vaddr),
            start.price,
            start.g_source,
            start.bytes,
            returns.join(" "),
        )
        .expect("strings take everything");
    }
    out
}

fn compare(name: &str, actual: &str) {
    let path = golden_dir().join(format!("{name}.txt"));
    if std::env::var("PLEGTRACE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, actual).expect("golden can be written");
        return;
    }
    let golden = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; write it with PLEGTRACE_BLESS=1", path.display()));
    let package = |text: &str| text.lines().next().map(str::to_owned);
    if package(&golden) != package(actual) {
        let why = anyhow::anyhow!("it is of {:?}, the archive has {:?}", package(&golden), package(actual));
        host::declare_skip(&format!("golden {name}"), &why);
        return;
    }
    for (line, (want, got)) in golden.lines().zip(actual.lines()).enumerate() {
        assert_eq!(
            got,
            want,
            "line {} of {}; if this is right, write it with PLEGTRACE_BLESS=1",
            line + 1,
            path.display()
        );
    }
    assert_eq!(actual, golden, "{}", path.display());
}

fn check_release(suite: Suite, with_goldens: bool) {
    for (package, fetch) in [("containerd", packages::containerd as fn(Suite) -> _), ("runc", packages::runc)]
    {
        let Some(tree) = available(&format!("{package} of {suite}"), fetch(suite)) else { continue };
        check_tree(suite, &tree, package, with_goldens);
    }
}

fn check_tree(suite: Suite, tree: &Tree, package: &str, with_goldens: bool) {
    let version = tree.versions().expect("recorded versions").join(" ");
    for (file, wanted) in PROGRAMS {
        if file.ends_with("runc") != (package == "runc") {
            continue;
        }
        let path = tree.path(file).expect("the package has its program");
        let (binary, matches) = inspect(&path, wanted);
        let program = file.rsplit('/').next().unwrap_or(file);
        eprintln!("{suite} {program}: {} functions wanted, {} found", wanted.len(), matches.len());
        if with_goldens {
            compare(&format!("{suite}-{program}"), &describe(&version, &binary, &matches));
        }
    }
}

/// Most probes in a runc: each of its processes pays for all of them.
const RUNC_PROBES: usize = 60;

/// Every row of the catalogue for runc has its functions, and nothing is refused.
fn check_phases(suite: Suite) {
    let Some(tree) = available(&format!("runc of {suite}"), packages::runc(suite)) else { return };
    let directory = tree.path("usr/sbin/runc").expect("the package has its program");
    let directory = directory.parent().expect("a directory").to_owned();
    let program = target::Program::find(std::process::id(), &[directory], "runc").expect("it is executable");
    let runc = Inspected::of_program(Component::Runc, program).unwrap_or_else(|why| panic!("{suite}: {why}"));
    for function in &runc.facts.functions {
        assert!(function.start.is_ok() && function.returns.is_ok(), "{suite}: {function:?}");
    }
    let [all, few] = [Budget::All, Budget::Few].map(|budget| {
        let mut planner = Planner::new(budget).with_parks(true);
        planner.add(&runc.facts);
        planner.finish()
    });
    eprintln!(
        "{suite} runc: {} functions, {} probes, {} where they are dear",
        all.hooks.len(),
        all.sites(),
        few.sites()
    );
    assert!(all.refused.is_empty(), "{suite}: {:?}", all.refused);
    assert!(all.sites() <= RUNC_PROBES && few.sites() * 2 < all.sites(), "{suite}");
}

/// A containerd shows as which stream a call came in, whatever release of grpc-go it has: 1.59 and older have the number at the
/// beginning of the struct, newer ones have it elsewhere.
fn check_streams(suite: Suite) {
    let Some(tree) = available(&format!("containerd of {suite}"), packages::containerd(suite)) else {
        return;
    };
    let program = tree.path("usr/bin/containerd").expect("the package has its program");
    assert_eq!(target::is_go(&program), Some(true));
    let directory = program.parent().expect("a directory").to_owned();
    let program =
        target::Program::find(std::process::id(), &[directory], "containerd").expect("it is executable");
    let containerd =
        Inspected::of_program(Component::Containerd, program).unwrap_or_else(|why| panic!("{suite}: {why}"));
    let row = |id: &str| containerd.facts.functions.iter().find(|function| function.wanted.row.id == id);
    let served = row("served-stream").unwrap_or_else(|| panic!("{suite}: not there"));
    assert!(served.start.is_ok(), "{suite}: {served:?}");
    let (offset, then) = served.stream.expect("said to be there");
    eprintln!("{suite} containerd: {offset} {then:?}");
    assert!(suite == Suite::Sid || (offset, then) == (0, None), "{suite}: {offset} {then:?}");
    assert!(row("handler-end").is_some_and(|function| function.stream.is_none()), "{suite}");
}

/// The phases of a container in the runc that the lab runs.
#[test]
fn phases_are_found_in_runc() {
    check_phases(Suite::Bookworm);
}

/// The streams of the containerd that most tests of the lab run.
#[test]
fn streams_are_found_in_containerd() {
    check_streams(Suite::Bookworm);
}

/// Go 1.19: register ABI, no frame pointer pushed after the check.
#[test]
fn bookworm_sites_equal_goldens() {
    check_release(Suite::Bookworm, true);
}

/// What other suites have.
mod others {
    use super::{Suite, check_phases, check_release, check_streams};

    const SUITES: [Suite; 3] = [Suite::Bullseye, Suite::Trixie, Suite::Sid];

    /// In the other three generations.
    #[test]
    fn phases_are_found_in_every_runc() {
        SUITES.into_iter().for_each(check_phases);
    }

    /// In the other three generations.
    #[test]
    fn streams_are_found_in_every_containerd() {
        SUITES.into_iter().for_each(check_streams);
    }

    /// Go 1.15: stack ABI, one-blob table.
    #[test]
    fn bullseye_sites_agree_with_objdump() {
        check_release(Suite::Bullseye, false);
    }

    /// Go 1.24: push of the frame pointer after the check.
    #[test]
    fn trixie_sites_equal_goldens() {
        check_release(Suite::Trixie, true);
    }

    /// Go 1.26 and 1.27: text base only in moduledata.
    #[test]
    fn sid_sites_agree_with_objdump() {
        check_release(Suite::Sid, false);
    }
}
