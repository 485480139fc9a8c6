//! The command line: what was typed, and what it means.

mod args;
mod collector;
mod settings;
mod size;
mod span;

pub use args::{
    Args, Attach, Color, Command, Common, Family, Output, RecordOptions, Show, SocketBackend, Source,
    WatchOptions, WindowsDir,
};
pub use collector::{Collector, CollectorError};
pub use settings::{Settings, SettingsError};
