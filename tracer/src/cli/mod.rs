//! The command line: what was typed, and what it means.

mod args;
mod settings;
mod size;

pub use args::{Args, Attach, Color, Command, Common, Family, Output, RecordOptions, Source};
pub use settings::{Settings, SettingsError};
