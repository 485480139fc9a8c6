//! `plegtrace explain`: the page of a cause, and the list of all.

use std::io::{self, BufWriter, IsTerminal, Write};

use super::{CommandError, output};
use crate::{
    cli::{Output, Settings},
    exit::Exit,
    render::explain::Causes,
};

/// Prints one page, or the list when no id is given.
///
/// # Errors
///
/// There is no such id, or the page cannot be written.
pub(crate) fn run(id: Option<&str>, settings: &Settings) -> Result<Exit, CommandError> {
    let stdout = io::stdout();
    let options = output::options(settings, stdout.is_terminal());
    let mut out = BufWriter::new(stdout.lock());
    let causes = match id {
        Some(id) => Causes::one(id).ok_or_else(|| CommandError::NoSuchCause(id.to_owned()))?,
        None => Causes::all(),
    };
    let written = match (settings.output, id) {
        (Output::Json, _) => causes.json(&mut out),
        (_, Some(_)) => causes.pages(&options, &mut out),
        (_, None) => causes.list(&options, &mut out),
    };
    written.and_then(|()| out.flush()).map_err(CommandError::Write)?;
    Ok(Exit::Healthy)
}
