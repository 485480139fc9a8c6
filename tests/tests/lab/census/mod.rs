//! The census of real processes that wait in a certain way. Each runs under the name of a component; other components
//! of this machine are in the census too and are not looked at here.

mod freezer;
mod target;

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use plegtrace::{
    census::{self, Limits, Request},
    input::{
        CensusFact, Command as Told, Component, Fact, FdFact, FdTarget, ParkedThreads, PipeFact, ProcessFact,
        Unanswered,
    },
};
use plegtrace_lab::{
    host,
    process::{self, wait_for},
};
use plegtrace_tests::{claim, program};
use target::WaitingProgram;

/// A program that waits as it is told.
const HELPER: &str = env!("CARGO_BIN_EXE_census_target");
/// For anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// What a round may take with everything in its way: twice its limit.
const ROUND: Duration = Duration::from_secs(4);

/// One round, by pid.
struct Round {
    processes: BTreeMap<u32, ProcessFact>,
    round: CensusFact,
    took: Duration,
}

fn request() -> Request {
    Request::new(program::path().unwrap())
}

fn census(request: &Request) -> Round {
    let began = Instant::now();
    let facts = census::round(request);
    let took = began.elapsed();
    let (mut processes, mut round) = (BTreeMap::new(), None);
    for fact in facts {
        match fact {
            Fact::Process(process) => drop(processes.insert(process.pid, process)),
            Fact::Census(fact) => round = Some(fact),
            _ => {}
        }
    }
    Round { processes, round: round.expect("a round is closed"), took }
}

impl Round {
    fn process(&self, pid: u32) -> &ProcessFact {
        self.processes.get(&pid).unwrap_or_else(|| panic!("{pid} is missing; {:?}", self.round))
    }

    fn refusals(&self, pid: u32) -> Vec<&Unanswered> {
        self.round.unanswered.iter().filter(|one| one.pid == pid).collect()
    }
}

/// The thread of a process that is in this call.
fn park<'a>(process: &'a ProcessFact, call: &str) -> &'a ParkedThreads {
    let in_call = |park: &&ParkedThreads| {
        park.syscall.as_ref().is_some_and(|syscall| syscall.name.as_deref() == Some(call))
    };
    process.parked.iter().find(in_call).unwrap_or_else(|| panic!("nobody is in {call}: {process:#?}"))
}

fn pipe(park: &ParkedThreads) -> &PipeFact {
    match park.syscall.as_ref().and_then(|syscall| syscall.fd.as_ref()) {
        Some(FdFact { target: FdTarget::Pipe(pipe), .. }) => pipe,
        other => panic!("no pipe: {other:?}"),
    }
}

/// The rc93 hang: a write to a pipe that nobody else reads.
#[test]
fn pipe_with_both_ends() {
    let target = WaitingProgram::start("runc", &["pipe"]).wait_until_ready().wait_in("pipe");
    let round = census(&request());
    let fact = round.process(target.pid());
    assert_eq!((fact.component, fact.state), (Component::Runc, 'S'));
    let park = park(fact, "write");
    assert!(park.kernel_stack.iter().any(|name| name.contains("pipe_write")), "{park:?}");
    let pipe = pipe(park);
    let pids = |holders: &[plegtrace::input::Holder]| holders.iter().map(|one| one.pid).collect::<Vec<_>>();
    assert_eq!((pids(&pipe.readers), pids(&pipe.writers)), (vec![target.pid()], vec![target.pid()]));
    assert!(!pipe.incomplete && round.refusals(target.pid()).is_empty());
    let Some(Told::Runc { sub, .. }) = &fact.command else { panic!("{:?}", fact.command) };
    assert_eq!(sub, "pipe");
    // No Go program: the function that made the call has a name.
    assert!(park.user_function.is_some(), "{park:?}");
}

/// In a sleep that no signal ends: told as such, with the call and the kernel's stack.
#[test]
fn uninterruptible() {
    let target = WaitingProgram::start("runc", &["vfork"]).wait_until_ready();
    let sleeps = || Ok((process::state(target.pid()) == Some('D')).then_some(()));
    wait_for("an uninterruptible sleep", LIMIT, sleeps).unwrap();
    let round = census(&request());
    let fact = round.process(target.pid());
    assert_eq!((fact.component, fact.state), (Component::Runc, 'D'));
    let park = park(fact, "clone");
    assert_eq!(park.state, 'D');
    assert!(park.kernel_stack.iter().any(|name| name.contains("clone")), "{park:?}");
    assert!(round.refusals(target.pid()).is_empty(), "{:?}", round.round);
}

