//! The time of real relists and handlers, leaf by leaf: what is measured by itself is nearly all of it, adds up to what
//! the programs' own stopwatches say, and names the functions that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plegtrace::clock;
use plegtrace::correlate::{Relist, Snapshot};
use plegtrace::decode::{Call, ParkEvent};
use plegtrace::input::Layer;
use plegtrace::render::text;
use plegtrace::span::{Account, LeafKind, account, leaves};
use plegtrace_lab::cri::relist;
use plegtrace_lab::kubelet::KubeletBuild;
use plegtrace_lab::{Containerd, Generation, Knobs, Node, fault, host, packages, process};
use plegtrace_tests::breakpoints::Sites;
use plegtrace_tests::program;
use plegtrace_tests::truth::{Bounds, Scrape, increase};
use plegtrace_tests::watching::{Seen, Watching};

const LIMIT: Duration = Duration::from_secs(60);
const RELISTS: &str = "kubelet_pleg_relist_duration_seconds";
/// A relist that takes this long is worth an explanation.
const SLOW_NS: u64 = 10_000_000;
/// So many are enough to judge by; they are provoked for so long at most.
const ENOUGH: usize = 3;
const TRIES: Duration = Duration::from_secs(25);
/// Pods that stay.
const PODS: usize = 6;
/// Share of a slow relist, or of a handler, that must be measured.
const EXPLAINED: f64 = 0.95;

fn watch(node: &Node, seconds: &str) -> Watching {
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let watching =
        Watching::start(&["-d", seconds, "--kubelet-pid", &kubelet, "--runtime-pid", &runtime]).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

/// Threads that want all processors, until dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start() -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 * std::thread::available_parallelism().map_or(2, usize::from) {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Load(stop)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn time(relist: &Relist, snapshot: &Snapshot) -> Account {
    account(relist.root(), snapshot.now)
}

fn share(time: Account) -> f64 {
    time.explained_ns() as f64 / time.total_ns() as f64
}

/// A node that is slow for real, between two scrapes of the kubelet.
struct Slow {
    scrapes: [Scrape; 2],
    snapshot: Snapshot,
    seen: Seen,
}

/// Relists worth an explanation that have ended so far.
fn slow_relists(watching: &Watching) -> usize {
    let seen = watching.seen();
    seen.of_layer(Layer::Relist).filter(|(call, _)| call.end.since(call.start) >= SLOW_NS).count()
}

/// Pods that come and go together, on processors that are wanted by others.
fn slow_node() -> Slow {
    let node = Node::start(&Knobs { pods: PODS, exec_probes: true, ..Knobs::default() }).unwrap();
    let watching = watch(&node, "600");
    process::wait_for("relists that began under our eyes", LIMIT, || {
        Ok((watching.seen().of_layer(Layer::Relist).count() >= 3).then_some(()))
    })
    .unwrap();
    let scrape = || Scrape::take(|limit| node.kubelet().metrics(limit)).unwrap();
    let first = scrape();
    let load = Load::start();
    let began = Instant::now();
    while slow_relists(&watching) < ENOUGH && began.elapsed() < TRIES {
        let names = ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"];
        names.iter().for_each(|name| node.kubelet().add_pod(name).unwrap());
        let all = PODS + names.len();
        let running = |wanted: usize| {
            process::wait_for("pods that come and go together", LIMIT, || {
                Ok((node.kubelet().running_pods().is_ok_and(|pods| pods.len() == wanted)).then_some(()))
            })
            .unwrap();
        };
        running(all);
        names.iter().for_each(|name| node.kubelet().remove_pod(name).unwrap());
        running(PODS);
    }
    node.wait_for_relists(5, LIMIT).unwrap();
    drop(load);
    let second = scrape();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert!(snapshot.now.0 > second.end_ns, "observed until after the second scrape");
    Slow { scrapes: [first, second], snapshot, seen }
}

