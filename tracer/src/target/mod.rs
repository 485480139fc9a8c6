//! Facts about the node's programs: which processes they are, and where their functions can be probed.
//!
//! The only reader of ELF files. Nothing found here is trusted: a process may run any file under any name, so
//! every length is checked against the file before memory is allocated for it, and every doubt ends in a refusal with
//! a reason ([`RefuseReason`], [`SiteRefusal`]) instead of a guess.

mod abi;
mod arch;
mod binary;
mod btf;
mod buildinfo;
mod cmdline;
mod discover;
mod elf;
mod error;
#[cfg(test)]
mod fake_tree;
mod fields;
mod files;
mod foreign;
mod functions;
pub(crate) mod go_type;
mod holders;
mod identity;
#[cfg(test)]
mod impostors_tests;
mod moduledata;
mod node;
mod offsets;
mod owner;
mod pattern;
mod pclntab;
mod pclntab_header;
mod pcvalue;
mod plain_name;
mod process;
mod program;
mod recognise;
mod relocation;
mod search;
mod site;
pub(crate) mod sock_diag;
mod source;
mod symtab;
mod traces;
pub(crate) mod unix_diag;
mod unix_sockets;
#[cfg(test)]
mod unnamed_tests;
mod version;
mod wire_offsets;

pub use abi::{Abi, Convention, GOffsets, GcOffsets};
pub use binary::{GoBinary, Match};
pub use btf::{Btf, BtfError};
pub use buildinfo::{BuildInfo, Module};
pub use cmdline::CommandFacts;
pub(crate) use cmdline::facts as command_facts;
pub use discover::{CommandLines, DiscoverError, Overrides, Recognised, discover, discover_with};
pub use elf::Machine;
pub use error::{RefuseReason, SiteRefusal};
pub use fields::FieldPath;
pub use files::{elsewhere, enter, is_apart, root_of};
pub(crate) use foreign::open_in;
pub use functions::Functions;
pub(crate) use identity::exe_of;
pub use identity::{AnalysedFile, FileId, OnDisk, exe_link, exe_path, on_disk};
pub use node::Node;
pub use offsets::{KernelOffsets, Need};
pub(crate) use owner::{is_somebody_else, owner};
pub use pattern::Pattern;
pub use pclntab::Function;
pub use pclntab_header::Layout;
pub use process::Process;
pub(crate) use process::{
    MAX_CMDLINE, Stat, clock_ticks, is_multi_call, multi_call_role, namespace, parse_stat, read_stat,
    read_whole, role_of_program, split_args, ticks_to_ns,
};
pub use program::{FileVersion, Lease, LeaseEnd, Program, share_mounts};
pub use recognise::is_go;
pub use search::Suspect;
pub use site::{GSource, Price, Site, SiteCheck};
pub use symtab::Witness;
pub use unix_sockets::{UnixSocket, is_bus_path, unix_sockets};
pub use version::GoVersion;
