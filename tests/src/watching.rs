//! Runs an observation in this process, in a thread, and keeps what its input stream says while it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use plegtrace::cli::{Args, Settings};
use plegtrace::correlate::Snapshot;
use plegtrace::decode::{BusCall, Call, DockerRequest, Event, Message, ParkEvent, Process, Request, decode};
use plegtrace::engine::{self, EngineError};
use plegtrace::input::{
    Armed, BusFact, CommandFact, Fact, Frame, HookFact, InFlight, Layer, LearntFact, MessagesFact,
    OpenCallFact, ProcessesFact, RefusedFact,
};
use plegtrace_lab::process;

use crate::program;

/// From the start of an observation to its probes, on a busy machine; what it may take is measured elsewhere.
const ARMED_LIMIT: Duration = Duration::from_secs(60);

/// What a node may do while it is observed. Nodes of other tests run the same files on the same processors, and their work must not
/// take the probes of this one off; tests of that set the options themselves.
const BUDGETS: [[&str; 2]; 2] = [["--park-budget", "1000000"], ["--syscall-budget", "10000000"]];

/// What the stream of records has said so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Hooks, by the number that calls carry.
    pub hooks: HashMap<u32, HookFact>,
    /// Finished calls, in the order of the stream.
    pub calls: Vec<Call>,
    /// Steps of processes, in the order of the stream.
    pub processes: Vec<Process>,
    /// What processes were told to do.
    pub commands: Vec<CommandFact>,
    /// The first and the last reading of the watched processes.
    pub watched: Option<(ProcessesFact, ProcessesFact)>,
    /// The last reading of the open calls.
    pub open: InFlight,
    /// What is not seen, in the order of the stream.
    pub refused: Vec<RefusedFact>,
    /// Set when the probes are on.
    pub armed: Option<Armed>,
    /// Long parks, in the order of the stream.
    pub parks: Vec<ParkEvent>,
    /// Functions of return addresses in stacks of parks, by executable (index of its hook on parks) and address.
    pub symbols: HashMap<(u32, u64), String>,
    /// Answered requests between runtime and shims, in the order of the stream.
    pub messages: Vec<Message>,
    /// The last reading of those without an answer.
    pub open_messages: MessagesFact,
    /// gRPC requests of the kubelet that have ended, in the order of the stream.
    pub requests: Vec<Request>,
    /// The last reading of those that have not.
    pub open_requests: MessagesFact,
    /// Names of theirs that have become known, in the order of the stream.
    pub learnt: Vec<LearntFact>,
    /// The same of clients that are not traced.
    pub other_requests: Vec<Request>,
    /// The last reading of theirs that have not ended.
    pub open_others: MessagesFact,
    /// Answered requests to Docker's API, in the order of the stream.
    pub docker: Vec<DockerRequest>,
    /// The last reading of those without an answer.
    pub open_docker: MessagesFact,
    /// Answered calls over D-Bus, in the order of the stream.
    pub bus_calls: Vec<BusCall>,
    /// The last reading of those without an answer.
    pub open_bus: BusFact,
    /// Looks of the census that are over.
    pub census_rounds: usize,
    /// Records that could not be decoded.
    pub undecoded: usize,
}

impl Seen {
    fn take(&mut self, frame: &Frame) {
        match decode(frame) {
            Ok(Event::Call(call)) => self.calls.push(call),
            Ok(Event::Fact { fact, .. }) => match *fact {
                Fact::Hook(hook) => {
                    self.hooks.insert(hook.index, hook);
                }
                Fact::Symbols(symbols) => {
                    let hook = symbols.hook;
                    self.symbols.extend(symbols.names.into_iter().map(|s| ((hook, s.offset), s.name)));
                }
                Fact::InFlight(reading) => self.open = reading,
                Fact::Messages(reading) => self.open_messages = reading,
                Fact::Requests(reading) => self.open_requests = reading,
                Fact::Names(fact) => self.learnt.extend(fact.names),
                Fact::Census(_) => self.census_rounds += 1,
                Fact::DockerRequests(reading) => self.open_docker = reading,
                Fact::OtherClients(reading) => self.open_others = reading.requests,
                Fact::BusCalls(reading) => self.open_bus = reading,
                Fact::Refused(refused) => self.refused.push(refused),
                Fact::Admitted(admitted) => self.refused.retain(|refused| *refused != admitted),
                Fact::Armed(armed) => self.armed = Some(armed),
                Fact::Command(command) => self.commands.push(command),
                Fact::Processes(reading) => {
                    let first = self.watched.take().map_or_else(|| reading.clone(), |(first, _)| first);
                    self.watched = Some((first, reading));
                }
                _ => {}
            },
            Ok(Event::Park(park)) => self.parks.push(park),
            Ok(Event::Message(message)) => self.messages.push(message),
            Ok(Event::Request(request)) if request.of_other => self.other_requests.push(request),
            Ok(Event::Request(request)) => self.requests.push(request),
            Ok(Event::Docker(request)) => self.docker.push(request),
            Ok(Event::BusCall(call)) => self.bus_calls.push(call),
            Ok(Event::Process(process)) => self.processes.push(process),
            Err(_) => self.undecoded += 1,
        }
    }

