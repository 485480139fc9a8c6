//! How an observation begins: survey, first facts, probes.

use std::{collections::HashMap, path::Path, sync::Arc};

use plegtrace_common::settings::{KernelSettings, NAMES_OF_ALL};

use super::{
    EngineError, Observation, Recognised,
    census::Wants,
    dying::Dying,
    pictures::Pictures,
    pipeline::{Pipeline, Tap},
    progress::Progress,
    rounds::{Depth, Rounds},
    survey::node_and_kernel,
    symbols::Symbols,
};
use crate::{
    census::{CpuReader, HaltWatch},
    cli::{Settings, SocketBackend},
    clock,
    flame::Flame,
    input::{Fact, RefusedFact, Start},
    kernel::{AttachMode, Kernel, LoadOptions, WireProbes},
    live::{Live, OpenBus},
    probes::{Probes, source_refused},
    recording::Recorder,
    target::KernelOffsets,
};

impl Observation {
    pub(super) fn begin(
        settings: &Settings,
        mode: AttachMode,
        tap: Option<Tap>,
        recorder: Option<Arc<Recorder>>,
        progress: &mut Progress,
    ) -> Result<Self, EngineError> {
        progress.step("looking for kubelet and container runtime");
        let mut recognised = Recognised::default();
        let survey = recognised.survey(settings)?;
        if survey.node.is_empty() {
            return Err(EngineError::NothingToTrace { leftovers: survey.node.leftovers });
        }
        if let Some(question) = survey.ambiguous_runtime() {
            return Err(EngineError::Ambiguous(question));
        }
        let mut observation = Self {
            pipeline: Pipeline::new(tap),
            probes: Probes::new(mode, settings.parks, &settings.without),
            survey,
            recognised,
            live: None,
            bus: OpenBus::default(),
            runc: None,
            alive: HashMap::new(),
            dying: Dying::default(),
            rescan: false,
            lost: Vec::new(),
            census: Rounds::default(),
            pictures: Pictures::default(),
            cpu: CpuReader::default(),
            halts: HaltWatch::default(),
            counted: None,
            recorder,
            symbols: Symbols::default(),
            flame: settings.output.is_flame().then(Flame::default),
        };
        observation.pipeline.fact(clock::monotonic_ns(), Fact::Start(start()));
        for presence in observation.survey.presences() {
            observation.pipeline.fact(clock::monotonic_ns(), Fact::Presence(presence));
        }
        observation.tell_listening();
        observation.begin_census(settings, Depth::Goroutines, &Wants::first());
        Ok(observation)
    }

    pub(super) fn arm(
        &mut self,
        settings: &Settings,
        mode: AttachMode,
        progress: &mut Progress,
    ) -> Result<(), EngineError> {
        progress.step("reading the programs' function tables");
        if settings.uprobes {
            self.probes.inspect(&self.survey.wanted());
        } else {
            self.refuse_source("uprobes");
        }
        if !settings.parks {
            self.refuse_parks();
        }
        if !settings.processes {
            self.refuse_source("processes");
        }
        self.tell_targets();
        progress.step(&format!("attaching {} probes ({})", self.probes.plan().sites(), mode.name()));
        let offsets = KernelOffsets::load(Path::new("/"))?;
        let sources = self.possible(settings, mode, &offsets);
        let hooks = settings.hook_slots.unwrap_or_else(|| self.probes.hooks_wanted());
        self.probes.limit_hooks(hooks);
        let by_name = offsets.settings(settings.follows_names());
        // A name is a hint: what another user than the node's calls `containerd` is none of it.
        let of_all = by_name.watch_by_name != 0 && self.survey.node.is_of_user();
        let options = LoadOptions {
            mode,
            settings: KernelSettings {
                node_pid_ns: self.survey.node.pid_namespace().unwrap_or(0),
                watch_by_name: if of_all { NAMES_OF_ALL } else { by_name.watch_by_name },
                ..by_name
            },
            ring_bytes: settings.ring_bytes,
            hooks,
            processes: sources.processes,
            parks: sources.parks,
            preemption: offsets.preemption(),
            wire: sources.wire,
            wire_probes: WireProbes::candidates(settings.socket_backend),
            socket_functions: offsets.socket_functions(),
        };
        let kernel = Kernel::load(&options)?;
        let live = Live::new(kernel, sources.processes, sources.parks, self.survey.request(settings));
        let live = live.map_err(EngineError::Drain)?;
        let live = live.with_park_budget(settings.park_budget).with_syscall_budget(settings.syscall_budget);
        self.live = Some(live);
        self.watch_all();
        if sources.wire.is_some()
            && let Some(Err(why)) = self.live.as_mut().map(Live::follow_wire)
        {
            self.refuse_wire(settings, &why);
        }
        self.attach();
        self.look_for_runc(settings);
        // Who ended before the kernel side could tell of it is missed at the next look.
        self.rescan = true;
        Ok(())
    }

    pub(super) fn refuse_source(&mut self, source: &str) {
        self.refuse(source, "left out by --sources");
    }

    /// Nothing is judged differently without parks: only the leaves of trees have no names.
    pub(super) fn refuse_parks(&mut self) {
        self.do_without("parks", "left out by --sources");
    }

    /// Nobody misses what nobody has asked for: `watch` takes the wire only where it costs the node nothing.
    pub(super) fn refuse_wire(&mut self, settings: &Settings, why: &str) {
        if settings.wire_if_cheap() {
            self.do_without("wire", &format!("{why}; to follow sockets all the same, add --sources all"));
        } else if settings.socket_backend == SocketBackend::Functions {
            self.refuse("wire", &format!("{why}; leave out --socket-backend"));
        } else {
            self.refuse("wire", why);
        }
    }

    fn do_without(&mut self, source: &str, why: &str) {
        let fact = Fact::Refused(RefusedFact { matters: false, ..source_refused(source, why) });
        self.pipeline.fact(clock::monotonic_ns(), fact);
    }

    pub(super) fn refuse(&mut self, source: &str, why: &str) {
        let refused = source_refused(source, why);
        self.pipeline.fact(clock::monotonic_ns(), Fact::Refused(refused));
    }
}

fn start() -> Start {
    let (node, kernel) = node_and_kernel();
    Start {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        kernel,
        realtime_offset_ns: clock::realtime_offset_ns(),
        boottime_offset_ns: clock::boottime_offset_ns(),
        cpus: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(0)),
    }
}
