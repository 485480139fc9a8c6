//! One run of a command: from its start to its end, and the end of all in its process group.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::ioctl_fionbio,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};

use super::{CommandLine, command::PATH};

/// Bytes of its stderr that are kept: the beginning names the cause.
const SAID: usize = 400;
/// Of what it writes, taken at once at most.
const PIECE: usize = 64 << 10;
/// From one look to the next.
const TICK: Duration = Duration::from_millis(20);

/// Runs the command to its end; kills it at the deadline, which may come nearer meanwhile. One that does not die of that
/// is waited for: there are never two.
pub(super) fn run(
    command: &CommandLine,
    document: &[u8],
    deadline: &dyn Fn() -> Instant,
) -> Result<(), String> {
    let begin = Instant::now();
    let mut child = start(command, document).map_err(|error| format!("cannot be started: {error}"))?;
    let pid = Pid::from_child(&child);
    let (mut said, mut killed) = (Vec::new(), None);
    let ended = loop {
        listen(&mut child, &mut said);
        match has_ended(pid) {
            Ok(false) => {}
            Ok(true) => break end(&mut child, pid),
            Err(error) => break Err(error),
        }
        if killed.is_none() && Instant::now() >= deadline() {
            tracing::warn!("the command of --on-verdict runs for too long and is killed");
            killed = Some(begin.elapsed());
            // It has not been reaped, so the number is its own.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        thread::sleep(TICK);
    };
    listen(&mut child, &mut said);
    let why = match (ended, killed) {
        (Err(error), _) => format!("cannot be waited for: {error}"),
        (_, Some(after)) => format!("killed after {:.1} s", after.as_secs_f64()),
        (Ok(status), None) if status.success() => return Ok(()),
        (Ok(status), None) => status.to_string(),
    };
    let said = String::from_utf8_lossy(&said);
    Err(if said.is_empty() { why } else { format!("{why}: {}", said.trim_end()) })
}

/// The document comes from a file in memory: a pipe has to be filled while it is read, or not read.
fn start(command: &CommandLine, document: &[u8]) -> io::Result<Child> {
    let mut stdin = File::from(memfd_create("verdict", MemfdFlags::CLOEXEC)?);
    stdin.write_all(document)?;
    stdin.rewind()?;
    let mut process = Command::new(&command.program);
    process.args(&command.arguments).env_clear().env("PATH", PATH).current_dir("/").process_group(0);
    let child = process.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(stderr) = &child.stderr {
        ioctl_fionbio(stderr, true)?;
    }
    Ok(child)
}

/// Takes what it has written, and keeps the beginning.
fn listen(child: &mut Child, said: &mut Vec<u8>) {
    let Some(stderr) = &mut child.stderr else { return };
    let mut piece = vec![0; PIECE];
    match stderr.read(&mut piece) {
        Ok(length) => said.extend(piece[..length].iter().take(SAID.saturating_sub(said.len()))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(_) => child.stderr = None,
    }
}

/// Without reaping it: until then nothing else can have its number.
fn has_ended(pid: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

/// Kills what it has left in its group, and reaps it.
fn end(child: &mut Child, pid: Pid) -> io::Result<ExitStatus> {
    let _ = kill_process_group(pid, Signal::KILL);
    child.wait()
}