/// What `runc init` does before `runc start`: the FIFO is named.
#[test]
fn fifo_without_a_partner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exec.fifo");
    make_fifo(path.to_str().unwrap());
    let target = WaitingProgram::start_in(dir, "runc", &["fifo", path.to_str().unwrap()]);
    let target = target.wait_until_ready().wait_in("wait_for_partner");
    let round = census(&request());
    let park = park(round.process(target.pid()), "openat");
    assert_eq!(park.syscall.as_ref().unwrap().path.as_deref(), path.to_str());
}

/// Bytes that nobody reads, at the end where they wait, with whoever sent them.
#[test]
fn unread_bytes() {
    let mut target = WaitingProgram::start("runc", &["socket", HELPER]);
    let reader = target.child();
    let target = target.wait_until_ready();
    let round = census(&request());
    let fact = round.process(reader);
    assert_eq!((fact.component, fact.parent), (Component::Helper, target.pid()));
    let [socket] = fact.sockets.as_slice() else { panic!("{:?}", fact.sockets) };
    assert_eq!(socket.unread, 17);
    assert!(socket.peers.iter().any(|peer| peer.pid == target.pid()), "{socket:?}");
}

/// Stopped by a signal: every thread counts, and nothing else is lost.
#[test]
fn stopped() {
    let target = WaitingProgram::start("containerd-shim-runc-v2", &["rest"]).wait_until_ready();
    stop(target.pid());
    let round = census(&request());
    let fact = round.process(target.pid());
    assert_eq!((fact.state, fact.threads, fact.stopped), ('T', 1, 1));
    assert!(matches!(fact.command, Some(Told::Shim { .. })), "{:?}", fact.command);
}

/// A child that ended and that its parent does not ask after.
#[test]
fn zombie() {
    let mut target = WaitingProgram::start("containerd-shim-runc-v2", &["zombie", HELPER]);
    let child = target.child();
    let target = target.wait_until_ready();
    wait_for("a zombie", LIMIT, || Ok((process::state(child) == Some('Z')).then_some(()))).unwrap();
    let round = census(&request());
    let fact = round.process(child);
    assert_eq!((fact.state, fact.parent, fact.component), ('Z', target.pid(), Component::Helper));
}

/// A path in memory that is a file of a stopped FUSE server. The command line was told before.
#[test]
fn path_on_a_dead_filesystem() {
    let Some((_server, stuck)) = stuck_path() else { return };
    let witness = WaitingProgram::start("runc", &["pipe"]).wait_until_ready().wait_in("pipe");
    let round = census(&request());
    claim::soon_within("round past a dead filesystem", round.took, ROUND);
    let fact = late(&round, stuck, "path argument");
    let open = park(fact, "openat").syscall.as_ref().unwrap();
    assert_eq!(open.path, None);
    assert!(fact.command.is_some());
    park(round.process(witness.pid()), "write");
    assert!(round.refusals(witness.pid()).is_empty(), "who comes later is asked too");
    assert_eq!(round.round.left_out, 0);
}

/// A filesystem that does not answer, and a process that is in a system call with a path there. `None` where there can be
/// none, which is declared.
fn stuck_path() -> Option<(WaitingProgram, u32)> {
    if !Path::new("/dev/fuse").exists() {
        host::declare_skip("fuse", &anyhow::anyhow!("no /dev/fuse"));
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (mount, fifo, runc) = (path("fs"), path("fifo"), path("runc"));
    fs::create_dir(&mount).unwrap();
    fs::copy(HELPER, &runc).unwrap();
    make_fifo(&fifo);
    let words = ["fuse-server", &mount, &runc, &fifo];
    let mut server = WaitingProgram::start_in(dir, "fuse-server", &words);
    let stuck = server.child();
    let server = server.wait_until_ready();
    stop(server.pid());
    Some((server, stuck))
}

/// What is told of a process that did not answer one question, and only that one.
fn late<'a>(round: &'a Round, pid: u32, what: &str) -> &'a ProcessFact {
    let refusals = round.refusals(pid);
    let [refused] = refusals.as_slice() else { panic!("{refusals:?}") };
    assert_eq!((refused.what.as_str(), refused.comm.as_str()), (what, "runc"));
    assert!(refused.why.starts_with("no answer within "), "{refused:?}");
    round.process(pid)
}

fn stop(pid: u32) {
    process::signal(pid, libc::SIGSTOP).unwrap();
    wait_for("a stop", LIMIT, || Ok((process::state(pid) == Some('T')).then_some(()))).unwrap();
}

