//! The command line: what was typed, and what it means.

mod args;
mod settings;

pub use args::{Args, Attach, Color, Command, Common, Family, Output, Source};
pub use settings::{Settings, SettingsError};
