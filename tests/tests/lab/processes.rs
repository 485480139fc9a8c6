//! Short-lived processes of a real containerd under churn: each is seen exactly once and rightly named, by the word of
//! the kernel's process connector, which shares nothing with us, and of the shims, which started them; and nothing is left
//! of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use plegtrace::clock;
use plegtrace::correlate::{EndedProcess, OpenProcess, ProcessEnd, ProcessKind, RpcRow, Side, Snapshot};
use plegtrace::decode::{Process, Step};
use plegtrace::diagnose::{Reason, diagnose};
use plegtrace::input::{Command, CommandFact, Component, ProcessesFact, WatchedFact};
use plegtrace_common::role::Role;
use plegtrace_lab::cri::Pod;
use plegtrace_lab::{Containerd, Event as ShimEvent, Events, Knobs, Network, host, process};
use plegtrace_tests::churn::{self, Asked};
use plegtrace_tests::connector::{Connector, ProcessStep, Seen as Event};
use plegtrace_tests::program::Running;
use plegtrace_tests::watching::{Seen, Watching};

const PODS: usize = 6;
/// What a node with many exec probes does.
const RUNC_PER_SECOND: f64 = 20.0;
/// Begin and end of a churn lie inside of the observation by as much.
const MARGIN: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);
/// Two records of the same step are made within this time, on a machine that is busy.
const SAME_NS: u64 = 1_000_000_000;
/// What the memory of plegtrace may grow by while it runs.
const GROWTH_KIB: u64 = 4 << 10;
const SUBS: [&str; 10] =
    ["create", "start", "exec", "kill", "delete", "state", "update", "init", "features", "events"];

/// One churn, seen four times: by us, by the connector, by the shims, and by who asked for it.
struct Churn {
    containerd: Containerd,
    began_ns: u64,
    ended_ns: u64,
    asked: Asked,
    events: Vec<Event>,
    told: Vec<ShimEvent>,
    roots: Vec<u32>,
    seen: Seen,
    snapshot: Snapshot,
    rss_kib: [u64; 2],
}

impl Churn {
    fn observe(duration: Duration) -> Churn {
        host::require_root().unwrap();
        let knobs = Knobs { pods: 0, network: Network::Bridge, ..Knobs::default() };
        let containerd = Containerd::start(&knobs).unwrap();
        let pods: Vec<Pod> = (0..PODS).map(|n| containerd.run_pod(&format!("p{n}")).unwrap()).collect();
        let mut shims = Events::listen(&containerd).unwrap();
        let (runtime, length) = (containerd.pid().to_string(), (duration + MARGIN).as_secs().to_string());
        let arguments = ["-d", &length, "--runtime-pid", &runtime];
        // For its memory: without the tables of whatever other programs run on this machine.
        let mut other = Running::start(&[&arguments[..], &["--sources", "processes"]].concat()).unwrap();
        let watching = Watching::start(&arguments).unwrap();
        watching.wait_until_armed().unwrap();
        watching.wait_until_runc_is_probed().unwrap();
        other.wait_until_armed(LIMIT).unwrap();
        let mut roots: Vec<u32> = containerd.shims().iter().map(|shim| shim.pid).collect();
        roots.push(containerd.pid());

        let connector = Connector::start().unwrap();
        let began_ns = clock::monotonic_ns();
        // Both a little after everything is warm, and at the end.
        let warm = churn::run(&containerd, &pods, duration / 3).unwrap();
        let early = rss_kib(other.pid());
        let rest = churn::run(&containerd, &pods, duration - duration / 3).unwrap();
        let rss_kib = [early, rss_kib(other.pid())];
        let asked = sum(warm, rest);
        let ended_ns = clock::monotonic_ns();
        settle(&containerd);
        let events = connector.finish().unwrap();
        let told = everything_told(&mut shims, &asked);
        let (snapshot, seen) = watching.interrupt().unwrap();
        other.signal(libc::SIGINT).unwrap();
        other.finish(LIMIT).unwrap();
        Churn { containerd, began_ns, ended_ns, asked, events, told, roots, seen, snapshot, rss_kib }
    }

