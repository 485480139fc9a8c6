//! [`Kernel`]: the loaded object, its maps and its links.

use std::{
    collections::HashMap as Links,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, Map, MapData, PerCpuArray},
    programs::{RawTracePoint, UProbe, raw_trace_point::RawTracePointLinkId},
};
use plegtrace_common::{
    key::{CallKey, HookStats, OpenCall, Parker, ParkerKey, Watched},
    rec::PROCESS_ASKS_DOCKER,
    settings::{KernelSettings, WireSettings},
    site::{MAX_HOOKS, SiteConf, SiteKey},
    wire::{
        bus::{BusKey, OpenBusCall},
        docker::OpenDockerRequest,
        request::{COMM, OpenRequest},
        state::{Holder, MessageKey, OpenMessage},
    },
};
use zerocopy::IntoBytes;

use super::{
    at_once::Loaded, attach::BinaryLinks, debug_log::DebugLog, error::KernelError, inflight,
    multi::MultiPrograms, object, ring::Ring, verifier, wire::Wire, wire_probes::WireProbes,
};
use crate::preflight::AttachMode;

/// A shared type as aya wants its map keys and values.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Plain<T: Copy + 'static>(pub(super) T);

macro_rules! pod {
    ($($t:ty),*) => {
        // SAFETY: `repr(C)` integers without padding, as zerocopy's derive proves.
        $(unsafe impl Pod for Plain<$t> {})*
    };
}
pod!(CallKey, OpenCall, HookStats, ParkerKey, Parker, SiteConf, SiteKey, Watched);
pod!(BusKey, Holder, MessageKey, OpenBusCall, OpenDockerRequest, OpenMessage, OpenRequest);

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How sites will be attached.
    pub mode: AttachMode,
    /// Offsets in kernel structures; `use_cookies` is set from `mode`.
    pub settings: KernelSettings,
    /// Bytes of the ring buffer, a power of two of pages; `None`: by the number of processors.
    pub ring_bytes: Option<u32>,
    /// Most hooks that will be attached at once; each takes the size of a [`HookStats`] for each possible processor.
    pub hooks: u32,
    /// Follow processes (fork, exec, exit).
    pub processes: bool,
    /// Load the programs of parks too.
    pub parks: bool,
    /// Ids of `bpf_preempt_disable` and `bpf_preempt_enable` in the kernel's type information, if it has them.
    pub preemption: Option<[u32; 2]>,
    /// Load the programs of family `wire` too, with these offsets.
    pub wire: Option<WireSettings>,
    /// What they may sit on, the best first: the next is tried where the kernel does not take one.
    pub wire_probes: &'static [WireProbes],
    /// Ids of `unix_stream_sendmsg`, `unix_stream_recvmsg` and `unix_stream_connect` in the kernel's type information, if it has them.
    pub socket_functions: Option<[u32; 3]>,
}

impl LoadOptions {
    /// Bytes of the ring buffer. By default half a megabyte for each processor, within 1 and 8 MiB: what they can write
    /// while the thread that drains waits for one of them. A megabyte holds ten thousand calls.
    fn ring_size(&self) -> u32 {
        const PER_CPU: usize = 512 << 10;
        let of_machine = || {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            let bytes = cpus.saturating_mul(PER_CPU).clamp(1 << 20, 8 << 20).next_power_of_two();
            u32::try_from(bytes).unwrap_or(8 << 20)
        };
        self.ring_bytes.unwrap_or_else(of_machine)
    }
}

