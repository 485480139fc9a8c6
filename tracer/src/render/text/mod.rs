//! The report for people: the first screen (`screen`), then for whoever asks what it rests on, the tables, and last what
//! was not seen.
//!
//! At most 120 columns, readable at 80; long lists are cut and say by how much. One file per section, in the order of the
//! page.

mod bus;
mod by_hand;
mod details;
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

pub use open::{OpenLine, lines as open_calls};
pub use page::{Section, Shown, TextOptions, report};

pub use super::screen::headline;
