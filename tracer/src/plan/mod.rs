//! What we intend to attach: pure data, made from facts about the node and the catalogue.

mod catalogue;
mod planned;
mod planner;
mod row;
mod runc;

pub use catalogue::CATALOGUE;
pub use planned::{Plan, PlannedBinary, PlannedSite};
pub use planner::{BinaryFacts, Budget, CATALOGUE_SOURCE, FoundFunction, FoundSite, Planner, layers_of};
pub use row::{Class, End, HookRole, Mark, Named, Row, Select, StreamTypes, Wanted, WordPlace, wanted};