    /// Execs below the roots, down to the first processes of containers, as the connector saw them.
    fn real_execs(&self) -> Vec<(&Event, &[String])> {
        let workloads: HashSet<(u32, u64)> =
            self.execs().filter(|p| p.role == Role::Workload).map(key).collect();
        let mut tree: HashSet<u32> = self.roots.iter().copied().collect();
        let mut execs = Vec::new();
        for event in &self.events {
            match &event.what {
                ProcessStep::Fork { parent } if tree.contains(parent) => drop(tree.insert(event.pid)),
                ProcessStep::Exec { arguments } if tree.contains(&event.pid) => {
                    let ours =
                        |(pid, at): &(u32, u64)| *pid == event.pid && at.abs_diff(event.at_ns) < SAME_NS;
                    if workloads.iter().any(ours) {
                        assert!(runc_sub(arguments).is_none(), "a workload? {arguments:?}");
                        tree.remove(&event.pid);
                    }
                    execs.push((event, arguments.as_slice()));
                }
                ProcessStep::Exit => drop(tree.remove(&event.pid)),
                ProcessStep::Fork { .. } | ProcessStep::Exec { .. } => {}
            }
        }
        execs
    }

    /// Ours, but for what kubelets of other labs on this machine run: those are watched too.
    fn execs(&self) -> impl Iterator<Item = &Process> {
        let mut foreign = HashSet::new();
        self.seen.processes.iter().filter(move |process| {
            let pid = process.meta.tgid;
            let theirs = process.parent_role == Role::Kubelet
                || process.creator.is_some_and(|it| foreign.contains(&it));
            match process.step {
                Step::Fork if theirs => drop(foreign.insert(pid)),
                Step::Fork | Step::Exit(_) => drop(foreign.remove(&pid)),
                Step::Exec => {}
            }
            process.step == Step::Exec && !foreign.contains(&pid)
        })
    }

    /// What processes were told to do. runc that starts itself again from a copy tells it twice.
    fn commands(&self) -> impl Iterator<Item = &CommandFact> {
        let mut told = HashSet::new();
        self.seen.commands.iter().filter(move |fact| told.insert((fact.pid, fact.since_ns)))
    }

    fn command(&self, of: &Process) -> Option<&CommandFact> {
        // A program that started itself again has two.
        let own =
            |fact: &&CommandFact| fact.pid == of.meta.tgid && Some(fact.since_ns) == of.since.map(|s| s.0);
        self.seen.commands.iter().find(own)
    }
}

/// A kubelet of another lab on this machine, or what it runs.
fn is_foreign(process: &WatchedFact) -> bool {
    [process.role, process.parent_role].contains(&(Role::Kubelet as u32))
}

fn key(process: &Process) -> (u32, u64) {
    (process.meta.tgid, process.meta.at.0)
}

fn sum(mut a: Asked, b: Asked) -> Asked {
    for (container, count) in b.execs {
        *a.execs.entry(container).or_default() += count;
    }
    a.pods.extend(b.pods);
    a
}

/// Waits until no runc of this containerd runs any more.
fn settle(containerd: &Containerd) {
    let marked = || process::marked(containerd.scratch().path());
    process::wait_for("the last runc to end", LIMIT, || {
        Ok((!marked().into_iter().any(|pid| process::name(pid).starts_with("runc"))).then_some(()))
    })
    .unwrap();
}

/// What the shims told, when they have told of every end; they do so a little after the runtime's answers.
fn everything_told(shims: &mut Events, asked: &Asked) -> Vec<ShimEvent> {
    let execs = asked.execs.values().sum::<u64>() as usize;
    // A guest is a sandbox and a container.
    let ends = execs + 2 * asked.pods.len();
    process::wait_for("the shims' word of every end", LIMIT, || {
        let told = shims.so_far().iter().filter(|event| event.topic == "/tasks/exit").count();
        Ok((told >= ends).then_some(()))
    })
    .unwrap();
    shims.so_far().to_vec()
}

fn rss_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The sub-command of a runc command line that was read in time.
fn runc_sub(arguments: &[String]) -> Option<&str> {
    let program = arguments.first()?.rsplit('/').next()?;
    let init = arguments.len() == 2 && arguments[1] == "init" && matches!(program, "runc" | "exe");
    let known = || arguments.iter().find(|word| SUBS.contains(&word.as_str())).map(String::as_str);
    if program == "runc" || init { known().or(Some("")) } else { None }
}

