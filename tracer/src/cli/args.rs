//! What was typed. No logic: defaults and conflicts are resolved in [`Settings`](super::Settings).

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};

use super::{Collector, size, span};

const EXAMPLES: &str = "\
Examples:
  sudo plegtrace                      what holds this node up, within 15 seconds
  sudo plegtrace -d 60                watch for a minute, then report
  sudo plegtrace -d 3600 --until-found   wait for the next stall, then report
  sudo plegtrace --show calls,tree    with the calls in flight, and the slowest relist as a tree
  sudo plegtrace -v                   everything: evidence, all tables, what was not seen and why
  sudo plegtrace -o json              the same for machines
  sudo plegtrace -o svg > flame.svg   where the wall time of relists and requests goes, as a picture
  sudo plegtrace -o perfetto > t.json  the slowest of them over time, for ui.perfetto.dev
  sudo plegtrace --otlp http://127.0.0.1:4317   and send the slowest, open ones too, as traces
  sudo plegtrace --sources census     what is stuck already, without eBPF
  sudo plegtrace --dry-run            which probes would be attached; attaches nothing
  plegtrace explain R1                the page of a cause: mechanism, evidence, what to do
  sudo plegtrace goroutines PID       what every goroutine of a Go program does, without a signal
  sudo plegtrace record FILE          the same, and keep all that was seen
  sudo plegtrace watch                for months: a picture each minute, and evidence of each stall
  sudo plegtrace check                what watch sees now, in one line
  sudo plegtrace top                  what is in flight, live
  plegtrace report FILE               the report of a recording, anywhere, without root
  plegtrace doctor                    what this kernel, these programs and these privileges allow

Exit codes:
  0 healthy   1 stall, failing or slow   2 usage   3 cannot run here   4 nothing to trace
  5 cannot tell   70 bug";

/// Without blank lines that a terminal has no room for.
const HELP: &str = "{about}\n{usage-heading} {usage}\n{all-args}{after-help}";

const EXIT_CODES: &str = "\
Exit codes: 0 healthy   1 stall, failing or slow   2 usage   3 cannot run here
            4 nothing to trace   5 cannot tell   70 bug          (more: --help)";

const EXPLAIN: &str = "\
Examples:
  plegtrace explain R1
  plegtrace explain                             every cause, one per line
  plegtrace explain -o json | jq -r '.[].id'

Exit codes:
  0 printed   2 no such id";

const GOROUTINES: &str = "\
Examples:
  sudo plegtrace goroutines $(pidof containerd)
  sudo plegtrace goroutines $(pidof kubelet) -o json | jq '.groups[] | select(.state == \"waiting\")'

Exit codes:
  0 read   2 no such process   3 no permission   5 cannot be read: not Go, or not a Go we know";

const RECORD: &str = "\
Examples:
  sudo plegtrace record node.plegtrace            observe, report, and keep what was seen
  sudo plegtrace record -d 60 node.plegtrace      for a minute
  sudo plegtrace record - | plegtrace report -    observe here, report there

Exit codes:
  as without a command; 2 also when FILE exists, 3 also when it cannot be written";

const REPORT: &str = "\
Examples:
  plegtrace report node.plegtrace
  plegtrace report node.plegtrace -o json -v
  plegtrace report node.plegtrace -o svg > flame.svg              open it in a browser
  plegtrace report node.plegtrace -o perfetto > trace.json        open it in ui.perfetto.dev
  plegtrace report healthy.plegtrace -o folded > healthy.folded   keep it, and later compare:
  plegtrace report node.plegtrace -o svg --per-relist --against healthy.folded > change.svg

Exit codes:
  0 healthy   1 stall found, or slow   2 no recording   3 cannot be opened   5 cannot tell, or cannot be read";

const WATCH: &str = "\
Examples:
  sudo plegtrace watch                          a window each minute, in /var/lib/plegtrace
  sudo plegtrace watch --window 5m --dir /tmp/w
  plegtrace report /var/lib/plegtrace/evidence/20260101T140211Z-R1.plegtrace
  plegtrace report FILE -o svg --per-relist --against /var/lib/plegtrace/flame.folded > change.svg
  sudo plegtrace watch --metrics 127.0.0.1:9465
  sudo plegtrace watch --sources all            also requests on sockets, and calls to systemd over D-Bus
  sudo plegtrace watch --on-verdict /usr/local/sbin/page-us --team node
  sudo plegtrace watch --on-verdict sh -c 'jq -c .event | logger -t plegtrace'

Exit codes:
  0 ended by a signal   2 usage, or another one writes to DIR   3 cannot run here";

#[cfg(feature = "top")]
const TOP: &str = "\
Examples:
  sudo plegtrace top