    /// The functions of a park's stack, innermost first; empty texts where they are not known.
    pub fn stack_of(&self, park: &ParkEvent) -> Vec<&str> {
        let name = |at: &u64| self.symbols.get(&(park.hook, *at)).map_or("", String::as_str);
        park.stack.iter().map(name).collect()
    }

    /// The phases of runc that were open when that was read last, each with its hook.
    pub fn open_phases(&self) -> impl Iterator<Item = (&OpenCallFact, &HookFact)> {
        let calls = self.open.calls.iter().filter_map(|call| Some((call, self.hooks.get(&call.hook)?)));
        calls.filter(|(_, hook)| hook.layer == Layer::RuncPhase)
    }

    /// The finished calls of a layer, each with its hook.
    pub fn of_layer(&self, layer: Layer) -> impl Iterator<Item = (&Call, &HookFact)> {
        self.calls
            .iter()
            .filter_map(|call| Some((call, self.hooks.get(&call.hook)?)))
            .filter(move |(_, hook)| hook.layer == layer)
    }
}

/// A running observation.
#[derive(Debug)]
pub struct Watching {
    thread: JoinHandle<Result<Snapshot, EngineError>>,
    seen: Arc<Mutex<Seen>>,
    /// Why it failed, once it has.
    failed: Arc<Mutex<Option<String>>>,
}

impl Watching {
    /// Starts to observe as `plegtrace ARGUMENTS` would, quietly.
    ///
    /// # Errors
    ///
    /// The arguments make no sense.
    pub fn start(arguments: &[&str]) -> Result<Watching> {
        let given = |option: &&str| arguments.contains(option);
        let budgets = BUDGETS.iter().filter(|[option, _]| !given(option)).flatten();
        let words = ["plegtrace", "--quiet"].iter().chain(budgets).chain(arguments);
        let args = Args::try_parse_from(words).context("bad arguments")?;
        let mut settings = Settings::try_from(&args.common).context("bad arguments")?;
        // This program is no plegtrace, which takes its census by running itself.
        settings.census_program = program::path().ok();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let failed = Arc::new(Mutex::new(None));
        let (taps, why) = (Arc::clone(&seen), Arc::clone(&failed));
        let thread = std::thread::spawn(move || {
            let tap = move |frame: &Frame| taps.lock().expect("no holder panics").take(frame);
            let result = engine::observe(&settings, Some(Box::new(tap)));
            *why.lock().expect("no holder panics") = result.as_ref().err().map(ToString::to_string);
            result
        });
        Ok(Watching { thread, seen, failed })
    }

    /// What it has seen so far; the observation waits while this is held.
    ///
    /// # Panics
    ///
    /// A holder panicked.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }

    /// Waits until the probes are on.
    ///
    /// # Errors
    ///
    /// The observation ended before, or they are not on in time.
    pub fn wait_until_armed(&self) -> Result<Armed> {
        process::wait_for("an armed plegtrace", ARMED_LIMIT, || {
            self.ensure_it_runs()?;
            Ok(self.seen().armed.clone())
        })
    }

    /// Waits until the phases of runc are followed, which is a moment after the probes are on.
    ///
    /// # Errors
    ///
    /// The observation ended before, or they are not in time.
    pub fn wait_until_runc_is_probed(&self) -> Result<()> {
        process::wait_for("probes on runc", ARMED_LIMIT, || {
            self.ensure_it_runs()?;
            let phase = |hook: &HookFact| hook.layer == Layer::RuncPhase;
            // Hooks are told once their probes are on.
            Ok(self.seen().hooks.values().any(phase).then_some(()))
        })
    }

    fn ensure_it_runs(&self) -> Result<()> {
        let why = || self.failed.lock().expect("no holder panics").clone();
        ensure!(
            !self.thread.is_finished(),
            "plegtrace ended early: {}",
            why().unwrap_or("without an error".into())
        );
        Ok(())
    }

    /// Ends the observation, and every other one in this process, as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// The observation had ended before, or it failed.
    pub fn interrupt(self) -> Result<(Snapshot, Seen)> {
        self.ensure_it_runs()?;
        process::signal(std::process::id(), libc::SIGINT)?;
        self.finish()
    }

    /// Waits for the end of the observation.
    ///
    /// # Errors
    ///
    /// The observation failed.
    pub fn finish(self) -> Result<(Snapshot, Seen)> {
        let result = self.thread.join().map_err(|_| anyhow::anyhow!("plegtrace panicked"))?;
        let snapshot = result.context("plegtrace failed")?;
        let seen = std::mem::take(&mut *self.seen.lock().expect("no holder panics"));
        Ok((snapshot, seen))
    }
}