/// Each exec that the connector saw is one of ours, and the other way round; where both know what a runc was told, it is
/// the same.
fn compare_with_the_connector(churn: &Churn) {
    let mut ours: HashMap<u32, Vec<&Process>> = HashMap::new();
    for exec in churn.execs() {
        ours.entry(exec.meta.tgid).or_default().push(exec);
    }
    let within = |ns: u64| (churn.began_ns + SAME_NS..churn.ended_ns).contains(&ns);
    let (mut missed, mut compared) = (Vec::new(), 0u64);
    let real = churn.real_execs();
    for (event, arguments) in &real {
        let mine = ours.entry(event.pid).or_default();
        let Some(place) = mine.iter().position(|p| p.meta.at.0.abs_diff(event.at_ns) < SAME_NS) else {
            missed.push((event.pid, *arguments));
            continue;
        };
        let exec = mine.remove(place);
        if let (Some(sub), Some(fact)) = (runc_sub(arguments), churn.command(exec)) {
            let Command::Runc { sub: told, container, .. } = &fact.command else {
                panic!("{arguments:?} is no runc for us: {fact:?}");
            };
            assert_eq!(told, sub, "{arguments:?}");
            assert!(
                container.as_ref().is_none_or(|id| arguments.contains(id)),
                "{container:?}: {arguments:?}"
            );
            assert!(!fact.unread, "{arguments:?}");
            compared += 1;
        }
    }
    missed.retain(|(pid, _)| real.iter().any(|(event, _)| event.pid == *pid && within(event.at_ns)));
    let surplus: Vec<&&Process> = ours.values().flatten().filter(|p| within(p.meta.at.0)).collect();
    eprintln!("{} execs by the connector, {compared} command lines of runc compared", real.len());
    assert!(missed.is_empty(), "{} execs were not seen: {missed:?}", missed.len());
    assert!(surplus.is_empty(), "{} execs never happened: {surplus:?}", surplus.len());
    assert!(compared * 2 > real.len() as u64 / 10, "the connector reads some command lines in time");
}

/// Every exec and every pod that was asked for has its runc commands and its plugins.
fn compare_with_what_was_asked(churn: &Churn) {
    let mut runcs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut plugins: BTreeMap<(String, String), u64> = BTreeMap::new();
    for fact in churn.commands() {
        match &fact.command {
            Command::Runc { sub, container: Some(id), .. } => {
                *runcs.entry((id.clone(), sub.clone())).or_default() += 1;
            }
            Command::Cni { action: Some(action), container: Some(id), .. } => {
                *plugins.entry((id.clone(), action.clone())).or_default() += 1;
            }
            _ => {}
        }
    }
    let runc = |id: &str, sub: &str| runcs.get(&(id.to_owned(), sub.to_owned())).copied().unwrap_or(0);
    for (container, count) in &churn.asked.execs {
        assert_eq!(runc(container, "exec"), *count, "execs in {container}");
    }
    for pod in &churn.asked.pods {
        for id in [&pod.container, &pod.sandbox] {
            assert_eq!((runc(id, "create"), runc(id, "start")), (1, 1), "{id}");
            assert!(runc(id, "kill") >= 1 && runc(id, "delete") >= 1, "{id}");
        }
        for action in ["ADD", "DEL"] {
            let plugin = plugins.get(&(pod.sandbox.clone(), action.to_owned())).copied().unwrap_or(0);
            assert!(plugin >= 1, "CNI {action} of {}", pod.sandbox);
        }
    }
    let seconds = (churn.ended_ns - churn.began_ns) as f64 / 1e9;
    let rate = runcs.values().sum::<u64>() as f64 / seconds;
    eprintln!("{rate:.1} runc commands a second, {} pods", churn.asked.pods.len());
    assert!(rate >= RUNC_PER_SECOND, "this machine made {rate:.1} runc commands a second only");
}

