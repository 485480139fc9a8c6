//! Turns a `std::process::Command` into a result: on failure the error shows the exact command line, with the
//! environment that was set for it, ready to be pasted into a shell.
//!
//! Everything xtask starts goes through here, so no command can fail without being named.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// An end that has already been explained: `main` only passes on the exit code.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u8);

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Runs a command with our own standard streams.
///
/// # Errors
/// When the command cannot be started or ends with anything but success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    check(command, status)
}

/// Runs a command with our own standard streams and hands back how it ended.
///
/// # Errors
/// When the command cannot be started.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot start `{}`", shown(command)))
}

/// Runs a command and returns what it printed on standard output; its standard error is part of the failure.
///
/// # Errors
/// When the command cannot be started or ends with anything but success.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{} from `{}`\n{}", ending(out.status), shown(command), tail(&text, 20));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs a command with both output streams in a file, for output that only matters when it fails.
///
/// # Errors
/// When the log cannot be written or the command cannot be started.
pub(crate) fn logged(command: &mut Command, log: &Path) -> Result<ExitStatus> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let twin = file.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
    status(command.stdin(Stdio::null()).stdout(file).stderr(twin))
}

/// As [`logged`], but anything but success is an error that carries the end of the log.
///
/// # Errors
/// As [`logged`], and when the command fails.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let status = logged(command, log)?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    bail!(
        "{} from `{}`\n{}\n(whole output: {})",
        ending(status),
        shown(command),
        tail(&text, 30),
        log.display()
    );
}

/// Turns an exit status into a result.
///
/// # Errors
/// When the status is not success.
pub(crate) fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("{} from `{}`", ending(status), shown(command));
}

/// A command line as one would type it, environment first.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(dir) = command.get_current_dir() {
        words.push(format!("cd {} &&", quoted(dir.as_os_str())));
    }
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", key.to_string_lossy(), quoted(value)));
        }
    }
    words.push(quoted(command.get_program()));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The path of a program, looked up as a shell would, with the administrator's directories at the end.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// Whether we are root, that is, need no sudo.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A command that runs as root: the program itself when we are root, else through sudo.
///
/// # Errors
/// When we are not root and there is no sudo.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    let Some(sudo) = which("sudo") else {
        bail!("{} needs root: run this command as root, or install sudo", program.as_ref().display());
    };
    let mut command = Command::new(sudo);
    command.arg(program);
    Ok(command)
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown end".to_owned(),
    }
}

fn quoted(word: &OsStr) -> String {
    let word = OsString::from(word).to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure names the command, its environment and its arguments, quoted for a shell.
    #[test]
    fn failure_shows_the_command() {
        let mut command = Command::new("false");
        command.env("A", "two words").arg("x y").arg("-z");
        let error = run(&mut command).unwrap_err().to_string();
        assert_eq!(error, "exit code 1 from `A='two words' false 'x y' -z`");
    }

    /// A program that does not exist is named too.
    #[test]
    fn missing_program_is_named() {
        let error = run(&mut Command::new("plegtrace-no-such-program")).unwrap_err().to_string();
        assert!(error.contains("cannot start `plegtrace-no-such-program`"), "{error}");
    }

    /// The tail keeps the end, whole when it is short.
    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
    }
}
