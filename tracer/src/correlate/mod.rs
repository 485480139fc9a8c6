//! Events, in almost any order → what is known about the node at one moment ([`Snapshot`]).
//!
//! [`Correlator`] owns all waiting state: calls that wait for their relist, client calls that wait for the counted call
//! around them, open calls that wait for their end. Each has a bound in [`Limits`] and a counter that the report shows.
//! It knows no clock: time comes from the events and from the caller of [`Correlator::snapshot`]. Records of different
//! CPUs may arrive out of order; within [`Limits::reorder_ns`] the order of arrival changes nothing.

mod abandoned;
mod age;
mod ageing;
mod bus;
mod bus_peers;
mod caller;
mod carriers;
mod census;
mod clients;
mod correlator;
mod cpu;
mod finished;
mod frontier;
mod generations;
pub(crate) mod go;
mod growth;
pub mod helpers;
mod inflight;
mod join;
mod last_list;
mod latency;
mod limits;
mod messages;
mod needed;
mod node;
mod other_clients;
mod outcomes;
mod own;
mod pace;
mod parks;
mod pauses;
mod phases;
mod pod_relists;
mod preamble;
mod probed;
mod processes;
pub mod programs;
mod pulse;
mod quiet;
mod recent;
mod relist;
mod request_programs;
mod request_trees;
mod requests;
mod rows;
mod shims;
mod snapshot;
pub mod thresholds;
mod time;
mod traced;
mod trees;
mod view;
mod weights;

pub use age::Age;
pub use bus::{Bus, BusRow, BusWait, OpenBusCall, SystemdSerials};
pub use bus_peers::{BusPeer, BusyWith};
pub use caller::Caller;
pub use census::{
    Again, BlockedThread, BusyLoop, Census, DeviceUse, DiskWaits, FileCall, Held, Jam, Known, KubeletLoops,
    LoopKind, LoopWait, NriWait, PluginKind, ProcessSeen, PullWait, PullWaitsFor, Quiet, Request,
    UnkillableSeen, Unreported, WaitsFor,
};
pub use correlator::Correlator;
pub use cpu::{Cpu, CpuShare};
pub use finished::Finished;
pub use join::Joins;
pub use latency::Latency;
pub use limits::Limits;
pub use messages::{MessageRow, Messages, OpenMessage};
pub use other_clients::{LikeKubelet, OtherClient};
pub use outcomes::{CallError, Streak};
pub use pace::Pace;
pub use pauses::Pause;
pub use phases::Phase;
pub use processes::{
    EndedProcess, OciRuntime, OpenProcess, ProcessEnd, ProcessKind, ProcessRow, Processes, WorkloadProcess,
};
pub use pulse::{InFlightCalls, Pulse};
pub use recent::{Recent, RecentKind};
pub use requests::RequestTree;
pub use rows::{RowKey, RpcRow, Side};
pub use snapshot::{
    ClosedUnseen, HookState, LastList, ListOutcome, OpenCall, Relist, Snapshot, Tally, Window,
};
pub use time::{Doing, Place, RequestTime, TimeRow, TimeTable};
pub use traced::{TracedProcess, TracedState};
