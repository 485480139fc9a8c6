//! Both ways to follow requests on sockets, at the same time on the same traffic: they tell the same, and in the right order. What
//! is on the kernel's functions is inside of what is on its system calls.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::SocketBackend;
use plegtrace::decode::{BusKind, Event, decode};
use plegtrace::input::next_frame;
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions, WireProbes};
use plegtrace_common::key::Watched;
use plegtrace_common::kind::RecKind;
use plegtrace_common::role::Role;

use crate::container::{Container, Rootfs};
use crate::cri::Client;
use crate::feature::Feature;
use crate::kernel::KernelVersion;
use crate::machine::{self, Containerd};
use crate::syscall_cost::{self, CALLS};

const CONTAINERS: u32 = 2;
const CLIENTS: usize = 4;
/// Requests of each client.
const REQUESTS: usize = 25;

/// What tells one exchange from every other: its kind, socket, stream or serial, and what it was.
type Exchange = (&'static str, u64, u32, String);
/// Begin and end, nanoseconds.
type Times = (u64, u64);

/// Loads both and compares, first what they cost.
///
/// # Errors
/// When they disagree, or there was nothing to compare.
pub fn run() -> Result<String> {
    if expected()? != WireProbes::Functions {
        return refused();
    }
    let rootfs = Rootfs::make()?;
    let (client, containerd) = (Client::connect()?, Containerd::running()?);
    syscall_cost::print("none")?;
    let mut functions = Side::begin(SocketBackend::Functions, "functions")?;
    ensure!(functions.passed < CALLS / 10, "{} of {CALLS} calls passed a probe", functions.passed);
    functions.kernel.detach_wire();
    let mut calls = Side::begin(SocketBackend::Syscalls, "syscalls")?;
    ensure!(calls.passed >= CALLS, "{} of {CALLS} calls passed a probe", calls.passed);
    calls.watch(containerd)?;
    functions.watch(containerd)?;
    functions.kernel.attach_wire()?;
    ask(&client)?;
    for number in 0..CONTAINERS {
        let mut container = Container::ask(&rootfs, &format!("c{number}"))?;
        container.started()?;
        container.remove()?;
        calls.take()?;
        functions.take()?;
    }
    ask(&client)?;
    be_refused()?;
    functions.kernel.detach_wire();
    calls.kernel.detach_wire();
    let (calls, functions) = (calls.end()?, functions.end()?);
    compare(&calls, &functions)
}

/// Connects to a bus that is not there, and to one at which nobody listens any more.
fn be_refused() -> Result<()> {
    let folder = Path::new("/var/tmp/plegtrace-refused/dbus");
    let socket = folder.join("system_bus_socket");
    fs::create_dir_all(folder)?;
    let absent = UnixStream::connect(&socket).err().map(|error| error.kind());
    drop(UnixListener::bind(&socket)?);
    let left = UnixStream::connect(&socket).err().map(|error| error.kind());
    fs::remove_dir_all("/var/tmp/plegtrace-refused")?;
    ensure!(
        (absent, left) == (Some(ErrorKind::NotFound), Some(ErrorKind::ConnectionRefused)),
        "{absent:?}, {left:?}"
    );
    Ok(())
}

/// What plegtrace uses on this kernel when it is free to choose.
pub(crate) fn expected() -> Result<WireProbes> {
    let version = KernelVersion::running()?;
    Ok(if version >= Feature::PreemptedMaps.since() {
        WireProbes::Events
    } else if version >= Feature::TaskRegisters.since() {
        WireProbes::Functions
    } else {
        WireProbes::RawTracepoints
    })
}

/// Where they are not possible, who wants them is told so.
fn refused() -> Result<String> {
    let options = LoadOptions { wire_probes: WireProbes::candidates(SocketBackend::Functions), ..options()? };
    let kernel = Kernel::load(&options)?;
    ensure!(kernel.wire_probes().is_none(), "loaded as {:?}", kernel.wire_probes());
    Ok(kernel.wire_refused().context("not refused")?.to_owned())
}

fn options() -> Result<LoadOptions> {
    machine::load_options(AttachMode::PerfAddress)
}

fn ask(client: &Client) -> Result<()> {
    let one = || (0..REQUESTS).try_for_each(|_| client.call("ListContainers").map(drop));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })
}

fn compare(calls: &Seen, functions: &Seen) -> Result<String> {
    ensure!(
        calls.losses.is_empty() && functions.losses.is_empty(),
        "{:?}, {:?}",
        calls.losses,
        functions.losses
    );
    let missing: Vec<_> =
        calls.exchanges.keys().filter(|key| !functions.exchanges.contains_key(*key)).collect();
    let more: Vec<_> = functions.exchanges.keys().filter(|key| !calls.exchanges.contains_key(*key)).collect();
    ensure!(missing.is_empty() && more.is_empty(), "functions miss {missing:?}, system calls miss {more:?}");
    for (exchange, (began, ended)) in &functions.exchanges {
        let around = calls.exchanges[exchange];
        // A write is seen later as it begins, a read earlier as it ends. A call over D-Bus ends when its answer has been read, which
        // is when a job begins, and the others when their answer begins to be written. Requests of clients that are not
        // traced begin when they have been read. A connection is refused by the function first.
        let began_in_order = if ["job", "other", "refused"].contains(&exchange.0) {
            *began <= around.0
        } else {
            *began >= around.0
        };
        let ended_in_order = if ["bus", "job", "refused"].contains(&exchange.0) {
            *ended <= around.1
        } else {
            *ended >= around.1
        };
        ensure!(
            began_in_order && ended_in_order,
            "{exchange:?}: {began} to {ended}, system calls say {around:?}"
        );
    }
    compare_sizes(calls, functions)?;
    let count = |kind| functions.exchanges.keys().filter(|key| key.0 == kind).count();
    let (requests, others) = (count("request"), count("other"));
    let (messages, bus, jobs) = (count("message"), count("bus"), count("job"));
    ensure!(count("refused") == 2, "{} connections were refused", count("refused"));
    ensure!(requests == 2 * CLIENTS * REQUESTS && others > 0, "{requests} requests, {others} of ctr");
    ensure!(
        messages > 0 && bus > 0 && jobs > 0,
        "{messages} messages to shims, {bus} calls over D-Bus, {jobs} jobs"
    );
    ensure!(
        functions.hits < calls.hits,
        "functions were passed {} times, system calls {} times",
        functions.hits,
        calls.hits
    );
    Ok(format!(
        "{requests} requests, {others} of ctr, {messages} messages, {bus} calls over D-Bus, {jobs} jobs; {} hits instead of {}",
        functions.hits, calls.hits
    ))
}