Exit codes:
  0 ended by a person   2 no terminal   3 cannot run here";

const CHECK: &str = "\
Examples:
  sudo plegtrace check
  sudo plegtrace check --dir /tmp/w

Exit codes:
  0 nothing is held up   1 something is   2 not known: no state, or one older than two windows";

const HISTORY: &str = "\
Examples:
  sudo plegtrace history --since 12h
  sudo plegtrace history -o json | jq -r '.[] | select(.verdict == \"stall\") | [.at, .id] | @tsv'

Exit codes:
  0 printed   2 no history   3 cannot be read";

const COMPLETIONS: &str = "\
Examples:
  plegtrace completions bash > /etc/bash_completion.d/plegtrace
  plegtrace completions fish > ~/.config/fish/completions/plegtrace.fish

Exit codes:
  0 printed";

const MAN: &str = "\
Examples:
  plegtrace man | man -l -                     read the page of plegtrace
  plegtrace man --dir /usr/local/share/man/man1

Exit codes:
  0 written   2 no such directory   3 cannot be written";

/// Names the component that makes a Kubernetes node report `PLEG is not healthy`.
///
/// Observes the kubelet and the container runtime from the kernel for a few seconds, and reports which calls hang, since
/// when, and how relists and CRI calls are doing. It configures, restarts, stops and signals nothing.
#[derive(Debug, Parser)]
#[command(
    name = "plegtrace",
    version,
    after_help = EXIT_CODES,
    after_long_help = EXAMPLES,
    help_template = HELP,
    disable_help_subcommand = true,
    disable_version_flag = true
)]
pub struct Args {
    /// What to do; without one: observe and report.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// Print version
    #[arg(short = 'V', long, action = clap::ArgAction::Version, hide_short_help = true)]
    pub version: Option<bool>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check what this kernel, these programs and privileges allow
    ///
    /// Every check, every probe. Attaches nothing. Works without root as far as possible, and says what it could not read.
    Doctor,
    /// Print where every goroutine of a Go process waits, grouped
    ///
    /// The process is neither stopped nor signalled: its memory is read from outside while it runs. Works for every
    /// Linux program built with Go 1.13 to 1.27, stripped or not, also in containers. Inlined functions do not appear.
    #[command(after_help = GOROUTINES)]
    Goroutines {
        /// Process id.
        #[arg(value_name = "PID")]
        pid: u32,
    },
    /// Explain a cause: how it happens, how it is recognised, what to do.
    ///
    /// Ids are those shown in reports. Causes that plegtrace does not report yet have a page too, which says how to
    /// recognise them by hand. Needs no privileges.
    #[command(after_help = EXPLAIN)]
    Explain {
        /// Id of the cause, for example R1; without one: list all, one per line.
        #[arg(value_name = "ID")]
        id: Option<String>,
        /// List all known causes, as without an id.
        #[arg(long, hide = true, conflicts_with = "id")]
        list: bool,
    },
    /// Observe and report, and keep all that was seen in a file
    ///
    /// Prints the report too, unless the recording goes to stdout. FILE is readable only by its owner. It contains no
    /// environments, no payloads, and of command lines only what names runtime components; it does contain names of pods,
    /// images and paths. It is written once a second, so it stays readable however plegtrace ends.
    #[command(after_help = RECORD)]
    Record(RecordOptions),
    /// Print the report of a recording: the same as when it was made.
    ///
    /// Needs no root, no kubelet and no eBPF. For a damaged recording, reports what can be read and what is missing.
    #[command(after_help = REPORT)]
    Report {
        /// The recording; `-` reads stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Observe until SIGTERM or Ctrl-C, window by window
    ///
    /// Writes a picture of each window to a directory. Waits where there is no kubelet yet, and follows kubelet and runtime when
    /// they are replaced. DIR is readable only by its owner. It holds the last window (flame.svg, flame.folded, report.txt,
    /// report.json, and trace.json with its slowest requests for ui.perfetto.dev), the state for `check`, the history of all
    /// windows, and in `evidence` a recording and the report of each kind of stall. Prints a line of JSON when a stall begins,
    /// changes its cause, or ends. SIGHUP changes nothing: files are opened anew at each write.
    #[command(after_help = WATCH)]
    Watch(WatchOptions),
    /// Show what is in flight on the terminal, second by second
    ///
    /// Verdict, relists, open calls by age, and what calls took. q ends it, f freezes the screen, s saves the last minutes as
    /// a recording in this directory. Follows kubelet and runtime when they are replaced.
    #[cfg(feature = "top")]
    #[command(after_help = TOP)]
    Top,
    /// Say in one line what `watch` sees now
    ///
    /// Reads one file; needs no root where DIR is readable.
    /// For node-problem-detector and other monitors: at most 80 bytes, the component and how long it lasts first.
    #[command(after_help = CHECK)]
    Check(WindowsDir),
    /// Print the windows that `watch` has written, oldest first.
    #[command(after_help = HISTORY)]
    History {
        /// Directory of the windows.
        #[command(flatten)]
        dir: WindowsDir,
        /// Only those of this last time: 90m, 12h, 7d.
        #[arg(long, value_name = "TIME", value_parser = span::parse)]
        since: Option<Duration>,
    },
    /// Print completions for a shell
    ///
    /// Needs no privileges.
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell.
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands
    ///
    /// Needs no privileges.
    #[command(after_help = MAN)]
    Man {
        /// Write the pages of plegtrace and of each command to this directory, which must exist.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// What plegtrace runs itself: the reader of the census, which can be killed when it is late.
    #[command(hide = true)]
    CensusChild,
}

/// Where windows are.
#[derive(Clone, Debug, clap::Args)]
pub struct WindowsDir {
    /// Directory of the windows.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/plegtrace")]
    pub dir: PathBuf,
}

/// What to keep of an observation of months.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchOptions {
    /// Directory of the windows.
    #[command(flatten)]
    pub dir: WindowsDir,
    /// Length of a window: 60s, 5m; at most an hour.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span::parse_window)]
    pub window: Duration,
    /// Maximum size of the history, at least 1M; the oldest windows go first.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    pub history_size: u64,
    /// Maximum age of the history: 12h, 30d.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = span::parse)]
    pub history_age: Duration,
    /// Maximum size of the evidence of all stalls together, at least 1M; the oldest goes first.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub evidence_size: u64,
    /// Serve metrics for Prometheus at http://ADDR/metrics, for example 127.0.0.1:9465; off unless given. No login protects
    /// them: any address that is not of this machine alone shows them to whoever reaches it.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// Run this command, without a shell, when a stall begins, changes its cause or ends. All that follows are its arguments, so
    /// this comes last. It reads one JSON object from stdin: the fields of DIR/state.json, and `event`, as in the line that watch
    /// prints. One runs at a time, every ten seconds at most; an event that comes meanwhile waits, and replaces one that waits.
    /// After 30 s its process group is killed, and so is what it leaves there when it ends. It has no environment but PATH, and
    /// no capabilities. Failures are logged, and counted in DIR/state.json.
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    pub on_verdict: Vec<OsString>,
}

/// Where and how to record.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordOptions {
    /// Recording to create, which must not exist; `-` writes to stdout and prints no report.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace FILE if it exists.
    #[arg(long)]
    pub force: bool,
    /// Maximum size of the recording, at least 1M; the observation ends shortly before it is reached.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub max_size: u64,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Observe for this many seconds.
    #[arg(short, long, value_name = "SECONDS", global = true)]
    pub duration: Option<f64>,
    /// Stop as soon as a cause is certain, even with --duration: to wait for the next stall.
    #[arg(long, global = true, hide_short_help = true)]
    pub until_found: bool,
    /// text, json, svg, folded or perfetto
    #[arg(short, long, value_name = "FORM", value_enum, hide_possible_values = true, default_value_t = Output::Text, global = true)]
    pub output: Output,
    /// Add relists, calls, processes, wire, tree, census
    #[arg(
        long,
        value_enum,
        hide_possible_values = true,
        value_delimiter = ',',
        value_name = "LIST",
        global = true
    )]
    pub show: Vec<Show>,
    /// With -o svg or folded: the mean relist, instead of everything that was seen.
    #[arg(long, global = true, hide_short_help = true)]
    pub per_relist: bool,
    /// With -o svg or folded: what has changed since FILE, which -o folded made.
    #[arg(long, value_name = "FILE", global = true, hide_short_help = true)]
    pub against: Option<PathBuf>,
    /// Send each relist or request that is open, has failed or took a second to a collector, as traces: its gRPC address, such
    /// as http://127.0.0.1:4317. An open span ends at the moment of the report, and says plegtrace.open. watch sends at the end
    /// of each window, and when it keeps evidence.
    #[arg(long, value_name = "URL", global = true, hide_short_help = true)]
    pub otlp: Option<Collector>,
    /// Sources of facts; all by default. Of watch all but wire, where that would need a probe on every system call.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        global = true,
        hide_short_help = true
    )]
    pub sources: Vec<Source>,
    /// Plan and verify every probe, attach nothing.
    #[arg(long, global = true, hide_short_help = true)]
    pub dry_run: bool,
    /// Process id of the kubelet.
    #[arg(long, value_name = "PID", global = true, hide_short_help = true)]
    pub kubelet_pid: Option<u32>,
    /// Process id of the container runtime.
    #[arg(long, value_name = "PID", global = true, hide_short_help = true)]
    pub runtime_pid: Option<u32>,
    /// Trace only the runtime that serves this socket.
    #[arg(short = 'r', long, value_name = "SOCKET", global = true, hide_short_help = true)]
    pub runtime_endpoint: Option<PathBuf>,
    /// How to attach probes.
    #[arg(long, value_enum, default_value_t = Attach::Auto, global = true, hide_short_help = true)]
    pub attach: Attach,
    /// How to follow requests on sockets.
    #[arg(long, value_enum, default_value_t = SocketBackend::Auto, global = true, hide_short_help = true)]
    pub socket_backend: SocketBackend,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true, hide_short_help = true)]
    pub color: Color,
    /// No progress on stderr.
    #[arg(short, long, global = true, conflicts_with = "verbose", hide_short_help = true)]
    pub quiet: bool,
    /// Print everything, and log to stderr
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Do not attach the probes of these layers. For tests of reports without them.
    #[arg(long, hide = true, value_enum, value_delimiter = ',', value_name = "LIST", global = true)]
    pub without: Vec<Family>,
    /// Maximum hits per second of the Go scheduler probes of one program; above that they are detached.
    #[arg(long, hide = true, default_value_t = 5000, value_name = "HITS_PER_SECOND", global = true)]
    pub park_budget: u64,
    /// Maximum system calls per second and processor of the whole node; above that wire is detached.
    #[arg(long, hide = true, default_value_t = 100_000, value_name = "CALLS_PER_SECOND", global = true)]
    pub syscall_budget: u64,
    /// Size of the ring buffer in bytes, a power of two of pages. For tests of event loss.
    #[arg(long, hide = true, global = true)]
    pub ring_bytes: Option<u32>,
    /// Room for so many hooks in the kernel side. For tests of what has no room.
    #[arg(long, hide = true, global = true)]
    pub hook_slots: Option<u32>,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// Wall time of relists and requests by stack, one line each, in microseconds: for tools that draw flame graphs.
    Folded,
    /// The same as an interactive flame graph.
    Svg,
    /// The slowest relists and requests over time, as a trace for ui.perfetto.dev.
    Perfetto,
}