/// Everything that lives in the kernel on our behalf. Dropping it detaches and frees all.
pub struct Kernel {
    /// Links go first: starts, then ends (see [`BinaryLinks`]).
    pub(super) links: Links<u64, BinaryLinks>,
    pub(super) mode: AttachMode,
    pub(super) multi: Option<MultiPrograms>,
    pub(super) ebpf: Ebpf,
    /// What the programs say of themselves, when they were built with `debug-log`.
    log: Option<DebugLog>,
    /// `None` once it was handed over.
    pub(super) ring: Option<Ring>,
    pub(super) sites: Array<MapData, Plain<SiteConf>>,
    pub(super) site_index: HashMap<MapData, Plain<SiteKey>, u32>,
    pub(super) open_calls_fd: OwnedFd,
    pub(super) open_calls: HashMap<MapData, Plain<CallKey>, Plain<OpenCall>>,
    pub(super) parkers_fd: OwnedFd,
    pub(super) parkers: HashMap<MapData, Plain<ParkerKey>, Plain<Parker>>,
    /// Why the programs of parks are not there.
    pub(super) parks_refused: Option<String>,
    pub(super) messages_fd: OwnedFd,
    pub(super) messages: HashMap<MapData, Plain<MessageKey>, Plain<OpenMessage>>,
    pub(super) requests_fd: OwnedFd,
    pub(super) requests: HashMap<MapData, Plain<MessageKey>, Plain<OpenRequest>>,
    pub(super) other_requests_fd: OwnedFd,
    pub(super) other_requests: HashMap<MapData, Plain<MessageKey>, Plain<OpenRequest>>,
    pub(super) clients: HashMap<MapData, u32, [u8; COMM]>,
    pub(super) docker_requests_fd: OwnedFd,
    pub(super) docker_requests: HashMap<MapData, Plain<MessageKey>, Plain<OpenDockerRequest>>,
    pub(super) bus_calls_fd: OwnedFd,
    pub(super) bus_calls: HashMap<MapData, Plain<BusKey>, Plain<OpenBusCall>>,
    pub(super) ends: HashMap<MapData, u64, Plain<Holder>>,
    pub(super) wire: Wire,
    pub(super) hooks: PerCpuArray<MapData, Plain<HookStats>>,
    pub(super) watched_fd: OwnedFd,
    pub(super) watched: HashMap<MapData, u32, Plain<Watched>>,
    pub(super) reasons: PerCpuArray<MapData, u64>,
    pub(super) system_calls: PerCpuArray<MapData, u64>,
}

impl Drop for Kernel {
    /// Each link that is closed waits until no processor runs its program any more, some 20 ms, and those that are closed at
    /// the same time wait together. So executables, which have nothing to do with each other, have a thread each; the
    /// links of one go in their order. Perf events take turns in the kernel whoever closes them.
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.links);
        if self.mode != AttachMode::Multi {
            return drop(links);
        }
        thread::scope(|scope| {
            for (_, links) in links {
                // Where there is no thread to be had, what it would have dropped is dropped here.
                let _ = thread::Builder::new().spawn_scoped(scope, move || drop(links));
            }
        });
    }
}

impl Kernel {
    /// Creates the maps, loads the programs and attaches the process tracepoints; no uprobe yet.
    ///
    /// # Errors
    ///
    /// No object in this binary, or the kernel refuses a map or program.
    pub fn load(options: &LoadOptions) -> Result<Self, KernelError> {
        Self::load_object(object::bytes(), options)
    }

