//! Waiting on a condition with a deadline. Emulation is many times slower than a real machine, so there is one
//! generous budget for everything and no sleep that guesses.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Enough for anything that happens at all under emulation.
pub const BUDGET: Duration = Duration::from_secs(90);

const POLL: Duration = Duration::from_millis(50);

/// Polls `condition` until it gives a value. `what` completes the sentence "waited 90 s for ...".
///
/// # Errors
/// When the budget is used up; the last error of the condition is part of the message.
pub fn until<T>(what: &str, budget: Duration, mut condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        let seen = condition();
        if let Ok(Some(value)) = seen {
            return Ok(value);
        }
        if begin.elapsed() > budget {
            let last = seen.err().map_or_else(String::new, |error| format!(", last: {error:#}"));
            bail!("waited {} s for {what}{last}", budget.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// What a command prints; it is killed when the budget is used up.
///
/// # Errors
/// When it cannot be started, fails or is late.
pub fn output(command: &mut Command, budget: Duration) -> Result<String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?;
    let ended = until(&shown, budget, || Ok(child.try_wait()?));
    if let Err(late) = ended {
        child.kill().with_context(|| format!("cannot kill {shown}"))?;
        child.wait()?;
        return Err(late);
    }
    let out = child.wait_with_output()?;
    if !out.status.success() {
        bail!("{} from {shown}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A condition that never holds ends with what was awaited and why it did not hold.
    #[test]
    fn a_late_condition_is_named() {
        let never = || -> Result<Option<()>> { bail!("not there") };
        let error = until("the socket", Duration::from_millis(1), never).unwrap_err().to_string();
        assert_eq!(error, "waited 0 s for the socket, last: not there");
    }

    /// A command that hangs does not hang the test.
    #[test]
    fn a_hanging_command_is_killed() {
        let mut command = Command::new("sleep");
        assert!(output(command.arg("1000"), Duration::from_millis(100)).is_err());
        assert_eq!(output(Command::new("echo").arg("x"), BUDGET).unwrap(), "x\n");
    }
}
