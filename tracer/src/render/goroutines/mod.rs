//! What `plegtrace goroutines` prints: what every goroutine of a Go process does, those that are alike together.
//!
//! The JSON document has `schema_version` 1 and follows the conventions of [`json`](mod@super::json):
//!
//! | field | content |
//! |---|---|
//! | `schema_version`, `tool_version`, `node` | as in the report |
//! | `taken_at` | moment when reading began |
//! | `took_ns` | how long reading took |
//! | `pid`, `component`, `exe`, `go_version` | the process; `component` is `helper` when it is none that we know |
//! | `total`, `unread` | goroutines that exist; of these, those that changed whenever they were read, or were not reached |
//! | `groups` | the largest first: `count`, `goids` (ascending, at most 32), `state` (`running`, `runnable`, `syscall`, `waiting`, `preempted`, `leaked`), `wait_reason`, `waiting_ns` (how long one of them waits at least; `null`: not known), `frames` (Go functions, innermost first, at most 100), `broken` (why the stack could not be followed to its end) |
//! | `groups_left_out` | groups that are not in the document because there were too many |
//! | `last_list_age_ns` | of a kubelet: how long ago the last relist began that got its list, by the kubelet's own clock; `null`: not known |
//! | `rss_peak_bytes` | highest resident memory of plegtrace until it wrote this |

mod json;
mod text;
mod view;

pub use json::json;
pub use text::text;
pub use view::GoroutinesView;

#[cfg(test)]
mod sample;
