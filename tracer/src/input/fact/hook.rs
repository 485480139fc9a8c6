//! Facts of hooks: what is armed where, and what it counted.

use serde::{Deserialize, Serialize};

use super::Component;

/// Where in the chain a hooked function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// `(*GenericPLEG).Relist`: the root of a tree.
    Relist,
    /// `(*GenericPLEG).relistPod`, of one pod, on the goroutine of the relists: the root of a tree.
    PodRelist,
    /// `GetPods`: the list phase of a relist (other kubelet loops call it too); `GetPod`: that of a relist of one pod.
    ListPhase,
    /// `updateCache` of one pod: the status phase of a relist.
    StatusPhase,
    /// `instrumentedRuntimeService` and `instrumentedImageManagerService`: what the kubelet's metrics count.
    KubeletCall,
    /// `remoteRuntimeService` and `remoteImageService`: the bare client, inside a counted call or alone.
    KubeletClient,
    /// Handler of a CRI method in the runtime.
    Handler,
    /// A part of a runc command in which it can hang.
    RuncPhase,
    /// A site that only ends or marks calls of other hooks.
    Mark,
    /// A program that runs for a request: no hook has this layer.
    Process,
}

/// A hook that is armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFact {
    /// Number used by kernel records and counters.
    pub index: u32,
    /// Where it stands in the chain.
    pub layer: Layer,
    /// Component of the binary.
    pub component: Component,
    /// Executable it is in.
    pub exe: String,
    /// CRI method ("ListContainers") or function name for other layers.
    pub operation: String,
    /// "runtime.v1.RuntimeService" for handlers; the end of the Go package, with the type of a method, for others.
    pub service: String,
    /// Full Go symbol.
    pub symbol: String,
    /// The call is a server stream or long poll: never stuck by age alone.
    pub long_lived: bool,
    /// Number of probe sites.
    pub sites: u32,
}

/// The probes are on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// How sites are attached: "uprobe_multi", "perf events with cookies", "perf events by address".
    pub mode: String,
    /// Number of sites.
    pub sites: u32,
    /// Time from the first to the last attach.
    pub took_ns: u64,
    /// The hooks whose probes are on, in programs that run; `None`: recorded before this was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<u32>>,
}

/// Counters of one hook, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCounters {
    /// Index of the hook.
    pub hook: u32,
    /// Hits in watched processes; of hooks on parks, in all processes of the executable.
    pub hits: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, with an error.
    pub failed: u64,
    /// Ends without an open call.
    pub unmatched: u64,
    /// Sum of durations.
    pub sum_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Buckets of powers of two of nanoseconds; trailing zeros are left out.
    pub buckets: Vec<u64>,
}
