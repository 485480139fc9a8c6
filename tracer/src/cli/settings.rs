//! [`Settings`]: arguments with defaults filled in and conflicts refused. Pure.

use std::{path::PathBuf, time::Duration};

use super::Collector;
use super::args::{Attach, Color, Common, Family, Output, Show, SocketBackend, Source};
use crate::input::Layer;

/// How long a one-shot observes unless told otherwise.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);

/// What to do, ready to use.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long to observe.
    pub duration: Duration,
    /// Observe for the whole time, even when enough was seen: the operator gave a time, and no --until-found.
    pub to_the_end: bool,
    /// Form of the report.
    pub output: Output,
    /// Sections of the text after its first screen.
    pub show: Vec<Show>,
    /// Flame graphs: of the mean relist.
    pub per_relist: bool,
    /// Flame graphs: an earlier one, to compare with.
    pub against: Option<PathBuf>,
    /// Who gets traces.
    pub otlp: Option<Collector>,
    /// Use uprobes.
    pub uprobes: bool,
    /// Follow where goroutines wait, with uprobes on Go's scheduler.
    pub parks: bool,
    /// Use process tracepoints.
    pub processes: bool,
    /// Read requests from the sockets between kubelet, runtime and shims.
    pub wire: bool,
    /// The operator asked for that; else it is left out where it costs too much, or loses events.
    pub wire_named: bool,
    /// Take a census at the start.
    pub census: bool,
    /// plegtrace as a file, which is run to take the census; `None` for callers that are no plegtrace themselves, who
    /// have none without it.
    pub census_program: Option<PathBuf>,
    /// Attach nothing.
    pub dry_run: bool,
    /// The kubelet, when told.
    pub kubelet_pid: Option<u32>,
    /// The runtime, when told.
    pub runtime_pid: Option<u32>,
    /// The runtime's socket, when told.
    pub runtime_endpoint: Option<PathBuf>,
    /// How probes are attached.
    pub attach: Attach,
    /// What tells of bytes on sockets.
    pub socket_backend: SocketBackend,
    /// When to use colours.
    pub color: Color,
    /// No progress.
    pub quiet: bool,
    /// 0, 1 or 2.
    pub verbose: u8,
    /// Layers whose probes are left out.
    pub without: Vec<Layer>,
    /// Hits per second that the probes on the Go scheduler of one program may have.
    pub park_budget: u64,
    /// System calls per second and processor up to which `wire` stays on.
    pub syscall_budget: u64,
    /// Size of the ring buffer.
    pub ring_bytes: Option<u32>,
    /// Room for so many hooks in the kernel side; `None`: by the plan.
    pub hook_slots: Option<u32>,
}

