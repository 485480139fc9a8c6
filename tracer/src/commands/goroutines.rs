//! `plegtrace goroutines PID`: what every goroutine of a process does.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::{CommandError, output};
use crate::{
    census::{
        goroutines::{GoroutineError, Limits, Reader},
        own_memory,
    },
    cli::{Output, Settings},
    clock,
    engine::node_and_kernel,
    exit::Exit,
    input::{Component, GoroutinesFact},
    render::goroutines::{self, GoroutinesView},
    target,
};

/// How long reading goes on before it ends with what it has.
const READ: Duration = Duration::from_secs(10);
/// How long we wait for analysis and reading together. A reader that is blocked by then is left behind: the
/// answer is printed all the same, but this process has not ended before the kernel lets the reader go.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads, prints.
///
/// # Errors
///
/// The process cannot be read, does not answer, or stdout cannot be written.
pub(crate) fn run(pid: u32, settings: &Settings) -> Result<Exit, CommandError> {
    let (to, from) = mpsc::channel();
    let reader = move || drop(to.send(look(pid)));
    thread::Builder::new().name("goroutines".to_owned()).spawn(reader).map_err(CommandError::Thread)?;
    let silent = |_| CommandError::NoAnswer { pid, seconds: PATIENCE.as_secs() };
    let (fact, exe) = from.recv_timeout(PATIENCE).map_err(silent)??;
    let (node, _) = node_and_kernel();
    let view = GoroutinesView {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        exe,
        now_ns: fact.at_ns,
        realtime_offset_ns: clock::realtime_offset_ns(),
        rss_peak_bytes: own_memory().1,
        fact,
    };
    write(&view, settings).map_err(CommandError::Write)?;
    Ok(Exit::Healthy)
}

/// What can block.
fn look(pid: u32) -> Result<(GoroutinesFact, String), GoroutineError> {
    let exe = target::exe_of(pid).unwrap_or_default();
    let name = exe.file_name().unwrap_or_default().to_string_lossy();
    let role = target::role_of_program(&name).and_then(Component::of_role);
    let reader = Reader::open(pid, role.unwrap_or(Component::Helper))?;
    let until = clock::monotonic_ns().saturating_add(u64::try_from(READ.as_nanos()).unwrap_or(u64::MAX));
    let fact = reader.read(&Limits::until(until), &clock::monotonic_ns)?;
    Ok((fact, exe.to_string_lossy().into_owned()))
}

fn write(view: &GoroutinesView, settings: &Settings) -> io::Result<()> {
    let stdout = io::stdout();
    let colour = output::colour(settings.color, stdout.is_terminal());
    let mut out = io::BufWriter::new(stdout.lock());
    match settings.output {
        Output::Json => goroutines::json(view, &mut out)?,
        Output::Text | Output::Folded | Output::Svg | Output::Perfetto => {
            goroutines::text(view, colour, &mut out)?;
        }
    }
    out.flush()
}
