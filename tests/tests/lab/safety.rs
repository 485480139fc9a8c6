//! What plegtrace does to a node that works: nothing. Proved in the memory of the probed programs, where a uprobe is a
//! breakpoint, and by the life of kubelet, containerd and pods.
//!
//! Breakpoints belong to the program file: no other plegtrace may trace another lab from the same cache meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::cri::{Pod, relist};
use plegtrace_lab::{Knobs, Node, host, process};
use plegtrace_tests::breakpoints::Sites;
use plegtrace_tests::program::Running;
use plegtrace_tests::run_delay::RunDelays;
use plegtrace_tests::{claim, kernel_side};

const CYCLES: usize = 100;
const KILLS: usize = 12;
/// What issue and design promise for uprobe_multi.
const ARMED: Duration = Duration::from_secs(1);
const GONE: Duration = Duration::from_millis(500);
const GONE_AFTER_KILL: Duration = Duration::from_secs(1);
/// Taking one perf event off.
const GONE_PER_PERF_EVENT: Duration = Duration::from_millis(150);
/// For anything on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A start site and the end sites of each program: plegtrace attaches ends first and takes them off last.
const KUBELET_SITES: &[&str] = &[
    "pleg.(*GenericPLEG).relist",
    "kuberuntime.instrumentedRuntimeService.ListContainers",
    "kuberuntime.recordOperation",
];
const CONTAINERD_SITES: &[&str] = &[
    "runtime/v1alpha2._RuntimeService_ListContainers_Handler",
    "google.golang.org/grpc.(*Server).sendResponse",
    "transport.(*http2Server).WriteStatus",
];

/// The load and the observations of most tests.
fn knobs() -> Knobs {
    Knobs { pods: 4, exec_probes: true, ..Knobs::default() }
}

/// A node under load, with the places to look at.
struct Loaded<'a> {
    node: &'a Node,
    sites: [Sites; 2],
    pods: Vec<Pod>,
    identities: Vec<Option<String>>,
    relists: relist::Loop,
    execs: Execs,
}

