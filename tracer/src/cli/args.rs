//! What was typed. No logic: defaults and conflicts are resolved in [`Settings`](super::Settings).

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::size;

const EXAMPLES: &str = "\
Examples:
  sudo plegtrace                      what holds this node up, within 15 seconds
  sudo plegtrace -d 60                watch for a minute, then report
  sudo plegtrace -d 3600 --until-found   wait for the next stall, then report
  sudo plegtrace -o json              the same for machines
  sudo plegtrace --sources census     what is stuck already, without eBPF
  sudo plegtrace --dry-run            which probes would be attached; attaches nothing
  plegtrace explain R1                the page of a cause: mechanism, evidence, what to do
  sudo plegtrace goroutines PID       what every goroutine of a Go program does, without a signal
  sudo plegtrace record FILE          the same, and keep all that was seen
  plegtrace report FILE               the report of a recording, anywhere, without root
  plegtrace doctor                    what this kernel, these programs and these privileges allow

Exit codes:
  0 healthy   1 stall found   2 usage   3 cannot run here   4 nothing to trace
  5 cannot tell   70 bug";

const EXPLAIN: &str = "\
Examples:
  plegtrace explain R1
  plegtrace explain --list
  plegtrace explain --list -o json | jq -r '.[].id'

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

Exit codes:
  0 healthy   1 stall found   2 no recording   3 cannot be opened   5 cannot tell, or cannot be read";

/// Names the component that makes a Kubernetes node report `PLEG is not healthy`.
///
/// Observes the kubelet and the container runtime from the kernel, for a few seconds, and reports which calls do not
/// return, since when, and how relists and CRI calls went. Nothing is configured, restarted, stopped or signalled.
#[derive(Debug, Parser)]
#[command(name = "plegtrace", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to do; without one: observe and report.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print what this kernel, these programs and these privileges allow: every check, every probe.
    ///
    /// Attaches nothing. Works without root as far as it can, and says what it could not look at.
    Doctor,
    /// Print what every goroutine of a Go process does and where it waits, those that are alike together.
    ///
    /// The process is neither stopped nor signalled: its memory is read from outside, as it runs. Works for every
    /// Linux program that Go 1.13 to 1.27 built, stripped or not, also in containers. Inlined functions do not appear.
    #[command(after_help = GOROUTINES)]
    Goroutines {
        /// The process.
        #[arg(value_name = "PID")]
        pid: u32,
    },
    /// Print what is known about a cause: how it comes about, how it is recognised, what to do.
    ///
    /// Ids are those of the report. Needs no privileges.
    #[command(after_help = EXPLAIN)]
    Explain {
        /// Id of the cause, for example R1.
        #[arg(value_name = "ID", required_unless_present = "list")]
        id: Option<String>,
        /// All causes that plegtrace knows, one per line.
        #[arg(long)]
        list: bool,
    },
    /// Observe and report as without a command, and write all that was seen to a file.
    ///
    /// The report is printed too, unless the recording goes to stdout. FILE is readable by its owner alone, and holds no
    /// environments, no payloads and of command lines only what names runtime components; it does hold names of pods,
    /// images and paths. It is written once a second, so whatever ends plegtrace leaves a recording that can be read.
    #[command(after_help = RECORD)]
    Record(RecordOptions),
    /// Print the report of a recording: the same that was printed when it was made.
    ///
    /// Needs no root, no kubelet and no eBPF. Of a damaged recording what can be read is reported, and what is missing.
    #[command(after_help = REPORT)]
    Report {
        /// The recording; `-` is stdin.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// What plegtrace runs itself: the reader of the census, which can be killed when it is late.
    #[command(hide = true)]
    CensusChild,
}

/// Where and how to record.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordOptions {
    /// The recording, which must not exist; `-` is stdout, and then no report is printed.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace FILE if it exists.
    #[arg(long)]
    pub force: bool,
    /// Greatest length of the recording, at least 1M; the observation ends when it is almost reached.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub max_size: u64,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Observe for this many seconds.
    #[arg(short, long, value_name = "SECONDS", global = true)]
    pub duration: Option<f64>,
    /// End as soon as a cause is certain, also when --duration is given: to wait for the next stall.
    #[arg(long, global = true)]
    pub until_found: bool,
    /// Form of the report on stdout.
    #[arg(short, long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
    /// Where facts may come from; all by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", global = true)]
    pub sources: Vec<Source>,
    /// Plan and verify every probe, attach nothing.
    #[arg(long, global = true)]
    pub dry_run: bool,
    /// The kubelet is this process.
    #[arg(long, value_name = "PID", global = true)]
    pub kubelet_pid: Option<u32>,
    /// The container runtime is this process.
    #[arg(long, value_name = "PID", global = true)]
    pub runtime_pid: Option<u32>,
    /// Trace only the runtime that serves this socket.
    #[arg(short = 'r', long, value_name = "SOCKET", global = true)]
    pub runtime_endpoint: Option<PathBuf>,
    /// How probes are attached.
    #[arg(long, value_enum, default_value_t = Attach::Auto, global = true)]
    pub attach: Attach,
    /// Colours.
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
    /// No progress on stderr.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Longer report, and what plegtrace does on stderr (twice: in detail).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Leave out the probes of these layers. For tests of what is said without them.
    #[arg(long, hide = true, value_enum, value_delimiter = ',', value_name = "LIST", global = true)]
    pub without: Vec<Family>,
    /// Hits per second that the probes on the Go scheduler of one program may have; above that they come off.
    #[arg(long, hide = true, default_value_t = 5000, value_name = "HITS_PER_SECOND", global = true)]
    pub park_budget: u64,
    /// Size of the ring buffer in bytes, a power of two of pages. For tests of event loss.
    #[arg(long, hide = true, global = true)]
    pub ring_bytes: Option<u32>,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// Where facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Source {
    /// Probes on the functions of kubelet and runtime.
    Uprobes,
    /// Where goroutines inside calls wait: probes on Go's scheduler, and `uprobes`.
    Parks,
    /// Birth, exec and end of processes.
    Processes,
    /// What was already stuck at the start: processes, sockets, cgroups. Needs no eBPF.
    Census,
}

/// Probes that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// The relist.
    Relist,
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
