//! The report for people: the verdict first, then what it rests on, last what was not seen.
//!
//! Made to be read at three in the morning on a narrow terminal: at most 120 columns, readable at 80; long lists are cut
//! and say by how much. One file per section, in the order of the page.

mod bus;
mod by_hand;
mod finding;
mod frame;
mod messages;
mod open;
mod other_clients;
mod page;
mod processes;
mod relists;
mod requests;
mod rpc;
mod stuck;
mod time;
mod tree;
mod unseen;
mod verdict;

pub(in crate::render) use page::fold;
pub use page::{TextOptions, report};
pub use verdict::headline;