/// Why the arguments cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a time to observe.
    #[error("--duration takes a number of seconds above 0, not {0}")]
    Duration(String),
    /// Not a size for a ring buffer.
    #[error("--ring-bytes takes a power of two of at least 4096, not {0}")]
    RingBytes(u32),
    /// One process for two roles.
    #[error("--kubelet-pid and --runtime-pid both name process {0}; they are two processes on every node")]
    SamePid(u32),
    /// An option of flame graphs without one.
    #[error("{0} is about flame graphs: add -o svg or -o folded")]
    NoFlame(&'static str),
    /// An end for what has none.
    #[error("watch and top go on until Ctrl-C or SIGTERM: leave out --duration and --until-found")]
    NoEnd,
    /// There is nothing to send.
    #[error("--otlp goes with an observation, record, report and watch, not with {0}")]
    NothingToSend(&'static str),
    /// There is nothing to draw.
    #[error("-o svg, folded and perfetto draw what was observed: {0} takes text or json")]
    NothingToDraw(&'static str),
}

impl Settings {
    /// Are components found by name? Not when the operator named them: then others of that name are not meant.
    #[must_use]
    pub fn follows_names(&self) -> bool {
        self.kubelet_pid.is_none() && self.runtime_pid.is_none() && self.runtime_endpoint.is_none()
    }

    /// Is the source `wire` wanted only where no other process pays for it?
    #[must_use]
    pub fn wire_if_cheap(&self) -> bool {
        !self.wire_named && self.socket_backend == SocketBackend::Functions
    }

    /// Is anything wanted that only the kernel side can tell?
    #[must_use]
    pub fn needs_kernel(&self) -> bool {
        self.uprobes || self.processes || self.wire
    }
}

impl TryFrom<&Common> for Settings {
    type Error = SettingsError;

    fn try_from(args: &Common) -> Result<Self, SettingsError> {
        let duration = match args.duration {
            None => DEFAULT_DURATION,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|d| !d.is_zero())
                .ok_or_else(|| SettingsError::Duration(seconds.to_string()))?,
        };
        if let Some(bytes) = args.ring_bytes.filter(|b| !b.is_power_of_two() || *b < 4096) {
            return Err(SettingsError::RingBytes(bytes));
        }
        if let Some(pid) = args.kubelet_pid.filter(|_| args.kubelet_pid == args.runtime_pid) {
            return Err(SettingsError::SamePid(pid));
        }
        let flame_options = [(args.per_relist, "--per-relist"), (args.against.is_some(), "--against")];
        if let Some((_, name)) = flame_options.iter().find(|(given, _)| *given && !args.output.is_flame()) {
            return Err(SettingsError::NoFlame(name));
        }
        let named = |source| args.sources.contains(&source) || args.sources.contains(&Source::All);
        let wanted = |source| args.sources.is_empty() || named(source);
        let (wire, wire_named) = (wanted(Source::Wire), named(Source::Wire));
        Ok(Self {
            duration,
            to_the_end: args.duration.is_some() && !args.until_found,
            output: args.output,
            show: args.show.clone(),
            per_relist: args.per_relist,
            against: args.against.clone(),
            otlp: args.otlp.clone(),
            // Parks are followed inside calls only.
            uprobes: wanted(Source::Uprobes) || wanted(Source::Parks),
            parks: wanted(Source::Parks),
            // A shim that is not known to be one is not read.
            processes: wanted(Source::Processes) || wire,
            wire,
            wire_named,
            census: wanted(Source::Census),
            census_program: None,
            dry_run: args.dry_run,
            kubelet_pid: args.kubelet_pid,
            runtime_pid: args.runtime_pid,
            runtime_endpoint: args.runtime_endpoint.clone(),
            attach: args.attach,
            socket_backend: args.socket_backend,
            color: args.color,
            quiet: args.quiet,
            verbose: args.verbose,
            without: args.without.iter().map(|family| layer(*family)).collect(),
            park_budget: args.park_budget,
            syscall_budget: args.syscall_budget,
            ring_bytes: args.ring_bytes,
            hook_slots: args.hook_slots,
        })
    }
}

fn layer(family: Family) -> Layer {
    match family {
        Family::Relist => Layer::Relist,
        Family::PodRelist => Layer::PodRelist,
        Family::ListPhase => Layer::ListPhase,
        Family::StatusPhase => Layer::StatusPhase,
        Family::KubeletCall => Layer::KubeletCall,
        Family::KubeletClient => Layer::KubeletClient,
        Family::Handler => Layer::Handler,
        Family::RuncPhase => Layer::RuncPhase,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Args;

    fn settings(words: &[&str]) -> Result<Settings, SettingsError> {
        let words = ["plegtrace"].iter().chain(words);
        Settings::try_from(&Args::try_parse_from(words).expect("parses").common)
    }

    /// clap finds no contradiction in the definition.
    #[test]
    fn definition_is_sound() {
        Args::command().debug_assert();
    }

    /// Without options everything is on, for 15 s.
    #[test]
    fn defaults() {
        let s = settings(&[]).unwrap();
        assert_eq!((s.duration, s.uprobes, s.processes, s.census), (DEFAULT_DURATION, true, true, true));
        assert_eq!((s.parks, s.wire, s.wire_named), (true, true, false));
        assert!(!s.to_the_end);
        assert!(settings(&["-d", "5"]).unwrap().to_the_end);
        assert!(!settings(&["-d", "5", "--until-found"]).unwrap().to_the_end);
    }

    /// Nonsense is refused with the words the operator typed.
    #[test]
    fn nonsense_is_refused() {
        assert!(matches!(settings(&["--duration=-1"]), Err(SettingsError::Duration(_))));
        assert!(matches!(settings(&["-d", "1e99"]), Err(SettingsError::Duration(_))));
        assert!(matches!(settings(&["-d", "0"]), Err(SettingsError::Duration(_))));
        assert!(matches!(settings(&["--ring-bytes", "5000"]), Err(SettingsError::RingBytes(5000))));
        let same = settings(&["--kubelet-pid", "7", "--runtime-pid", "7"]);
        assert!(matches!(same, Err(SettingsError::SamePid(7))));
        assert!(settings(&["--kubelet-pid", "7", "--runtime-pid", "8"]).is_ok());
        assert_eq!(settings(&["--per-relist"]).unwrap_err(), SettingsError::NoFlame("--per-relist"));
        let json = settings(&["-o", "json", "--against", "x"]);
        assert_eq!(json.unwrap_err(), SettingsError::NoFlame("--against"));
        assert!(settings(&["-o", "svg", "--per-relist", "--against", "x"]).is_ok());
    }

    /// Naming one source leaves the others out.
    #[test]
    fn sources() {
        let s = settings(&["--sources", "processes"]).unwrap();
        assert_eq!((s.uprobes, s.parks, s.processes, s.census), (false, false, true, false));
        let s = settings(&["--sources", "uprobes"]).unwrap();
        assert_eq!((s.uprobes, s.parks), (true, false));
        let s = settings(&["--sources", "parks"]).unwrap();
        assert_eq!((s.uprobes, s.parks), (true, true));
        let s = settings(&["--sources", "wire"]).unwrap();
        assert_eq!((s.wire, s.processes, s.uprobes, s.census), (true, true, false, false));
        assert!(s.needs_kernel() && s.wire_named);
        let s = settings(&["--sources", "all"]).unwrap();
        assert!(s.uprobes && s.parks && s.processes && s.wire && s.wire_named && s.census);
        let s = settings(&["--sources", "census"]).unwrap();
        assert!(s.census && !s.needs_kernel());
    }
}