/// Whatever a shim says that it started is there, with the runc command it takes, and no command more; and whatever it
/// says has ended, has ended so for us.
fn compare_with_the_shims(churn: &Churn) {
    let mut runcs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for fact in churn.commands() {
        if let Command::Runc { sub, container: Some(id), .. } = &fact.command {
            *runcs.entry((id, sub)).or_default() += 1;
        }
    }
    let mut told: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let (mut births, mut ends): (HashSet<u32>, HashMap<u32, Vec<u32>>) = Default::default();
    for process in &churn.seen.processes {
        match process.step {
            Step::Fork => drop(births.insert(process.meta.tgid)),
            Step::Exit(status) => ends.entry(process.meta.tgid).or_default().push(as_shims_tell(status)),
            Step::Exec => {}
        }
    }
    for event in &churn.told {
        let sub = match event.topic.as_str() {
            "/tasks/create" => "create",
            "/tasks/start" => "start",
            "/tasks/exec-started" => "exec",
            "/tasks/exit" => {
                let pid = event.pid.unwrap();
                let mine = ends.get(&pid).is_some_and(|mine| mine.contains(&event.exit_status));
                assert!(mine, "{event:?}: {:?}", ends.get(&pid));
                continue;
            }
            // Of commands there are such, too, without a runc; and a container is deleted once more to be sure.
            "/tasks/delete" if event.id.as_ref().is_none_or(|id| *id == event.container) => {
                assert!(runcs.contains_key(&(&event.container, "delete")), "{event:?}");
                continue;
            }
            _ => continue,
        };
        assert!(births.contains(&event.pid.unwrap()), "started by a shim, and not seen: {event:?}");
        *told.entry((&event.container, sub)).or_default() += 1;
    }
    runcs.retain(|(_, sub), _| ["create", "start", "exec"].contains(sub));
    assert_eq!(runcs, told, "runc commands, and what the shims say they ran");
    let [started, ended] =
        [told.values().sum(), churn.told.iter().filter(|e| e.topic == "/tasks/exit").count() as u64];
    eprintln!("{started} runc commands and {ended} ends by the word of the shims");
    assert!(started > 0 && ended > 0);
}

/// Exit code, or 128 and the signal.
fn as_shims_tell(status: u32) -> u32 {
    if status & 0x7f == 0 { status >> 8 & 0xff } else { 128 + (status & 0x7f) }
}

/// The figures of the report are those of the stream.
fn compare_with_the_report(churn: &Churn) {
    let rows: BTreeMap<String, (u64, u64)> = churn
        .snapshot
        .processes
        .rows
        .iter()
        .map(|row| (row.kind.to_string(), (row.latency.count(), row.failed + row.killed)))
        .collect();
    eprintln!("{rows:?}");
    let asked: u64 = churn.asked.execs.values().sum();
    assert_eq!(rows["runc exec"], (asked, 0));
    let made = churn.execs().filter(|exec| exec.role == Role::Workload).count() as u64;
    let (inits, failed) = rows["runc init"];
    let guests: Vec<&String> =
        churn.asked.pods.iter().flat_map(|pod| [&pod.container, &pod.sandbox]).collect();
    assert_eq!(inits, asked + guests.len() as u64, "each exec and each container has one init");
    assert_eq!(inits, made + failed, "and each of these became a workload, or failed");
    // A guest is stopped at once. Before its `execve` its first process is still Go, which answers SIGTERM in a pid
    // namespace of its own with exit code 2 (runtime/signal_unix.go, `dieFromSignal`).
    let ended = churn
        .snapshot
        .processes
        .failed
        .iter()
        .filter(|ended| matches!(ended.kind, ProcessKind::RuncInit { .. }));
    let early = |ended: &&EndedProcess| {
        let of_guest = ended.container.as_ref().is_some_and(|id| guests.contains(&id));
        of_guest && ended.how == ProcessEnd::Exited(2)
    };
    assert_eq!(ended.clone().filter(early).count() as u64, failed, "{:?}", ended.collect::<Vec<_>>());
    assert!(rows.contains_key("CNI bridge ADD") && rows.contains_key("shim delete"), "{rows:?}");
}

