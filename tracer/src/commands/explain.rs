//! `plegtrace explain`: the page of a cause, and the list of all.

use std::io::{self, BufWriter, IsTerminal, Write};

use super::{CommandError, output};
use crate::{
    cli::{Output, Settings},
    diagnose::rules,
    exit::Exit,
    render::explain,
};

/// Prints one page, or the list when no id is given.
///
/// # Errors
///
/// There is no such id, or the page cannot be written.
pub(crate) fn run(id: Option<&str>, settings: &Settings) -> Result<Exit, CommandError> {
    let chosen = match id {
        Some(id) => {
            vec![rules::by_id(id).ok_or_else(|| CommandError::NoSuchCause(id.to_owned()))?]
        }
        None => rules::ALL.to_vec(),
    };
    let stdout = io::stdout();
    let options = output::options(settings, stdout.is_terminal());
    let mut out = BufWriter::new(stdout.lock());
    let written = match (settings.output, id) {
        (Output::Json, _) => explain::json(&chosen, &mut out),
        (_, Some(_)) => explain::page(chosen[0], &options, &mut out),
        (_, None) => explain::list(&chosen, &options, &mut out),
    };
    written.and_then(|()| out.flush()).map_err(CommandError::Write)?;
    Ok(Exit::Healthy)
}
