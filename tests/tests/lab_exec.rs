//! A target that is another program each millisecond: what was planned for one is never attached to the other.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use plegtrace::input::Component;
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions};
use plegtrace::plan::{Budget, PlannedBinary, Planner};
use plegtrace::session::Inspected;
use plegtrace::target::{KernelOffsets, OnDisk, on_disk};
use plegtrace_lab::packages::Suite;
use plegtrace_lab::{cache, host, packages, process};

const LIMIT: Duration = Duration::from_secs(60);
/// Attaches of each perf event mode; each has two sites, which take 0.1 s each to take off.
const ATTACHES: usize = 50;

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

/// What is planned for the program that the process is now: the two sites of its scheduler.
fn planned(pid: u32) -> (Inspected, PlannedBinary) {
    let analysed = |pid| Inspected::of(Component::Containerd, pid, "changing").ok();
    let inspected = process::wait_for("a program that can be analysed", LIMIT, || Ok(analysed(pid))).unwrap();
    let mut planner = Planner::new(Budget::All).with_parks(true);
    planner.add(&inspected.facts).expect("it has a scheduler");
    let binary = planner.plan().binaries[0].clone();
    assert_eq!((binary.parks.len(), binary.resumes.len()), (1, 1));
    (inspected, binary)
}

fn attach_to_a_changing_target(mode: AttachMode, attaches: usize) {
    let builds = builds().unwrap();
    let sites = builds.each_ref().map(|path| sites_of(path));
    assert_ne!(sites[0], sites[1], "the same places in both builds would prove nothing");
    let options = LoadOptions {
        mode,
        settings: KernelOffsets::load(Path::new("/")).unwrap().settings(false),
        ring_bytes: None,
        processes: false,
        parks: true,
    };
    let mut kernel = Kernel::load(&options).unwrap();
    let mut target = Changing::start(&builds);
    let mut changed = 0;
    for attach in 0..attaches {
        let (inspected, binary) = planned(target.0.id());
        let refused = kernel.attach(attach as u64, &binary).unwrap();
        assert!(refused.is_none(), "{refused:?}");
        changed += usize::from(inspected.verify(&binary).is_err());
        target.is_unharmed(attach);
        kernel.detach(attach as u64);
    }
    target.is_unharmed(attaches);
    assert_ne!(on_disk(&PathBuf::from(format!("/proc/{}", target.0.id()))), OnDisk::Unknown);
    eprintln!("{}: {attaches} attaches, {changed} of them to what was another program by then", mode.name());
    assert!(changed > attaches / 10, "{changed}");
}

/// Offsets of the sites of a build in its file.
fn sites_of(path: &Path) -> Vec<u64> {
    let binary = plegtrace::target::GoBinary::open(path).unwrap();
    let patterns = ["runtime.gopark", "runtime.execute"].map(plegtrace::target::Pattern::new);
    let found = binary.resolve(&patterns);
    found.iter().map(|function| binary.start_site(function).unwrap().file_offset).collect()
}

/// Perf events: the kernel resolves the path once for each site.
#[test]
fn perf_events_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::PerfCookie, ATTACHES);
    attach_to_a_changing_target(AttachMode::PerfAddress, ATTACHES);
}

/// One link for all sites: resolved once, but later than it was verified.
#[test]
fn links_stay_on_the_program_that_was_verified() {
    host::require_root().unwrap();
    attach_to_a_changing_target(AttachMode::Multi, 4 * ATTACHES);
}
