//! Facts of what is open at one moment, read from the kernel's maps.

use serde::{Deserialize, Serialize};

/// The calls open at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// When the map was read (before the ring buffer was drained).
    pub at_ns: u64,
    /// The calls.
    pub calls: Vec<OpenCallFact>,
    /// The map could be read to its end.
    pub complete: bool,
    /// Goroutines in calls, and how long they have been parked; empty when parks are not followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parkers: Vec<ParkerFact>,
}

/// One open call, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCallFact {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Index of the hook.
    pub hook: u32,
    /// Start.
    pub start_ns: u64,
    /// When the reply was handed to the transport; 0 if not yet.
    pub mark_ns: u64,
    /// Bytes of goroutine stack in use at the start.
    pub depth: u32,
    /// `CALL_*` bits.
    pub flags: u32,
    /// Is its goroutine still there?
    pub liveness: Liveness,
    /// With `CALL_PARKS`: [`ParkerFact::parked_ns`] when it began; how long it was parked once it has replied.
    #[serde(default)]
    pub parked_ns: u64,
    /// The same of [`ParkerFact::short_ns`].
    #[serde(default)]
    pub short_ns: u64,
    /// The same of [`ParkerFact::parks`].
    #[serde(default)]
    pub parks: u32,
    /// Stream of HTTP/2 as which it was sent, or came in; 0 when not known.
    #[serde(default)]
    pub stream: u32,
}

/// Is the goroutine of an open call still there?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// The `runtime.g` was read: same goroutine, not dead.
    Alive,
    /// The `runtime.g` is dead or another goroutine now: the call is over, its end was not seen.
    Over,
    /// Could not be asked.
    Unknown,
}

/// A goroutine inside a call, as the kernel keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkerFact {
    /// Process.
    pub tgid: u32,
    /// Goroutine id.
    pub goid: u64,
    /// Sum of its parks that are over.
    pub parked_ns: u64,
    /// The part of `parked_ns` in parks without records of their own.
    pub short_ns: u64,
    /// Number of its parks that are over.
    pub parks: u32,
    /// Since when it is parked; 0 while it is not.
    pub since_ns: u64,
    /// Index of the hook on `runtime.gopark`; tells the executable.
    pub hook: u32,
    /// The runtime's number of the wait reason.
    pub reason: u32,
    /// Return addresses relative to the start of the code, innermost first; empty while it is not parked.
    pub stack: Vec<u64>,
}

/// Names for addresses of one executable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolsFact {
    /// Index of the hook on `runtime.gopark`; tells the executable.
    pub hook: u32,
    /// What the addresses are in.
    pub names: Vec<SymbolFact>,
}

/// The function of one return address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolFact {
    /// The address relative to the start of the code.
    pub offset: u64,
    /// Full Go name; empty when no function is there.
    pub name: String,
}
