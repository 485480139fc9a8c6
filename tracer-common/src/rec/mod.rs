//! The records of the ring buffer, one file per family.

mod bus;
mod call;
mod docker;
mod park;
mod process;
mod request;
mod wire;

pub use bus::BusRec;
pub use call::{
    CALL_BY_REPLY, CALL_FAILED, CALL_OK, CALL_PARKS, CALL_REPLIED, CALL_RESTARTED, CALL_UNWOUND, CallRec,
};
pub use docker::DockerRec;
pub use park::{PARK_FRAMES, ParkRec};
pub use process::{
    ARGV_HEAD, ARGV_TAIL, Copied, ENV_PART, EXEC_ARGV_UNREADABLE, EXEC_ENV_UNREADABLE, ExecEnvRec, ExecRec,
    PROCESS_AGAIN, PROCESS_ASKS_DOCKER, PROCESS_CRUN, PROCESS_EXECED, PROCESS_FOR_CONTAINER, PROCESS_INIT,
    ProcessRec,
};
pub use request::{
    BLOCK_CUT, BLOCK_FIRST, BLOCK_FROM_START, BLOCK_LAST, BLOCK_OTHER, BLOCK_TRAILERS, BlockRec, RequestRec,
    WORDLESS, how,
};
pub use wire::MessageRec;
