//! A [`Snapshot`](crate::correlate::Snapshot) → text for people ([`text`]) or one JSON document ([`json`]);
//! a [`DoctorView`](doctor::DoctorView) → the same two forms; a [`Flame`](crate::flame::Flame) → folded text or a picture
//! ([`flame`]); a [`Timeline`](crate::timeline::Timeline) → a trace ([`perfetto`]).
//!
//! Pure: writes to a `Write`, decides nothing about colour or terminals, computes no findings of its own. This is the
//! border where texts of the node, which are hostile, are made harmless ([`escape`]).

pub mod doctor;
pub mod escape;
pub mod explain;
mod failing;
pub mod flame;
pub mod goroutines;
pub mod history;
pub mod json;
mod judgement;
mod leaves;
mod paint;
pub mod perfetto;
mod screen;
mod table;
pub mod text;
mod watched;
mod wrap;

pub use crate::words::human;
