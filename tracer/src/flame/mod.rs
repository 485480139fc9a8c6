//! Where the wall time of relists and requests went: trees of [`span`](crate::span) folded into stacks.
//!
//! A stack begins with what was asked for (a relist, or a CRI method), goes down the chain call by call and program by
//! program as far as both sides were brought together, and ends with what happened there: a goroutine ran, or waited with
//! this stack; a program ran, or is in the kernel at this place; or nobody measured it. The widths of all stacks add up to the wall time of everything that was
//! folded, to the nanosecond.

mod fold;
mod frame;
mod late;

pub use fold::{Flame, Stack};
pub use frame::{Frame, Kind};
