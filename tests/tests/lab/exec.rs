//! A target that is another program each millisecond: what was planned for one is never attached to the other.

use std::fs;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use plegtrace::input::Component;
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions};
use plegtrace::plan::{PlannedBinary, PlannedSite};
use plegtrace::probes::Inspected;
use plegtrace::target::{GoBinary, KernelOffsets, Match, Pattern, Site};
use plegtrace_common::site::{SiteConf, action, g_source};
use plegtrace_lab::packages::Suite;
use plegtrace_lab::{cache, golang, host, packages, process};

const LIMIT: Duration = Duration::from_secs(60);
/// Attaches of all sites with perf events of each sort; a site takes up to 0.1 s to take off.
const ATTACHES: usize = 20;
/// Attaches of one site with perf events, of each sort: within a minute, and in `cargo xtask soak`.
const SINGLE: usize = 100;
const SINGLE_SOAK: usize = 500;

/// Executes the other program after a millisecond, which does the same.
const MAIN: &str = r#"package main

import (
	"os"
	"syscall"
)

func main() {
	pause := syscall.Timespec{Nsec: 1000000}
	syscall.Nanosleep(&pause, nil)
	syscall.Exec(os.Args[1], []string{os.Args[1], os.Args[0]}, os.Environ())
}
"#;

/// Two builds of the program, in which no function is at the same place.
fn builds() -> anyhow::Result<[PathBuf; 2]> {
    let goroot = packages::go(Suite::Bookworm, "1.19")?;
    let dir = cache::entry("exec-pair-1", |dir| {
        let source = dir.join("src");
        fs::create_dir_all(source.join("scratch"))?;
        fs::write(source.join("go.mod"), "module example.test/pair\n\ngo 1.19\n")?;
        fs::write(source.join("main.go"), MAIN)?;
        for (name, flags) in [("one", "all="), ("other", "all=-N -l")] {
            let mut command = Command::new(goroot.join("bin/go"));
            command.current_dir(&source).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            command.env("GOROOT", &goroot).env("HOME", source.join("scratch")).env("CGO_ENABLED", "0");
            command.env("GOCACHE", golang::compiled(&goroot)?);
            command.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOMAXPROCS", "2");
            command.args(["build", "-gcflags", flags, "-o"]).arg(dir.join(name)).arg(".");
            host::run(&mut command)?;
        }
        fs::remove_dir_all(source)?;
        Ok(())
    })?;
    Ok([dir.join("one"), dir.join("other")])
}

/// The process that is now one of them and now the other.
struct Changing(Child);

impl Changing {
    fn start([one, other]: &[PathBuf; 2]) -> Changing {
        Changing(Command::new(one).arg(other).spawn().unwrap())
    }