impl Slow {
    /// Leaves of every relist are the whole relist; of slow ones nearly all is measured.
    fn check_leaves(&self) {
        let Slow { snapshot, seen, .. } = self;
        let losses: Vec<_> = snapshot.real_losses().collect();
        assert!(losses.is_empty(), "{losses:?}");
        assert_eq!(seen.undecoded, 0);
        let (mut slow, mut worst) = (0, 1.0_f64);
        for relist in &snapshot.relists {
            let (root, time) = (relist.root(), time(relist, snapshot));
            assert_eq!(time.total_ns(), root.duration_ns(snapshot.now), "{root:?}");
            if root.duration_ns(snapshot.now) >= SLOW_NS && !root.is_open() {
                slow += 1;
                worst = worst.min(share(time));
                assert!(share(time) >= EXPLAINED, "{time:?}");
            }
        }
        eprintln!("{slow} of {} relists are slow; measured {:.3} or more", snapshot.relists.len(), worst);
        assert!(slow >= ENOUGH, "the node was made slow");
        let grafted = snapshot.relists.iter().flat_map(|relist| relist.root().walk());
        let handlers: Vec<_> = grafted.filter(|span| span.layer() == Layer::Handler).collect();
        assert!(!handlers.is_empty(), "handlers are in the trees");
        assert!(handlers.iter().all(|span| span.parked.is_some()), "and are measured themselves");
    }

    /// The measured leaves of all relists against the kubelet's own stopwatch.
    fn compare_sums(&self) -> Result<(), String> {
        let total = increase(RELISTS, &[], &self.scrapes[0], &self.scrapes[1]);
        let measured =
            self.snapshot.relists.iter().filter_map(|relist| {
                Some((relist.root().end?.0, time(relist, &self.snapshot).explained_ns()))
            });
        let bounds = Bounds::between(measured, &self.scrapes[0], &self.scrapes[1]);
        eprintln!("kubelet: {total:?}; measured leaves: {bounds}");
        bounds.admit(total).map_err(|why| why.to_string())
    }

    fn keep_report(&self) {
        let mut page = Vec::new();
        text::report(
            &self.snapshot,
            &plegtrace::diagnose::diagnose(&self.snapshot),
            &text::TextOptions { verbose: true, ..text::TextOptions::default() },
            &mut page,
        )
        .unwrap();
        std::fs::write(program::target_dir().join("lab-parks.txt"), page).unwrap();
    }
}

/// Many changed pods at once on starved processors: slow relists, explained, and as long as the kubelet says. A sum may be
/// spoilt once by a preemption between our probe and the kubelet's own reading of its clock; counts may not.
#[test]
fn slow_relists_are_explained_and_add_up() {
    host::require_root().unwrap();
    for _ in 0..2 {
        let slow = slow_node();
        slow.keep_report();
        slow.check_leaves();
        match slow.compare_sums() {
            Ok(()) => return,
            Err(why) => assert!(why.starts_with("sum "), "{why}"),
        }
    }
    panic!("sums disagree twice");
}

/// A handler that sleeps for a known time: our client's stopwatch, the kernel side's sums and the parks told one by one
/// say the same.
#[test]
fn the_parks_of_a_handler_agree_with_the_stopwatch_of_its_client() {
    const COMMANDS: usize = 8;
    host::require_root().unwrap();
    let node = Node::start(&Knobs::default()).unwrap();
    let pod = node.pod("p1").unwrap();
    let watching = watch(&node, "600");
    let client = node.containerd().client();
    let mut stopwatch = 0;
    for _ in 0..COMMANDS {
        let began = Instant::now();
        client.exec_sync(&pod.container, &["sleep", "0.4"], LIMIT).unwrap();
        stopwatch += u64::try_from(began.elapsed().as_nanos()).unwrap();
    }
    let (_, seen) = watching.interrupt().unwrap();
    let calls: Vec<&Call> =
        seen.of_layer(Layer::Handler).filter(|(_, h)| h.operation == "ExecSync").map(|(c, _)| c).collect();
    assert_eq!(calls.len(), COMMANDS);
    let (mut handlers, mut parked, mut told, mut short) = (0, 0, 0, 0);
    for call in calls {
        let sums = call.parked.expect("every park of the call was measured");
        let inside = |p: &&ParkEvent| {
            (p.tgid, p.goid) == (call.tgid, call.goid) && call.start <= p.start && p.end <= call.answered()
        };
        let parks: Vec<&ParkEvent> = seen.parks.iter().filter(inside).collect();
        assert!(parks.windows(2).all(|pair| pair[0].end <= pair[1].start), "parks do not overlap");
        handlers += call.answered().since(call.start);
        parked += sums.ns;
        short += sums.short_ns;
        told += parks.iter().map(|park| park.end.since(park.start)).sum::<u64>();
    }
    eprintln!(
        "client {stopwatch} ns, handlers {handlers}, parked {parked}, of it told {told}, short {short}"
    );
    assert_eq!(parked, told + short, "each park is in exactly one sum, to the nanosecond");
    assert!(handlers <= stopwatch && stopwatch - handlers < stopwatch * 3 / 100, "3 % of transport at most");
    assert!(parked <= handlers && parked > handlers * 9 / 10, "a command that sleeps is waited for");
}

