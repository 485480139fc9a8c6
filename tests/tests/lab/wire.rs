//! Requests between a real containerd and its shims, read from their sockets: exact by the word of strace, and named when
//! a shim does not answer.

mod deaf;
mod go_client;
mod names;
mod others;
mod requests;
mod rough;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plegtrace::correlate::{OpenMessage, Snapshot};
use plegtrace::diagnose::diagnose;
use plegtrace::input::OpenMessageFact;
use plegtrace::render::text::{self, Section, Shown, TextOptions};
use plegtrace_lab::cri::{Call, Pod};
use plegtrace_lab::{Containerd, Knobs, fault, host, process};
use plegtrace_tests::churn;
use plegtrace_tests::strace::Strace;
use plegtrace_tests::watching::Watching;

pub(super) use self::requests::requests_are_exact;

const CHURN: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(60);
/// Nothing is asked any more when nothing was for so long: containerd asks on its own only about what has just ended.
const QUIET: Duration = Duration::from_secs(2);
/// What a command in a stopped shim's pod may take to be asked for.
const HANGS: Duration = Duration::from_secs(120);
/// Clients that let commands run at the same time.
const WRITERS: usize = 6;

fn start(pods: usize) -> (Containerd, Vec<Pod>) {
    host::require_root().unwrap();
    let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
    let pods = (0..pods).map(|n| containerd.run_pod(&format!("p{n}")).unwrap()).collect();
    (containerd, pods)
}

fn watch(containerd: &Containerd) -> Watching {
    let runtime = containerd.pid().to_string();
    let watching = Watching::start(&["-d", "600", "--runtime-pid", &runtime, "--sources", "wire"]).unwrap();
    watching.wait_until_armed().unwrap();
    watching
}

/// Waits until no request was begun or answered for a while.
fn wait_until_quiet(watching: &Watching) {
    let mut last = (usize::MAX, usize::MAX, Instant::now());
    process::wait_for("a quiet containerd", LIMIT, || {
        let seen = watching.seen();
        let now = (seen.messages.len(), seen.open_messages.open.len());
        if now != (last.0, last.1) {
            last = (now.0, now.1, Instant::now());
        }
        Ok((last.2.elapsed() >= QUIET).then_some(()))
    })
    .unwrap();
}

/// Events of shims: strace follows the children of containerd, new shims among them, but not the shims of before.
const EVENTS: &str = "containerd.services.events.ttrpc.v1.Events";

/// Every request that was seen of containerd, by service and method.
fn requests(snapshot: &Snapshot) -> BTreeMap<(String, String), u64> {
    let rows = snapshot.messages.rows.iter().filter(|row| row.service != EVENTS);
    rows.map(|row| {
        ((row.service.clone(), row.method.clone()), row.latency.count() + row.unanswered + row.open)
    })
    .collect()
}

fn assert_nothing_is_lost(snapshot: &Snapshot) {
    let lost: Vec<_> = snapshot.real_losses().collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(snapshot.refused.iter().all(|refused| refused.source != "wire"), "{:?}", snapshot.refused);
}

/// Under churn each request is counted once, by the name that it has.
#[test]
fn requests_to_shims_are_exact() {
    let (containerd, pods) = start(2);
    let watching = watch(&containerd);
    let strace = Strace::attach(containerd.pid()).unwrap();
    let asked = churn::run(&containerd, &pods, CHURN).unwrap();
    wait_until_quiet(&watching);
    let mut written = strace.finish().unwrap();
    written.retain(|(service, _), _| service != EVENTS);
    let (snapshot, seen) = watching.interrupt().unwrap();

    assert_nothing_is_lost(&snapshot);
    assert_eq!(seen.undecoded, 0);
    assert_eq!(requests(&snapshot), written, "ours, and those of strace");
    let execs: u64 = asked.execs.values().sum();
    let count = |method: &str| {
        let of = |((_, name), count): (&(String, String), &u64)| (name == method).then_some(*count);
        written.iter().filter_map(of).sum::<u64>()
    };
    assert!(execs > 0 && count("Exec") == execs, "{execs} execs: {written:?}");
    assert!(count("Create") >= 2 * asked.pods.len() as u64 && !asked.pods.is_empty(), "{written:?}");
    // Who answers is a shim of this containerd, and each answer comes after its request.
    assert!(seen.messages.iter().all(|it| it.end >= it.id.start && it.asker != it.answerer));
    let stuck: Vec<&OpenMessage> = snapshot.messages.open.iter().filter(|it| it.should_end()).collect();
    assert!(stuck.is_empty(), "{stuck:?}");
    assert!(snapshot.messages.rows.iter().any(|row| row.method == "Forward"), "events come back");
}

#[test]
fn a_stopped_shim_is_named() {
    let (containerd, pods) = start(2);
    stopped_shim_is_named(&containerd, &pods);
}

