//! `plegtrace check`: one line, from the state that `watch` wrote. Reads one file and nothing else.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use super::CommandError;
use crate::{
    clock,
    exit::Exit,
    render::escape,
    watch::{Answer, STATE, State, Status},
};

/// A larger file is none of ours, bytes.
const MOST: u64 = 1 << 20;

/// Says what the state means now.
///
/// # Errors
///
/// stdout cannot be written.
pub(crate) fn run(dir: &Path) -> Result<Exit, CommandError> {
    let mono_ns = clock::monotonic_ns();
    let unix_ns = i64::try_from(mono_ns).unwrap_or(i64::MAX).saturating_add(clock::realtime_offset_ns());
    let answer = match read(&dir.join(STATE)) {
        Ok(state) => state.answer(mono_ns, unix_ns),
        Err(why) => Answer::new(Status::Unknown, &format!("unknown: {}", escape::line(&why.to_string()))),
    };
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", answer.line).and_then(|()| stdout.flush()).map_err(CommandError::Write)?;
    Ok(match answer.status {
        Status::Ok => Exit::Healthy,
        Status::Problem => Exit::Stall,
        // 2, as node-problem-detector wants it.
        Status::Unknown => Exit::Usage,
    })
}

fn read(path: &Path) -> io::Result<State> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("no state; is plegtrace watch running?"),
        _ => error,
    })?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|_| io::Error::other("the state cannot be understood"))
}
