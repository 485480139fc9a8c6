//! `plegtrace watch`: observes until it is told to end.

use super::CommandError;
use crate::{
    cli::{Settings, SocketBackend, WatchOptions},
    engine,
    exit::Exit,
    otlp::Exporter,
    watch::{Metrics, OnVerdict, Plan, Watch},
};

/// Memory of the flight recorder, bytes, packed: minutes of a busy node.
const FLIGHT: usize = 6 << 20;

/// Observes, and writes windows to the directory. For months a probe on every system call is too much: where `wire` needs that,
/// it has to be asked for.
///
/// # Errors
///
/// plegtrace cannot run here, the directory cannot be written to, the address of the metrics is taken, or there is no
/// such command.
pub(crate) fn run(options: &WatchOptions, settings: &Settings) -> Result<Exit, CommandError> {
    let socket_backend = if settings.wire_named { settings.socket_backend } else { SocketBackend::Functions };
    let settings = &Settings { socket_backend, ..settings.clone() };
    // A mistake is an error now, and not at the first stall.
    let command =
        (!options.on_verdict.is_empty()).then(|| OnVerdict::start(&options.on_verdict)).transpose()?;
    let mode = engine::ready(settings)?;
    let plan = Plan {
        dir: options.dir.dir.clone(),
        window: options.window,
        history_bytes: options.history_size,
        history_age: options.history_age,
        evidence_bytes: options.evidence_size,
        flight_bytes: FLIGHT,
    };
    let metrics = options.metrics.map(Metrics::serve).transpose()?;
    let exporter = settings.otlp.clone().map(Exporter::start).transpose().map_err(CommandError::Thread)?;
    let mut watch = Watch::new(plan, metrics, command, exporter)?;
    engine::watch(settings, mode, &mut watch)?;
    Ok(Exit::Healthy)
}
