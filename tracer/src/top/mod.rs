//! `plegtrace top`: what is in flight now, on a terminal, second by second.
//!
//! The thread that observes draws nothing and writes to no disk: it leaves a [`Picture`] for the thread of the terminal (`screen`),
//! which draws it ([`draw`]), and writes the recording that a person asks for.
//!
//! The cargo feature `top` brings it, which is on by default.

mod draw;
mod picture;
mod screen;
mod watcher;

pub use draw::{draw, text};
pub use picture::Picture;
pub(crate) use screen::Screen;
pub use screen::TopError;
pub(crate) use watcher::Top;