/// Every process that was made, by create and by exec, was in that phase of its runc.
fn phases_are_counted(churn: &Churn) {
    let start = |row: &&RpcRow| row.key.side == Side::RuncPhase && row.key.operation == "start";
    let row = churn.snapshot.rows.iter().find(start).expect("runc has phases");
    let asked = churn.asked.execs.values().sum::<u64>() + 2 * churn.asked.pods.len() as u64;
    assert_eq!((row.latency.count(), row.unwound, row.key.tgid), (asked, 0, 0));
    for row in churn.snapshot.rows.iter().filter(|row| row.key.side == Side::RuncPhase) {
        eprintln!(
            "{}: {}, 99 % below {} us",
            row.key.operation,
            row.latency.count(),
            row.latency.quantile_ns(0.99).unwrap_or(0) / 1000
        );
        assert_eq!(row.unwound, 0, "{}", row.key.operation);
    }
}

/// All that is known of a process, for who has to find out why it is still watched.
fn story_of(churn: &Churn, pid: u32) -> String {
    let (_, last) = churn.seen.watched.as_ref().unwrap();
    let fact = last.processes.iter().find(|process| process.pid == pid);
    let ours: Vec<&Process> =
        churn.seen.processes.iter().filter(|process| process.meta.tgid == pid).collect();
    let theirs: Vec<&Event> = churn.events.iter().filter(|event| event.pid == pid).collect();
    let (read_at, name) = (last.at_ns, process::name(pid));
    format!("{fact:?}, read at {read_at}, now {name:?}\nours: {ours:?}\nof the connector: {theirs:?}")
}

/// Nothing of all this is left: no open span, no entry in the kernel's map, no memory; and nothing was called late.
fn nothing_is_left(churn: &Churn) {
    let processes = &churn.snapshot.processes;
    let kubelet = ProcessKind::Component(Component::Kubelet);
    let ours = |process: &&OpenProcess| process.parents.iter().all(|(_, kind)| *kind != kubelet);
    let open: Vec<&OpenProcess> = processes.open.iter().filter(ours).collect();
    assert!(open.is_empty(), "still open: {open:?}");
    assert_eq!(processes.ended_unseen, 0);
    let phases: Vec<_> = churn.seen.open_phases().collect();
    assert!(phases.is_empty(), "phases of runc that ended: {phases:?}");
    assert_eq!((churn.snapshot.closed_unseen.process_exited, churn.snapshot.tally.unwound), (0, 0));
    assert_eq!(churn.snapshot.real_losses().count(), 0, "{:?}", churn.snapshot.losses);
    assert_eq!(churn.seen.undecoded, 0);
    let reasons = diagnose(&churn.snapshot).reasons;
    let late = reasons.iter().find(|reason| matches!(reason, Reason::ProcessesOpen { .. }));
    assert!(late.is_none(), "{late:?}");
    let (first, last) = churn.seen.watched.as_ref().unwrap();
    let pids = |of: &ProcessesFact| -> HashSet<u32> {
        of.processes.iter().filter(|process| !is_foreign(process)).map(|process| process.pid).collect()
    };
    let alive = churn.containerd.shims();
    let lives = |pid: &u32| alive.iter().any(|shim| shim.pid == *pid) || *pid == churn.containerd.pid();
    let strange: Vec<u32> = pids(last).into_iter().filter(|pid| !lives(pid)).collect();
    assert!(
        strange.is_empty(),
        "still watched: {:#?}",
        strange.iter().map(|pid| story_of(churn, *pid)).collect::<Vec<_>>()
    );
    assert_eq!(pids(last).len(), pids(first).iter().filter(|pid| lives(pid)).count());
    let [early, late] = churn.rss_kib;
    eprintln!("memory of plegtrace: {early} KiB, later {late} KiB");
    assert!(late <= early + GROWTH_KIB, "memory grew from {early} to {late} KiB");
}

fn all_are_seen(duration: Duration) {
    let began = Instant::now();
    let churn = Churn::observe(duration);
    assert!(began.elapsed() > duration);
    compare_with_the_connector(&churn);
    compare_with_the_shims(&churn);
    compare_with_what_was_asked(&churn);
    compare_with_the_report(&churn);
    phases_are_counted(&churn);
    nothing_is_left(&churn);
}

#[test]
fn no_runc_of_a_busy_minute_is_missed() {
    all_are_seen(Duration::from_secs(60));
}

#[test]
#[ignore = "takes ten minutes: cargo xtask soak"]
fn no_runc_of_ten_busy_minutes_is_missed() {
    all_are_seen(Duration::from_secs(600));
}