/// A shim that does not run is named by the request that it does not answer, until it does.
pub(super) fn stopped_shim_is_named(containerd: &Containerd, pods: &[Pod]) {
    let watching = watch(containerd);
    churn::run(containerd, pods, Duration::from_secs(1)).unwrap();
    // The shims of the churn's own pods take a while to end, and do not answer Shutdown before they do.
    wait_until_quiet(&watching);
    let shim = containerd.shim_of(&pods[0].sandbox).unwrap();
    let stopped = fault::stop_process(shim).unwrap();
    let since = Instant::now();
    let container = pods[0].container.clone();
    let mut call = Call::start(containerd.client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["true"], HANGS).map(drop)
    })
    .unwrap();
    // Beside load, a shim of the churn's may end only now.
    let is_own = |open: &OpenMessageFact| open.method == "Wait" || open.method == "Shutdown";
    let old = |open: &&OpenMessageFact, at_ns: u64| !is_own(open) && at_ns - open.start_ns > 1_000_000_000;
    let found = process::wait_for("a request without an answer", LIMIT, || {
        let seen = watching.seen();
        let reading = &seen.open_messages;
        let mut found = reading.open.iter().filter(|open| old(open, reading.at_ns));
        Ok(found.next().map(|open| (open.clone(), reading.at_ns)))
    })
    .unwrap();
    let (open, at_ns) = found;
    assert_eq!((open.asker, open.answerer), (containerd.pid(), shim), "{open:?}");
    assert!(open.service.ends_with(".Task") && !open.unsent && !open.over, "{open:?}");
    assert!(Duration::from_nanos(at_ns - open.start_ns) <= since.elapsed(), "no age above the truth");

    drop(stopped);
    call.wait(LIMIT).unwrap().unwrap();
    wait_until_quiet(&watching);
    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_nothing_is_lost(&snapshot);
    let answered = seen.messages.iter().find(|it| it.id.start.0 == open.start_ns);
    let answered = answered.expect("the same request was answered when the shim ran again");
    assert_eq!((answered.answerer, &answered.method), (shim, &open.method));
    assert!(answered.end.since(answered.id.start) > 1_000_000_000);
    let mut page = Vec::new();
    text::report(
        &snapshot,
        &diagnose(&snapshot),
        &TextOptions { show: Shown::from_iter([Section::Wire]), ..TextOptions::default() },
        &mut page,
    )
    .unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("Shim calls (ttrpc)") && !page.contains("without an answer"), "{page}");
}

/// What a shim asks a runtime that hangs is seen, also where that has not read anything since the probes are there.
#[test]
fn an_event_for_a_stopped_runtime_is_seen() {
    let (containerd, pods) = start(1);
    let watching = watch(&containerd);
    wait_until_quiet(&watching);
    let shim = containerd.shim_of(&pods[0].sandbox).unwrap();
    let stopped = fault::stop_process(containerd.pid()).unwrap();
    let init = process::all().into_iter().find(|pid| process::parent(*pid) == Some(shim)).unwrap();
    process::signal(init, libc::SIGKILL).unwrap();
    let open = process::wait_for("an event without an answer", LIMIT, || {
        let seen = watching.seen();
        Ok(seen.open_messages.open.iter().find(|open| open.asker == shim).cloned())
    })
    .unwrap();
    assert_eq!(
        (open.answerer, open.service.as_str(), open.method.as_str()),
        (containerd.pid(), EVENTS, "Forward")
    );
    drop(stopped);
    process::wait_for("its answer", LIMIT, || {
        Ok(watching.seen().messages.iter().any(|it| it.id.start.0 == open.start_ns).then_some(()))
    })
    .unwrap();
    assert_nothing_is_lost(&watching.interrupt().unwrap().0);
}

/// A node that makes more system calls than are allowed keeps none of the probes on them: a request that is open then is not
/// reported as open for ever, the report says what is not seen, and all else goes on.
#[test]
fn too_many_system_calls_end_it() {
    let (containerd, pods) = start(2);
    let runtime = containerd.pid().to_string();
    let about =
        ["-d", "600", "--runtime-pid", &runtime, "--sources", "uprobes,wire", "--syscall-budget", "10"];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_armed().unwrap();
    // Many threads write while the probes come off, which takes longest beside somebody else's: none of these writes is begun
    // without its end.
    let other = watch(&containerd);
    let writers = vec![pods[1].clone(); WRITERS];
    let execs = churn::Execs::start(&containerd, &writers);
    let stopped = fault::stop_process(containerd.shim_of(&pods[0].sandbox).unwrap()).unwrap();
    let container = pods[0].container.clone();
    let mut call = Call::start(containerd.client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["true"], HANGS).map(drop)
    })
    .unwrap();
    let is_open = |watching: &Watching| !watching.seen().open_messages.open.is_empty();
    process::wait_for("an open request", LIMIT, || Ok(is_open(&watching).then_some(()))).unwrap();
    let refused = process::wait_for("the probes to come off", LIMIT, || {
        Ok(watching.seen().refused.iter().find(|refused| refused.source == "wire").cloned())
    })
    .unwrap();
    assert!(refused.matters && refused.why.contains("system calls a second"), "{refused:?}");
    assert!(!is_open(&watching), "nobody would see its answer");
    drop(stopped);
    assert!(execs.stop().unwrap() > 0);
    call.wait(LIMIT).unwrap().unwrap();
    containerd.client().list_containers(LIMIT).unwrap();
    // The signal is for the whole process, so it ends both.
    let (snapshot, seen) = watching.interrupt().unwrap();
    other.finish().unwrap();
    assert!(snapshot.messages.open.is_empty(), "{:?}", snapshot.messages.open);
    let lost: Vec<_> = snapshot.real_losses().collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(seen.calls.iter().any(|call| call.end.since(call.start) > 0), "uprobes go on");
    let cost = snapshot.cost.unwrap();
    assert!(cost.syscalls_ns.is_some_and(|ns| ns > 0), "{cost:?}");
}
