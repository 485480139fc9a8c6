//! `plegtrace man`: the manual pages, made of what `--help` says.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use clap::CommandFactory;
use clap_mangen::Man;

use super::CommandError;
use crate::{cli::Args, exit::Exit};

/// Prints the page of plegtrace, or writes all pages to a directory.
///
/// # Errors
///
/// They cannot be written.
pub(crate) fn run(dir: Option<&Path>) -> Result<Exit, CommandError> {
    let pages = pages().map_err(CommandError::Write)?;
    match dir {
        Some(dir) => {
            for (name, page) in &pages {
                fs::write(dir.join(name), page)
                    .map_err(|source| CommandError::Manual { dir: dir.to_owned(), source })?;
            }
        }
        None => {
            let mut out = io::stdout().lock();
            let page = pages.first().map_or(&[][..], |(_, page)| page);
            out.write_all(page).and_then(|()| out.flush()).map_err(CommandError::Write)?;
        }
    }
    Ok(Exit::Healthy)
}

/// File name and text of each page, that of plegtrace itself first.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let commands: Vec<clap::Command> = shown.collect();
    std::iter::once(command)
        .chain(commands)
        .map(|command| {
            let man = Man::new(command).manual("plegtrace");
            let mut page = Vec::new();
            man.render(&mut page)?;
            Ok((man.get_filename(), page))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page for plegtrace and for each command that `--help` shows, with its options.
    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        assert_eq!(pages[0].0, "plegtrace.1");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        let shown = Args::command().get_subcommands().filter(|command| !command.is_hide_set()).count();
        assert_eq!(names.len(), shown + 1, "{names:?}");
        assert!(!names.contains(&"plegtrace-census-child.1"));
        let (_, watch) = pages.iter().find(|(name, _)| name == "plegtrace-watch.1").unwrap();
        let watch = std::str::from_utf8(watch).unwrap();
        assert!(watch.contains("history\\-size"), "{watch}");
    }

    /// All of them go to the directory; one that does not exist is named.
    #[test]
    fn pages_are_written_to_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        run(Some(dir.path())).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), pages().unwrap().len());
        let error = run(Some(&dir.path().join("none"))).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().ends_with("/none"), "{error}");
    }
}
