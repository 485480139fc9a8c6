//! The one input stream: kernel records and facts of user space, each in the same envelope.
//!
//! Everything later stages know arrives here, so that a recording of this stream gives the same report again.

mod census;
mod command;
mod envelope;
mod exec;
mod fact;
mod weight;

pub use census::{
    Answerers, CallError, CensusFact, Command, ContainerFact, DEVICE_PLUGINS, DRIVERS, DescriptorsFact,
    DiskFact, Downloads, EndedInit, FdFact, FdTarget, Freezer, GoroutineGroup, GoroutinesFact, Holder,
    IdOnStack, InotifyFact, InotifyUser, KubeletConnections, OwnCall, PLUGIN_DIRECTORIES, ParkedThreads,
    PipeFact, PluginFact, Pressure, ProcessFact, REGISTRY, RuntimeCondition, RuntimeSays, RuntimeState,
    Scarce, SeccompFact, SentFact, SocketFact, Subject, SyscallFact, TaskLimit, TcpFact, Unanswered,
    Unkillable, Unwritten, VersionFact, WriteLimit, is_scarce, served_by,
};
pub(crate) use envelope::MAX_FRAME;
pub use envelope::{Arrival, Frame, FrameError, frame_fact, next_frame};
pub use exec::admit;
pub use fact::{
    Armed, BusFact, BusPeerFact, BusReaderFact, ClientFact, CommandFact, Component, Cost, CpuFact, DaemonCpu,
    ErrorFact, ErrorsFact, Fact, HookCounters, HookFact, InFlight, KnownFact, Layer, LearntFact,
    ListeningFact, Liveness, LossCount, MessagesFact, NamesFact, OpenBusFact, OpenCallFact, OpenMessageFact,
    OtherClientsFact, ParkerFact, Presence, ProcessesFact, QuotaFact, RefusedFact, RunnerFact, SYSTEMD,
    Start, Stop, StopWhy, SymbolFact, SymbolsFact, SystemdWork, THE_BUS, TargetFact, TargetGone, WatchedFact,
};
pub use weight::Weight;