/// What was written counts once the write has returned, and an answer can come before that, to a writer that does not get a processor: of
/// such a request a size is missing. The system call returns last.
fn compare_sizes(calls: &Seen, functions: &Seen) -> Result<()> {
    let (mut same, mut missing) = (0, Vec::new());
    for (exchange, of_function) in &functions.sizes {
        match calls.sizes[exchange] {
            of_call if of_call == *of_function => same += 1,
            of_call => {
                ensure!(
                    of_call.min(*of_function) == 0,
                    "{exchange:?}: {of_function} bytes, system calls say {of_call}"
                );
                missing.push(exchange);
            }
        }
    }
    ensure!(missing.len() < same, "no size of {missing:?}");
    Ok(())
}

/// One of the two at work.
struct Side {
    kernel: Kernel,
    /// How many hits there were while calls were made that are about no socket.
    passed: u64,
    /// Hits before it was there for the traffic.
    before: u64,
    exchanges: BTreeMap<Exchange, Times>,
    /// How large what was asked was, bytes.
    sizes: BTreeMap<Exchange, u64>,
}

/// What it has seen.
struct Seen {
    exchanges: BTreeMap<Exchange, Times>,
    /// As of [`Side`].
    sizes: BTreeMap<Exchange, u64>,
    losses: Vec<String>,
    /// How often its programs ran because something began.
    hits: u64,
}

impl Side {
    /// Loads and attaches it, and measures what it costs.
    fn begin(backend: SocketBackend, name: &str) -> Result<Self> {
        let wire_probes = WireProbes::candidates(backend);
        let mut kernel = Kernel::load(&LoadOptions { wire_probes, ..options()? })?;
        kernel.attach_wire().with_context(|| format!("{backend:?}: {:?}", kernel.wire_refused()))?;
        let before = kernel.system_calls()?;
        syscall_cost::one_that_is_about_no_socket()?;
        let passed = kernel.system_calls()? - before;
        syscall_cost::print(name)?;
        // We ask as a kubelet would. What we write is looked at, and is not about a runtime yet.
        kernel.watch(std::process::id(), Watched::found(Role::Kubelet))?;
        syscall_cost::print(&format!("{name}.watched"))?;
        Ok(Self { kernel, passed, before: 0, exchanges: BTreeMap::new(), sizes: BTreeMap::new() })
    }

    fn watch(&mut self, containerd: Containerd) -> Result<()> {
        self.kernel.watch(containerd.pid, Watched::found(Role::Containerd))?;
        self.before = self.kernel.system_calls()?;
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let mut records = Vec::new();
        self.kernel.drain(&mut |bytes| records.push(bytes));
        for mut bytes in records {
            let frame = next_frame(&mut bytes)?;
            if [RecKind::Message, RecKind::Request, RecKind::BusCall].contains(&frame.kind) {
                self.add(decode(&frame)?)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, event: Event) -> Result<()> {
        let (exchange, times) = match event {
            Event::Message(it) => {
                let what = format!("{} → {} {}/{}", it.asker, it.answerer, it.service, it.method);
                (("message", it.id.socket, it.id.stream, what), (it.id.start.0, it.end.0))
            }
            Event::Request(it) => {
                let (id, message) = (it.message.id, &it.message);
                let what =
                    format!("{} → {} {:?} {}", message.asker, message.answerer, it.end, it.answer_bytes);
                let kind = if it.of_other { "other" } else { "request" };
                let exchange = (kind, id.socket, id.stream, what);
                self.sizes.insert(exchange.clone(), it.bytes);
                (exchange, (id.start.0, message.end.0))
            }
            Event::BusCall(it) => {
                let what =
                    format!("{} {:?} {:?} {} {:?}", it.asker, it.kind, it.names, it.answer_serial, it.error);
                let kind = match it.kind {
                    BusKind::Job => "job",
                    BusKind::Refused => "refused",
                    BusKind::Connection | BusKind::Call => "bus",
                };
                ((kind, it.id.socket, it.id.serial, what), (it.id.start.0, it.end.0))
            }
            other => anyhow::bail!("an unexpected event {other:?}"),
        };
        let known = self.exchanges.insert(exchange.clone(), times);
        ensure!(known.is_none(), "twice: {exchange:?}");
        Ok(())
    }

    fn end(mut self) -> Result<Seen> {
        self.take()?;
        let counts = self.kernel.reasons()?;
        let losses = counts.iter().filter(|loss| loss.is_loss && loss.count > 0);
        let losses = losses.map(|loss| format!("{}: {}", loss.reason, loss.count)).collect();
        let hits = self.kernel.system_calls()? - self.before;
        Ok(Seen { losses, hits, exchanges: self.exchanges, sizes: self.sizes })
    }
}