fn make_fifo(path: &str) {
    let name = CString::new(path).unwrap();
    // SAFETY: a text that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// The reader does not outlive a plegtrace that is killed while it waits.
#[test]
fn no_orphans() {
    let Some((_server, _stuck)) = stuck_path() else { return };
    // There has to be something to trace.
    let [kubelet, runtime] =
        ["kubelet", "containerd"].map(|name| WaitingProgram::start(name, &["rest"]).wait_until_ready());
    let pids = [&kubelet, &runtime].map(|target| target.pid().to_string());
    let arguments = ["--sources", "census", "--kubelet-pid", &pids[0], "--runtime-pid", &pids[1]];
    let mut running = program::Running::start(&arguments).unwrap();
    let reader = wait_for("a reader that waits", LIMIT, || {
        assert!(!running.has_ended()?, "it ended early: {}", running.said());
        Ok(waiting_child(running.pid()))
    })
    .unwrap();
    running.signal(libc::SIGKILL).unwrap();
    wait_for("the end of the reader", LIMIT, || {
        Ok(matches!(process::state(reader), None | Some('Z' | 'X')).then_some(()))
    })
    .unwrap();
}

/// The child of `parent` that waits for the memory of another process.
fn waiting_child(parent: u32) -> Option<u32> {
    let reads = |pid: &u32| {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.starts_with(&format!("{} ", libc::SYS_process_vm_readv))
    };
    children(parent).into_iter().find(reads)
}

/// Children of all threads of a process.
fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    texts.flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// A whole node of shims: in time, and small.
#[test]
fn two_hundred_shims() {
    const SHIMS: usize = 200;
    const NAME: &str = "containerd-shim-runc-v2";
    let shims: Vec<WaitingProgram> = {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(HELPER, dir.path().join(NAME)).unwrap();
        (0..SHIMS)
            .map(|_| {
                let own = tempfile::tempdir().unwrap();
                fs::hard_link(dir.path().join(NAME), own.path().join(NAME)).unwrap();
                WaitingProgram::run(own, NAME, &["rest"]).wait_until_ready()
            })
            .collect()
    };
    let limits = Limits { round: Duration::from_secs(10), ..Limits::default() };
    let (round, peak) = peak_kib(|| census(&Request { limits, ..request() }));
    let told = shims.iter().filter(|shim| round.processes.contains_key(&shim.pid())).count();
    println!(
        "{told} shims, {} processes in {:?}, reader at most {} KiB",
        round.round.processes, round.took, peak
    );
    assert_eq!((told, round.round.left_out), (SHIMS, 0));
    assert!(
        shims.iter().all(|shim| !round.process(shim.pid()).parked.is_empty() && shim.dir.path().exists())
    );
    claim::soon_within("round of many shims", round.took, Duration::from_secs(10));
    assert!((1..80 << 10).contains(&peak), "{peak} KiB");
}

/// The highest memory of the reader while something runs, KiB.
fn peak_kib<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let highest = children(std::process::id()).into_iter().filter_map(reader_kib).max();
                peak.fetch_max(highest.unwrap_or(0), Ordering::Relaxed);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, peak.load(Ordering::Relaxed))
    })
}

fn reader_kib(pid: u32) -> Option<u64> {
    let reads = process::arguments(pid).iter().any(|word| word == census::CHILD_COMMAND);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok().filter(|_| reads)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The reader that stays has looked at everything with little of root's power, and cannot get it back.
#[test]
fn the_reader_is_confined() {
    const PTRACE: u64 = 1 << 19;
    const KEPT: u64 = 1 << 2 | PTRACE | 1 << 21 | 1 << 34; // DAC_READ_SEARCH, SYS_ADMIN, SYSLOG
    let target = WaitingProgram::start("runc", &["pipe"]).wait_until_ready().wait_in("pipe");
    let round = census(&request());
    assert!(
        park(round.process(target.pid()), "write")
            .kernel_stack
            .iter()
            .any(|name| name.contains("pipe_write"))
    );
    // Other tests ask as well: their readers are no different, once they have answered.
    let reader = wait_for("a reader that waits for an order", LIMIT, || {
        let waits = |pid: &u32| {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            call.starts_with(&format!("{} 0x0 ", libc::SYS_read))
        };
        let readers = children(std::process::id()).into_iter();
        let mut readers =
            readers.filter(|pid| process::arguments(*pid).iter().any(|a| a == census::CHILD_COMMAND));
        Ok(readers.find(waits))
    })
    .unwrap();
    let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim();
    assert_eq!((line("Seccomp:"), line("NoNewPrivs:")), ("2", "1"));
    let effective = u64::from_str_radix(line("CapEff:"), 16).unwrap();
    assert_eq!((effective & !KEPT, effective & PTRACE), (0, PTRACE), "{effective:#x}");
}

/// A program that is no plegtrace is not believed.
#[test]
fn strangers_are_not_believed() {
    let round = census(&Request::new(PathBuf::from("/bin/echo")));
    let [refused] = round.round.unanswered.as_slice() else { panic!("{:?}", round.round) };
    assert_eq!((refused.pid, refused.what.as_str(), round.round.processes), (0, "census", 0));
}