impl Output {
    /// Is it a flame graph, in one of its forms?
    #[must_use]
    pub fn is_flame(self) -> bool {
        matches!(self, Self::Folded | Self::Svg)
    }

    /// Does it draw what was observed?
    #[must_use]
    pub fn is_drawing(self) -> bool {
        self.is_flame() || self == Self::Perfetto
    }
}

/// A section of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Show {
    /// Relists, and where their time goes.
    Relists,
    /// Calls: those in flight, and how long those that ended took.
    Calls,
    /// Short-lived processes: runc, network plugins, hooks.
    Processes,
    /// Requests on sockets, and calls over D-Bus.
    Wire,
    /// The slowest relist and requests as trees.
    Tree,
    /// What the census found stuck, and where it waits.
    Census,
}

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Source {
    /// All of these.
    All,
    /// Probes on the functions of kubelet and runtime.
    Uprobes,
    /// Where goroutines inside calls wait: probes on Go's scheduler, and `uprobes`.
    Parks,
    /// Birth, exec and end of processes.
    Processes,
    /// What was already stuck at the start: processes, sockets, cgroups. Needs no eBPF.
    Census,
    /// Requests of the kubelet to the runtime and of the runtime to shims, and calls to systemd over D-Bus, read from their
    /// sockets, and `processes`. Where the kernel does not allow probes on socket functions, every system call of the node passes one.
    Wire,
}

/// Probes that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// The relist.
    Relist,
    /// The relist of one pod.
    PodRelist,
    /// Its list phase.
    ListPhase,
    /// Its status phase.
    StatusPhase,
    /// Counted calls of the kubelet.
    KubeletCall,
    /// The bare client.
    KubeletClient,
    /// Handlers of the runtime.
    Handler,
    /// Phases of runc.
    RuncPhase,
}

/// How probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// The best that the kernel has.
    Auto,
    /// One link per program file (kernel 6.6 and later).
    Multi,
    /// Perf events with cookies (5.15 and later).
    Cookie,
    /// Perf events, found by address (5.10 and later).
    Address,
}

/// What tells of bytes on sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SocketBackend {
    /// The best that the kernel has.
    Auto,
    /// Functions of the kernel that move bytes of AF_UNIX sockets (5.15 and later, without kernel preemption).
    Functions,
    /// All system calls of the node.
    Syscalls,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On terminals, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