/// In flight: the relist that is open, and the handlers it waits for, say where they are parked now.
#[test]
fn an_open_relist_says_where_it_waits() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let pod = node.pod("p1").unwrap();
    node.wait_for_relists(2, LIMIT).unwrap();
    let watching = watch(&node, "20");
    let hostage = fault::lock_hostage(node.containerd(), &pod).unwrap();
    let (snapshot, _) = watching.finish().unwrap();
    hostage.release().unwrap();

    let open = snapshot.relists.iter().find(|relist| relist.root().is_open()).expect("the relist hangs");
    let parts = time(open, &snapshot);
    eprintln!("open relist: {parts:?}");
    assert_eq!(parts.total_ns(), open.root().duration_ns(snapshot.now));
    assert!(share(parts) >= EXPLAINED, "{parts:?}");
    let lasting = open.root().walk().flat_map(|span| leaves(span, snapshot.now)).filter(
        |leaf| matches!(leaf.kind, LeafKind::Parked(park) | LeafKind::Transport(park, _) if park.open),
    );
    assert!(lasting.map(|leaf| leaf.ns).sum::<u64>() > 5_000_000_000, "{parts:?}");

    let lists = snapshot
        .open
        .iter()
        .filter(|call| call.span.layer() == Layer::Handler && call.span.operation() == "ListContainers");
    let stacks: Vec<String> = lists
        .flat_map(|call| call.span.parks.iter().filter(|park| park.open))
        .map(|park| park.stack.join(" < "))
        .collect();
    assert!(!stacks.is_empty(), "{:?}", snapshot.open);
    for stack in stacks {
        assert!(stack.contains("(*statusStorage).Get"), "waits for the lock: {stack}");
    }
}