impl Loaded<'_> {
    fn on(node: &Node) -> Loaded<'_> {
        let runtime = node.containerd();
        let client = runtime.client_of(runtime.knobs().generation.api()).unwrap();
        let relists = relist::Loop::start(client, Duration::from_millis(10), LIMIT);
        let pods = node.kubelet().running_pods().unwrap();
        let execs = Execs::start(node, pods[0].container.clone());
        let sites = [
            Sites::find(node.kubelet().pid(), KUBELET_SITES).unwrap(),
            Sites::find(runtime.pid(), CONTAINERD_SITES).unwrap(),
        ];
        assert_eq!(sites.each_ref().map(Sites::count), [KUBELET_SITES.len(), CONTAINERD_SITES.len()]);
        let identities = identities(node);
        Loaded { node, sites, pods, identities, relists, execs }
    }

    /// Starts plegtrace on exactly this node.
    fn trace(&self, arguments: &[&str]) -> Running {
        let (kubelet, runtime) =
            (self.node.kubelet().pid().to_string(), self.node.containerd().pid().to_string());
        let mut all = vec!["-q", "-d", "600", "--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
        all.extend(arguments);
        Running::start(&all).unwrap()
    }

    fn is_armed(&self) -> Result<bool> {
        Ok(self.sites[0].all_armed()? && self.sites[1].all_armed()?)
    }

    fn is_clean(&self) -> Result<bool> {
        Ok(self.sites[0].armed()?.is_empty() && self.sites[1].armed()?.is_empty())
    }

    fn wait_until_armed(&self, running: &mut Running, limit: Duration) {
        watch_for("breakpoints at all sites", limit, || {
            ensure!(!running.has_ended()?, "plegtrace ended early");
            // From here on a signal ends it with a report.
            Ok(self.is_armed()? && kernel_side::handles(running.pid(), libc::SIGINT)?)
        })
        .unwrap();
    }

    /// Time until no site has a breakpoint, and for how much of it one thread of plegtrace waited for a CPU.
    fn wait_until_clean(&self, pid: u32, before: &RunDelays) -> (Duration, Duration) {
        let mut waited = Duration::ZERO;
        let clean = watch_for("the program's own instructions at all sites", LIMIT, || {
            waited = waited.max(RunDelays::of(pid).longest_since(before));
            self.is_clean()
        });
        let clean =
            clean.inspect_err(|late| claim::harm(false, format_args!("breakpoints are left: {late}")));
        (clean.unwrap(), waited)
    }

    /// The same processes run the same pods, nobody panicked, and the load was served all the time.
    fn is_unharmed(&self) {
        let alive = identities(self.node);
        let live_on =
            format_args!("kubelet, containerd and shims were {:?}, and are {alive:?}", self.identities);
        claim::harm(alive == self.identities, live_on);
        let ids = |pods: &[Pod]| pods.iter().map(|pod| pod.container.clone()).collect::<Vec<_>>();
        let pods = ids(&self.node.kubelet().running_pods().unwrap());
        claim::harm(
            pods == ids(&self.pods),
            format_args!("pods were restarted: {:?}, now {pods:?}", self.pods),
        );
        for log in [self.node.kubelet().log_path(), self.node.containerd().log_path()] {
            let text = std::fs::read_to_string(&log).unwrap();
            for word in ["panic:", "fatal error:", "SIGTRAP", "SIGSEGV", "SIGILL"] {
                claim::harm(!text.contains(word), format_args!("{word} in {}", log.display()));
            }
        }
        let relists = self.relists.relists();
        let failed = relists.iter().filter(|relist| relist.error.is_some()).count();
        claim::harm(failed == 0, format_args!("{failed} of {} relists failed", relists.len()));
        let failures = self.execs.failures();
        claim::harm(failures.is_empty(), format_args!("commands failed: {failures:?}"));
        self.node.wait_for_relists(2, LIMIT).unwrap();
    }

    fn served(&self) -> (usize, u64) {
        (self.relists.relists().len(), self.execs.count.load(Ordering::Relaxed))
    }
}

/// Everything that must survive: kubelet, containerd, shims, as number and start time.
fn identities(node: &Node) -> Vec<Option<String>> {
    let shims = node.containerd().shims().into_iter().map(|shim| shim.pid);
    [node.kubelet().pid(), node.containerd().pid()].into_iter().chain(shims).map(process::identity).collect()
}

/// Runs a command in a container, again and again.
struct Execs {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Execs {
    fn start(node: &Node, container: String) -> Execs {
        let client = node.containerd().client().clone();
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let (stopped, counter, failed) = (Arc::clone(&stop), Arc::clone(&count), Arc::clone(&failures));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match client.exec_sync(&container, &["true"], LIMIT) {
                    Ok(answer) if answer.exit_code == 0 => drop(counter.fetch_add(1, Ordering::Relaxed)),
                    other => failed.lock().unwrap().push(format!("{other:?}")),
                }
            }
        });
        Execs { stop, count, failures, thread: Some(thread) }
    }

    fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }
}

impl Drop for Execs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits for a condition, looking each millisecond; gives how long it took.
fn watch_for(what: &str, limit: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let is_met = condition().with_context(|| what.to_owned())?;
        let took = start.elapsed();
        if is_met {
            return Ok(took);
        }
        ensure!(took < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Median and maximum.
fn spread(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() - 1])
}

/// Uniform enough; a moment for a kill needs no more.
fn random_below(limit: Duration) -> Duration {
    static STATE: OnceLock<AtomicU64> = OnceLock::new();
    let seed = || AtomicU64::new(plegtrace::clock::monotonic_ns() | 1);
    let step = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    let state = STATE.get_or_init(seed).fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    let next = step(state.expect("step never refuses")).expect("step never refuses");
    let fraction = (next >> 33) as f64 / f64::from(1u32 << 31);
    limit.mul_f64(fraction)
}

