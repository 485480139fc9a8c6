//! What `plegtrace doctor` prints: every check of the preflight, every probe of the plan, everything refused.
//!
//! The JSON document has `schema_version` 1 and follows the conventions of [`json`](super::json):
//!
//! | field | content |
//! |---|---|
//! | `schema_version`, `tool_version`, `node`, `kernel` | as in the report |
//! | `verdict` | `can_run`, `cannot_run`, or `not_known` (a check could not be asked) |
//! | `blocked` | `null`, or why it cannot run: `check`, `sentence`, `hint` |
//! | `checks` | `id`, `what`, `state` (`ok`, `warn`, `fail`, `unknown`), `detail`, `hint`; from basic to special |
//! | `programs` | `component`, `pid` (0: no process runs it all the time), `exe`, `version`, `go_version`, `socket`, `unproved` (why, or `null`), `note`, `hooks` |
//! | `programs[].hooks` | `operation`, `service`, `layer`, `symbol`, `sites`, `prices` (`null`: not known): sites that are `emulated` (about 0.65 µs a hit in a VM) and `single_stepped` (about 9 µs) |
//! | `presence` | traces of components without a process: `component`, `path`, `called` (only when true: the kubelet calls this socket) |
//! | `refused` | `source`, `component`, `what`, `why`, `matters` |

mod json;
mod programs;
mod text;
mod view;

pub use json::json;
pub use programs::{files, programs};
pub use text::text;
pub use view::{DoctorView, HookRow, Prices, ProgramRow, Verdict};

#[cfg(test)]
mod sample;
