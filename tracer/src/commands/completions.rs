//! `plegtrace completions`: what a shell needs to complete the command line.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::CommandError;
use crate::{cli::Args, exit::Exit};

/// Prints the completions for a shell.
///
/// # Errors
///
/// They cannot be written.
pub(crate) fn run(shell: Shell) -> Result<Exit, CommandError> {
    let mut out = io::stdout().lock();
    out.write_all(&script(shell)).and_then(|()| out.flush()).map_err(CommandError::Write)?;
    Ok(Exit::Healthy)
}

/// Made in memory: the generator panics when it cannot write.
fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(), "plegtrace", &mut script);
    script
}

/// The command line without what is hidden, which some generators (bash) would offer.
fn shown() -> Command {
    let all = Args::command();
    let options = all.get_arguments().filter(|option| !option.is_hide_set()).cloned();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    // Among the options is that for the version.
    let bare = Command::new("plegtrace").version(env!("CARGO_PKG_VERSION")).disable_version_flag(true);
    bare.args(options).subcommands(commands)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    /// Every shell is offered the commands; none of them what is hidden.
    #[test]
    fn commands_are_completed_and_hidden_ones_are_not() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for shown in ["goroutines", "history-size", "runtime-endpoint", "version"] {
                assert!(script.contains(shown), "{shell} does not offer {shown}");
            }
            for hidden in ["census-child", "syscall-budget"] {
                assert!(!script.contains(hidden), "{shell} offers {hidden}");
            }
        }
    }
}
