//! The records of the ring buffer, one file per family.

mod call;
mod process;

pub use call::{CALL_BY_REPLY, CALL_FAILED, CALL_OK, CALL_REPLIED, CALL_RESTARTED, CALL_UNWOUND, CallRec};
pub use process::ProcessRec;
