//! The goroutines of one process.

use serde::{Deserialize, Serialize};

use crate::input::Component;

/// The goroutines of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoroutinesFact {
    /// When reading began.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Process.
    pub pid: u32,
    /// What it is to the node.
    pub component: Component,
    /// Go version that built it.
    pub go_version: String,
    /// Goroutines that exist (dead ones that wait for reuse are not counted).
    pub total: u32,
    /// Of these, how many could not be read although it was tried again.
    pub unread: u32,
    /// Those that are alike, the largest group first.
    pub groups: Vec<GoroutineGroup>,
    /// Groups that were left out because there were too many.
    pub groups_left_out: u32,
    /// Of a kubelet: when the last relist began that got its list, as the kubelet itself has it (`relistTime` of its PLEG).
    /// `None` when that was not found, or there was none yet.
    #[serde(default)]
    pub last_list_ns: Option<u64>,
}

/// Goroutines with the same state and the same stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoroutineGroup {
    /// How many.
    pub count: u32,
    /// Their ids, ascending; at most 32.
    pub goids: Vec<u64>,
    /// Of a kubelet: for each of `goids` a fingerprint of what is on its stack. A goroutine whose fingerprint is the same at two looks has
    /// not gone on between them. Empty where none was taken, and in recordings before 2026-11-28.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<u32>,
    /// "running", "runnable", "syscall", "waiting", …
    pub state: String,
    /// Why they wait, in the words of the runtime ("chan receive", "sync.RWMutex.RLock", …).
    pub wait_reason: Option<String>,
    /// A moment at which the longest of them was parked there already: the end of a garbage collection that found it so.
    /// Most have none. Recordings before 2026-11-23 have `waiting_since_ns` instead, which is no bound of anything.
    #[serde(default)]
    pub parked_by_ns: Option<u64>,
    /// Full Go names, innermost first; at most 100. Inlined functions do not appear.
    pub frames: Vec<String>,
    /// The stack could not be followed to its end, and why.
    pub broken: Option<String>,
    /// What their requests are about, for goroutines that serve the CRI: one entry for all with the same ids; at most
    /// 32. Goroutines that are in none were not asked, or had no id.
    #[serde(default)]
    pub subjects: Vec<Subject>,
}

/// Goroutines of a group on whose stacks the same ids lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// How many.
    pub count: u32,
    /// Their ids, ascending; at most 32.
    pub goids: Vec<u64>,
    /// What looks like ids of containers, the outermost function first; at most 32. Slots of a stack that are not in use
    /// keep old values, so an id can be one of an earlier request.
    pub ids: Vec<IdOnStack>,
    /// As [`GoroutineGroup::parked_by_ns`], of these alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_by_ns: Option<u64>,
}

/// An id of a container, or what looks like one: 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IdOnStack {
    /// The function in whose frame it lies: index into the frames of the group.
    pub frame: u32,
    /// The digits, lower case.
    pub id: String,
}