/// One attach and detach; gives start to armed, signal to gone, and the kernel's part of arming. Of the first two without the time in
/// which one of its threads waited for a CPU.
fn cycle(loaded: &Loaded) -> [Duration; 3] {
    let start = Instant::now();
    let mut running = loaded.trace(&["-o", "json"]);
    loaded.wait_until_armed(&mut running, LIMIT);
    let (armed, before) = (start.elapsed(), RunDelays::of(running.pid()));
    let armed = armed.saturating_sub(before.longest_since(&RunDelays::default()));
    running.signal(libc::SIGINT).unwrap();
    let (gone, waited) = loaded.wait_until_clean(running.pid(), &before);
    let gone = gone.saturating_sub(waited);
    let ended = running.finish(LIMIT).unwrap();
    assert!(ended.status.code().is_some_and(|code| [0, 1, 5].contains(&code)), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["probes"]["mode"], "uprobe_multi");
    let attach = Duration::from_nanos(report["probes"]["took_ns"].as_u64().unwrap());
    [armed, gone, attach]
}

#[test]
fn a_hundred_attaches_leave_the_node_unharmed() {
    host::require_root().unwrap();
    attaches_leave_no_trace(&Node::start(&knobs()).unwrap(), CYCLES);
}

/// So many times on and off under load: all live on.
///
/// Reading the programs' function tables shares the processor with the load and with whatever else runs here, so of the
/// times from start to armed the median is told; of attaching and taking off the longest. What a thread of plegtrace waits for a CPU
/// is not counted: that is the machine's.
pub(super) fn attaches_leave_no_trace(node: &Node, count: usize) {
    let loaded = Loaded::on(node);
    let before = loaded.served();
    let cycles: Vec<[Duration; 3]> = (0..count).map(|_| cycle(&loaded)).collect();
    let column = |at: usize| spread(cycles.iter().map(|times| times[at]).collect());
    let (armed, gone, attach) = (column(0), column(1), column(2));
    let after = loaded.served();
    eprintln!(
        "{count} cycles, median and maximum: start to armed {armed:?}, of it attaching {attach:?}, signal to gone \
         {gone:?}; meanwhile {} relists, {} execs",
        after.0 - before.0,
        after.1 - before.1,
    );
    claim::soon_within("attaching", attach.1, ARMED);
    claim::soon_within("start_to_armed_median", armed.0, ARMED);
    claim::soon_within("signal_to_gone", gone.1, GONE);
    assert!(after.0 > before.0 && after.1 > before.1, "the node was under load");
    loaded.is_unharmed();
}

/// What a killed plegtrace had.
struct Killed {
    /// From its start until it was armed, when that was waited for.
    armed: Duration,
    perf_events: usize,
    /// From the kill until no breakpoint was left, and until no program was, without the time in which one of its threads waited for
    /// a CPU.
    clean: Duration,
    gone: Duration,
}

/// Kills plegtrace `wait` after its start, or after it is armed, and looks what is left of it.
fn kill(loaded: &Loaded, arguments: &[&str], after_armed: bool, wait: Duration) -> Killed {
    let start = Instant::now();
    let mut running = loaded.trace(arguments);
    if after_armed {
        loaded.wait_until_armed(&mut running, LIMIT);
    }
    let armed = start.elapsed();
    // The random moment itself.
    std::thread::sleep(wait);
    assert!(!running.has_ended().unwrap());
    let (programs, events) =
        (kernel_side::programs_of(running.pid()), kernel_side::perf_events_of(running.pid()));
    assert!(!after_armed || !programs.is_empty(), "an armed plegtrace holds programs");
    let before = RunDelays::of(running.pid());
    running.signal(libc::SIGKILL).unwrap();
    let killed = Instant::now();
    let (clean, waited) = loaded.wait_until_clean(running.pid(), &before);
    let unloaded = watch_for("the end of its eBPF programs", LIMIT, || {
        for &program in &programs {
            if kernel_side::is_loaded(program)? {
                return Ok(false);
            }
        }
        Ok(true)
    });
    claim::harm(unloaded.is_ok(), format_args!("{unloaded:?}"));
    let (clean, gone) = (clean.saturating_sub(waited), killed.elapsed().saturating_sub(waited));
    eprintln!(
        "killed {wait:?} after {}: {events} perf events, {} programs, clean after {clean:?}, all gone after {gone:?}, \
         without {waited:?} for a CPU",
        if after_armed { "armed" } else { "start" },
        programs.len(),
    );
    let ended = running.finish(LIMIT).unwrap();
    assert_eq!(ended.status.code(), None, "it did not end by itself: {ended:?}");
    claim::harm(loaded.is_clean().unwrap(), "breakpoints have come back");
    Killed { armed, perf_events: events, clean, gone }
}