    /// The same with another build of the programs, for example one with `debug-log`.
    ///
    /// # Errors
    ///
    /// The kernel refuses a map or program.
    pub fn load_object(object: &[u8], options: &LoadOptions) -> Result<Self, KernelError> {
        let mut ebpf = open(object, options)?;
        let log = DebugLog::start(&mut ebpf)?;
        let (multi, refused) = match options.mode {
            AttachMode::Multi => {
                let (multi, refused) = MultiPrograms::load(object, options, |name| map_fd(&ebpf, name))?;
                (Some(multi), refused)
            }
            AttachMode::PerfCookie | AttachMode::PerfAddress => {
                load_uprobes(&mut ebpf, ["call_in", "call_out"])?;
                let parks = options.parks.then(|| load_uprobes(&mut ebpf, ["park_in", "park_out"]));
                (None, parks.and_then(Result::err))
            }
        };
        let parks_refused = match refused {
            Some(why) => Some(why.to_string()),
            None => (!options.parks).then(|| "left out".to_owned()),
        };
        let mut names = Wire::ahead(options).to_vec();
        if options.processes {
            names.extend(PROCESS_PROGRAMS.map(|(name, _)| name));
        }
        let mut loaded = Loaded::ahead(&mut ebpf, &names);
        if options.processes {
            attach_process_programs(&mut ebpf, &mut loaded)?;
        }
        let wire = Wire::load(&mut ebpf, object, options, &mut loaded);
        let messages_fd =
            ebpf.map("MESSAGES").and_then(inflight::duplicate).ok_or(KernelError::Missing("MESSAGES"))?;
        let requests_fd =
            ebpf.map("REQUESTS").and_then(inflight::duplicate).ok_or(KernelError::Missing("REQUESTS"))?;
        let other_requests_fd = ebpf
            .map("OTHER_REQUESTS")
            .and_then(inflight::duplicate)
            .ok_or(KernelError::Missing("OTHER_REQUESTS"))?;
        let docker_requests_fd = ebpf
            .map("DOCKER_REQUESTS")
            .and_then(inflight::duplicate)
            .ok_or(KernelError::Missing("DOCKER_REQUESTS"))?;
        let bus_calls_fd =
            ebpf.map("BUS_CALLS").and_then(inflight::duplicate).ok_or(KernelError::Missing("BUS_CALLS"))?;
        let open_calls_fd =
            ebpf.map("OPEN_CALLS").and_then(inflight::duplicate).ok_or(KernelError::Missing("OPEN_CALLS"))?;
        let watched_fd =
            ebpf.map("WATCHED").and_then(inflight::duplicate).ok_or(KernelError::Missing("WATCHED"))?;
        let parkers_fd =
            ebpf.map("PARKERS").and_then(inflight::duplicate).ok_or(KernelError::Missing("PARKERS"))?;
        Ok(Self {
            open_calls_fd,
            parkers_fd,
            parks_refused,
            messages_fd,
            requests_fd,
            other_requests_fd,
            docker_requests_fd,
            bus_calls_fd,
            wire,
            watched_fd,
            log,
            links: Links::new(),
            mode: options.mode,
            multi,
            ring: Some(Ring::new(take(&mut ebpf, "EVENTS")?, options.ring_size() as usize)),
            sites: take(&mut ebpf, "SITES")?,
            site_index: take(&mut ebpf, "SITE_INDEX")?,
            open_calls: take(&mut ebpf, "OPEN_CALLS")?,
            parkers: take(&mut ebpf, "PARKERS")?,
            messages: take(&mut ebpf, "MESSAGES")?,
            requests: take(&mut ebpf, "REQUESTS")?,
            other_requests: take(&mut ebpf, "OTHER_REQUESTS")?,
            clients: take(&mut ebpf, "CLIENTS")?,
            docker_requests: take(&mut ebpf, "DOCKER_REQUESTS")?,
            bus_calls: take(&mut ebpf, "BUS_CALLS")?,
            ends: take(&mut ebpf, "ENDS")?,
            hooks: take(&mut ebpf, "HOOKS")?,
            watched: take(&mut ebpf, "WATCHED")?,
            reasons: take(&mut ebpf, "REASONS")?,
            system_calls: take(&mut ebpf, "SYSTEM_CALLS")?,
            ebpf,
        })
    }

    /// How sites are attached.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// What the programs have said of themselves since the last time; nothing in a release build.
    pub fn debug_lines(&mut self) -> Vec<String> {
        self.log.as_mut().map(DebugLog::take).unwrap_or_default()
    }

    /// Watches a process (or changes its role); `false` when it was. What the kernel side knows of a process with this role
    /// stays, but for whether it asks a dockerd that is watched.
    ///
    /// # Errors
    ///
    /// The map is full.
    pub fn watch(&mut self, tgid: u32, watched: Watched) -> Result<bool, KernelError> {
        let known = self.watched.get(&tgid, 0).map(|known| known.0);
        let known = known.ok().filter(|known| known.role == watched.role);
        let entry = match known {
            Some(known) if known.asks_docker() == watched.asks_docker() => return Ok(false),
            Some(known) => Watched { flags: known.flags ^ PROCESS_ASKS_DOCKER, ..known },
            None => watched,
        };
        self.watched
            .insert(tgid, Plain(entry), 0)
            .map(|()| known.is_none())
            .map_err(|source| KernelError::Map { map: "WATCHED", source })
    }
}

