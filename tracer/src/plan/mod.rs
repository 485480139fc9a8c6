//! What we intend to attach: pure data, made from facts about the node and the catalogue.

mod planned;

pub use planned::{Plan, PlannedBinary, PlannedSite};
