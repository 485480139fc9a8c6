//! `plegtrace top`: what is in flight, on a terminal, until a person has seen enough.

use super::{CommandError, output};
use crate::{
    cli::Settings,
    engine,
    exit::Exit,
    top::{Screen, Top},
    watch::Flight,
};

/// Memory of the recording that `s` saves, bytes, packed: minutes of a busy node.
const FLIGHT: usize = 6 << 20;

/// Observes and draws.
///
/// # Errors
///
/// plegtrace cannot run here, or there is no terminal.
pub(crate) fn run(settings: &Settings) -> Result<Exit, CommandError> {
    Screen::is_possible()?;
    // The terminal is the screen's: progress would be written across it.
    let settings = &Settings { quiet: true, ..settings.clone() };
    let mode = engine::ready(settings)?;
    let screen = Screen::start(Flight::new(FLIGHT), output::colour(settings.color, true))?;
    engine::watch(settings, mode, &mut Top::new(screen))?;
    Ok(Exit::Healthy)
}
