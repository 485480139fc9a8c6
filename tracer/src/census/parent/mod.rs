//! The parent's side of the census: which questions are asked, in which order, for how long, and what becomes of a child
//! that is late.

mod calls;
mod conversation;
mod keeper;
mod merge;
mod pool;
mod request;
mod round;
mod worker;

pub use calls::ask_all;
pub use conversation::HANGS;
pub use keeper::is_our_child;
pub use pool::{Usage, end_idle, usage};
pub use request::{Limits, Request};
pub use round::{Census, command_lines, round, search_path};
pub use worker::{CHILD_COMMAND, this_program};