/// Programs whose goroutines pass the scheduler's probes too often: only these probes come off, which is said, and no call
/// that begins afterwards claims to know where it waited.
#[test]
fn scheduler_probes_come_off_above_their_budget() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 2, exec_probes: true, ..Knobs::default() }).unwrap();
    let (kubelet, runtime) = (node.kubelet().pid().to_string(), node.containerd().pid().to_string());
    let pids = ["--kubelet-pid", &kubelet, "--runtime-pid", &runtime];
    let watching = Watching::start(&[&["-d", "600", "--park-budget", "10"], &pids[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    const SCHEDULER: &[&str] = &["runtime.gopark", "runtime.execute"];
    let sites = |pid, names| Sites::find(pid, names).unwrap();
    let both = [node.kubelet().pid(), node.containerd().pid()];
    let scheduler = both.map(|pid| sites(pid, SCHEDULER));
    assert!(scheduler.iter().all(|sites| sites.all_armed().unwrap()));
    let off = |seen: &Seen| seen.refused.iter().filter(|r| r.source == "parks" && r.matters).count();
    process::wait_for("both programs above the budget", LIMIT, || {
        Ok((off(&watching.seen()) == 2).then_some(()))
    })
    .unwrap();
    let since = clock::monotonic_ns();
    assert!(scheduler.iter().all(|sites| sites.armed().unwrap().is_empty()), "{scheduler:?}");
    assert!(sites(both[0], &["pleg.(*GenericPLEG).relist"]).all_armed().unwrap(), "the other probes are on");
    let begun_since = |seen: &Seen, layer: Layer| {
        seen.of_layer(layer)
            .filter(|(call, _)| call.start.0 > since)
            .map(|(call, _)| *call)
            .collect::<Vec<_>>()
    };
    process::wait_for("relists that begin without these probes", LIMIT, || {
        Ok((begun_since(&watching.seen(), Layer::Relist).len() >= 3).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_eq!(snapshot.real_losses().next(), None);
    assert_eq!(off(&seen), 2, "each of them once: {:?}", seen.refused);
    assert!(seen.refused.iter().any(|r| r.why.contains("times a second, and 10 are allowed")));
    for layer in [Layer::Relist, Layer::Handler] {
        let later = begun_since(&seen, layer);
        assert!(!later.is_empty() && later.iter().all(|call| call.parked.is_none()), "{later:?}");
    }
    let all = seen.of_layer(Layer::Relist).chain(seen.of_layer(Layer::Handler));
    let measured: Vec<(u64, u64)> =
        all.filter_map(|(c, _)| Some((c.parked?.ns, c.answered().since(c.start)))).collect();
    assert!(!measured.is_empty(), "calls were measured before");
    assert!(measured.iter().all(|(parked, whole)| parked <= whole), "{measured:?}");
}

/// Were these handlers measured, and are these functions in the stacks of their parks?
fn handlers_are_measured(seen: &Seen, functions: &[&str]) {
    let calls: Vec<&Call> = seen.of_layer(Layer::Handler).map(|(call, _)| call).collect();
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|call| call.parked.is_some()), "every handler is measured");
    assert!(calls.iter().all(|call| call.parked.is_some_and(|p| p.ns <= call.answered().since(call.start))));
    let stacks: Vec<Vec<&str>> = seen.parks.iter().map(|park| seen.stack_of(park)).collect();
    assert!(stacks.iter().flatten().all(|name| !name.is_empty()), "every frame has a name");
    for function in functions {
        assert!(
            stacks.iter().any(|s| s.iter().any(|name| name.ends_with(function))),
            "{function}: {stacks:?}"
        );
    }
    // The outermost frames tell whether the frame pointers lead all the way.
    let whole = stacks.iter().filter(|s| s.last() == Some(&"runtime.goexit")).count();
    eprintln!("{} parks, {whole} with their whole stack", stacks.len());
}

/// Go 1.15 in kubelet and containerd: arguments on the stack, the goroutine in thread-local storage.
#[test]
fn the_stack_abi_is_measured_too() {
    host::require_root().unwrap();
    let knobs = Knobs {
        generation: Generation::V1_4,
        kubelet: KubeletBuild::Go115,
        exec_probes: true,
        ..Knobs::default()
    };
    let node = match Node::start(&knobs) {
        Ok(node) => node,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip("containerd 1.4 and a kubelet of Go 1.15", &error);
        }
        Err(error) => panic!("{error:#}"),
    };
    let watching = watch(&node, "10");
    let (snapshot, seen) = watching.finish().unwrap();
    handlers_are_measured(&seen, &["(*criService).ExecSync", "(*remoteRuntimeService).ListContainers"]);
    for relist in snapshot.relists.iter().filter(|relist| !relist.root().is_open()) {
        assert!(share(time(relist, &snapshot)) >= EXPLAINED, "{:?}", time(relist, &snapshot));
    }
}

/// The newest containerd, Go 1.27: no stack check is like those of Go 1.15, and its table has no start of the text.
#[test]
fn the_newest_containerd_is_measured_too() {
    host::require_root().unwrap();
    let generation = Generation::V2_1;
    let containerd = match Containerd::start(&Knobs { generation, ..Knobs::default() }) {
        Ok(containerd) => containerd,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip(&format!("containerd {generation}"), &error);
        }
        Err(error) => panic!("containerd {generation}: {error:#}"),
    };
    let pod = containerd.run_pod("one").unwrap();
    let client = containerd.client_of(generation.api()).unwrap();
    let runtime = containerd.pid().to_string();
    let watching = Watching::start(&["-d", "600", "--runtime-pid", &runtime]).unwrap();
    watching.wait_until_armed().unwrap();
    let relists = relist::Loop::start(client.clone(), Duration::from_millis(20), LIMIT);
    client.exec_sync(&pod.container, &["sleep", "0.3"], LIMIT).unwrap();
    let (_, seen) = watching.interrupt().unwrap();
    assert!(relists.stop().iter().all(|relist| relist.error.is_none()));
    handlers_are_measured(&seen, &["(*criService).ExecSync"]);
}