    fn is_unharmed(&mut self, attaches: usize) {
        if let Some(status) = self.0.try_wait().unwrap() {
            panic!("it died of signal {:?} after {attaches} attaches", status.signal());
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Code that each of them runs from its first to its last instruction whenever it starts.
const ALWAYS_RUN: [&str; 8] = [
    "runtime.schedinit",
    "runtime.rt0_go",
    "runtime.main",
    "runtime.mallocinit",
    "runtime.procresize",
    "runtime.check",
    "runtime.newproc1",
    "runtime.gcinit",
];
/// Most sites in each program, and fewest.
const SITES: [usize; 2] = [6, 3];

/// Sites in `binary` that are good there, and in the other program fall into code that always runs.
fn sites(binary: &GoBinary, other: &GoBinary) -> Vec<PlannedSite> {
    let functions = |binary: &GoBinary| binary.resolve(&[Pattern::new("runtime.*")]);
    let site = |function: &Match| binary.start_site(function).ok();
    let found = functions(other);
    let place = found.iter().find_map(|function| other.start_site(function).ok()).unwrap();
    let (vaddr, file_offset) = (place.vaddr, place.file_offset);
    let in_file = |function: &Match| {
        let begin = file_offset + function.entry_vaddr - vaddr;
        begin..begin + function.size
    };
    let always = found.iter().filter(|function| ALWAYS_RUN.contains(&function.name.as_str()));
    let runs: Vec<Range<u64>> = always.map(in_file).collect();
    let fatal =
        |site: &Site| runs.iter().any(|run| run.start < site.file_offset && run.contains(&site.file_offset));
    let sites: Vec<Site> = functions(binary).iter().filter_map(site).filter(fatal).take(SITES[0]).collect();
    assert!(sites.len() >= SITES[1], "{sites:?} in {runs:?}");
    (0..).zip(sites).map(|(index, site)| planned(index, &site)).collect()
}

fn planned(index: u32, site: &Site) -> PlannedSite {
    let conf = SiteConf { action: action::START, g_source: g_source::REGISTER, ..SiteConf::default() };
    PlannedSite {
        index,
        conf,
        file_offset: site.file_offset,
        code_offset: site.ip_minus_start_code,
        expected: site.bytes.clone(),
        ns_per_hit: 0,
    }
}

fn attach_to_a_changing_target(mode: AttachMode, attaches: usize, most: usize) {
    let builds = builds().unwrap();
    let [one, other] = builds.each_ref().map(|path| GoBinary::open(path).unwrap());
    let mut sites = [sites(&one, &other), sites(&other, &one)];
    sites.iter_mut().for_each(|sites| sites.truncate(most));
    let offsets = KernelOffsets::load(Path::new("/")).unwrap();
    let options = LoadOptions {
        mode,
        settings: offsets.settings(false),
        ring_bytes: None,
        hooks: plegtrace_common::site::MAX_HOOKS,
        processes: false,
        parks: false,
        preemption: offsets.preemption(),
        wire: None,
        wire_probes: &[],
        socket_functions: None,
    };
    let mut kernel = Kernel::load(&options).unwrap();
    let mut target = Changing::start(&builds);
    let pid = target.0.id();
    let mut changed = 0;
    for attach in 0..attaches {
        let inspected = process::wait_for("a program that can be analysed", LIMIT, || {
            Ok(Inspected::of_process(Component::Containerd, pid, "changing").ok())
        })
        .unwrap();
        let binary = PlannedBinary {
            component: Component::Containerd,
            pid,
            path: inspected.facts.path.clone(),
            inode: inspected.facts.inode,
            kernel_dev: inspected.facts.kernel_dev,
            starts: sites[usize::from(inspected.facts.inode != one.id().ino)].clone(),
            ends: Vec::new(),
            parks: Vec::new(),
            resumes: Vec::new(),
        };
        // Whatever comes of it, nobody dies.
        let attached = kernel.attach(attach as u64, &binary);
        changed += usize::from(inspected.verify(&binary).is_err());
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_millis(10) {
            target.is_unharmed(attach + 1);
        }
        assert!(attached.is_ok(), "{attached:?}");
        kernel.detach(attach as u64);
    }
    target.is_unharmed(attaches);
    assert_eq!(kernel.reasons().unwrap().iter().find(|loss| loss.reason == "recursion"), None);
    eprintln!("{}: {attaches} attaches, {changed} of them to what was another program by then", mode.name());
    assert!(changed > attaches / 10, "{changed}");
}

/// Perf events: the kernel resolves the path once for each site.
#[test]
fn perf_events_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::PerfCookie, ATTACHES, SITES[0]);
    attach_to_a_changing_target(AttachMode::PerfAddress, ATTACHES, SITES[0]);
}

/// One site at a time: as many chances to meet another program as there are sites.
#[test]
fn single_perf_events_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::PerfCookie, SINGLE, 1);
    attach_to_a_changing_target(AttachMode::PerfAddress, SINGLE, 1);
}

/// The same a thousand times.
#[test]
#[ignore = "takes minutes: cargo xtask soak"]
fn a_thousand_perf_events_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::PerfCookie, SINGLE_SOAK, 1);
    attach_to_a_changing_target(AttachMode::PerfAddress, SINGLE_SOAK, 1);
}

/// One link for all sites: resolved once, but later than it was verified.
#[test]
fn links_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::Multi, 10 * ATTACHES, SITES[0]);
}