#[test]
fn a_killed_plegtrace_leaves_nothing() {
    host::require_root().unwrap();
    kills_leave_nothing(&Node::start(&knobs()).unwrap(), KILLS, &["cookie", "address"]);
}

/// kill -9 at random moments, before, during and after attaching, leaves nothing: so often with uprobe_multi, and once in each of these
/// ways with perf events.
///
/// It is the kernel that cleans up, in the dying process, which waits for its turn like any other, and it does so event
/// by event: of the ways with perf events the fastest one is told. On the way it waits for grace periods of all CPUs,
/// which take their time where other things run: of the other kills the median is told.
pub(super) fn kills_leave_nothing(node: &Node, kills: usize, modes: &[&str]) {
    let loaded = Loaded::on(node);
    let moment = Duration::from_millis(300);
    let first = kill(&loaded, &["--attach", "multi"], true, random_below(moment));
    let (mut gone, mut clean) = (vec![first.gone], vec![first.clean]);
    for round in 1..kills {
        // Before, while and soon after it attaches; each third time surely after.
        let (after_armed, range) = if round % 3 == 0 { (true, moment) } else { (false, first.armed * 2) };
        let killed = kill(&loaded, &["--attach", "multi"], after_armed, random_below(range));
        assert_eq!(killed.perf_events, 0);
        if after_armed {
            gone.push(killed.gone);
            clean.push(killed.clean);
        }
    }
    let (clean, gone) = (spread(clean), spread(gone));
    eprintln!("uprobe_multi, median and maximum: breakpoints gone after {clean:?}, all gone after {gone:?}");
    claim::soon_within("kill_to_gone_median", gone.0, GONE_AFTER_KILL);

    let per_event = modes.iter().map(|mode| {
        let killed = kill(&loaded, &["--attach", mode], true, random_below(moment));
        assert!(killed.perf_events >= KUBELET_SITES.len(), "{mode}: {} perf events", killed.perf_events);
        killed.gone / u32::try_from(killed.perf_events).unwrap()
    });
    let per_event: Vec<Duration> = per_event.collect();
    eprintln!("perf events: gone after {per_event:?} each");
    if let Some(fastest) = per_event.iter().min() {
        claim::soon_within("kill_to_gone_per_perf_event", *fastest, GONE_PER_PERF_EVENT);
    }
    loaded.is_unharmed();
}

/// Ctrl-C and SIGTERM end it early, with a report of what was seen.
#[test]
fn signals_end_with_a_report() {
    host::require_root().unwrap();
    let node = Node::start(&knobs()).unwrap();
    let loaded = Loaded::on(&node);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut running = loaded.trace(&["-o", "json"]);
        loaded.wait_until_armed(&mut running, LIMIT);
        loaded.node.wait_for_relists(3, LIMIT).unwrap();
        running.signal(signal).unwrap();
        let ended = running.finish(LIMIT).unwrap();
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(report["stopped"], "interrupt");
        assert_eq!(report["diagnosis"]["verdict"], "healthy", "{}", report["diagnosis"]);
        assert_eq!(ended.status.code(), Some(0));
        assert!(report["relists"].as_array().unwrap().len() >= 2, "{}", report["relists"]);
        claim::harm(loaded.is_clean().unwrap(), "something is attached when it has ended");
    }
}