/// The object with its maps made and its constants set; no program is loaded yet.
///
/// # Errors
///
/// No object in this binary, or the kernel refuses a map.
pub(super) fn open(object: &[u8], options: &LoadOptions) -> Result<Ebpf, KernelError> {
    if object.is_empty() {
        return Err(KernelError::Stub);
    }
    let mut settings = options.settings;
    settings.use_cookies = u32::from(options.mode != AttachMode::PerfAddress);
    let mut loader = EbpfLoader::new();
    loader.override_global("SETTINGS", settings.as_bytes(), true);
    loader.map_max_entries("EVENTS", options.ring_size());
    loader.map_max_entries("HOOKS", options.hooks.clamp(1, MAX_HOOKS));
    match &options.wire {
        Some(wire) => {
            loader.override_global("WIRE", wire.as_bytes(), true);
        }
        None => {
            let all = [
                "MESSAGES",
                "SENDING",
                "POSITIONS",
                "ENDS",
                "REQUESTS",
                "OTHER_REQUESTS",
                "CLIENTS",
                "DIRECTIONS",
                "DOCKER_REQUESTS",
                "HIJACKED",
                "BUS_CALLS",
                "BUS_POSITIONS",
                "JOBS_DONE",
                "JOB_BODIES",
            ];
            for map in all {
                loader.map_max_entries(map, 1);
            }
        }
    }
    if !options.parks {
        // It takes more than a megabyte.
        loader.map_max_entries("PARKERS", 1);
    }
    loader
        .load(&object::for_this_kernel(object, options.preemption))
        .map_err(|e| KernelError::Object(Box::new(e)))
}

/// A map of the object, typed.
fn take<T>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, KernelError>
where
    T: TryFrom<Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).ok_or(KernelError::Missing(name))?;
    T::try_from(map).map_err(|source| KernelError::Map { map: name, source })
}

pub(super) fn map_fd<'a>(ebpf: &'a Ebpf, name: &str) -> Option<BorrowedFd<'a>> {
    match ebpf.map(name)? {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::ProgramArray(data)
        | Map::RingBuf(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

fn load_uprobes(ebpf: &mut Ebpf, names: [&'static str; 2]) -> Result<(), KernelError> {
    for name in names {
        let program: &mut UProbe = program(ebpf, name)?;
        program.load().map_err(|e| refused(name, &e))?;
    }
    Ok(())
}

/// The programs of family `process` and their tracepoints, in the order in which they go on.
const PROCESS_PROGRAMS: [(&str, &str); 3] = [
    ("proc_exit", "sched_process_exit"),
    ("proc_exec", "sched_process_exec"),
    ("proc_fork", "sched_process_fork"),
];

/// fork last: a child that is followed has an end that is seen.
fn attach_process_programs(
    ebpf: &mut Ebpf,
    loaded: &mut Loaded,
) -> Result<Vec<RawTracePointLinkId>, KernelError> {
    PROCESS_PROGRAMS
        .into_iter()
        .map(|(name, tracepoint)| {
            loaded.take(ebpf, name)?;
            program::<RawTracePoint>(ebpf, name)?
                .attach(tracepoint)
                .map_err(|e| KernelError::Tracepoint { name: tracepoint, source: Box::new(e) })
        })
        .collect()
}

pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, KernelError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    ebpf.program_mut(name).and_then(|p| p.try_into().ok()).ok_or(KernelError::Missing(name))
}

pub(super) fn refused(program: &'static str, error: &aya::programs::ProgramError) -> KernelError {
    let summary = match error {
        aya::programs::ProgramError::LoadError { io_error, verifier_log } => {
            format!("{io_error}: {}", verifier::summary(&verifier_log.to_string()))
        }
        other => other.to_string(),
    };
    KernelError::Program { program, summary }
}
