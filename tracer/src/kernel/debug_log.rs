//! [`DebugLog`]: messages of programs that were built with the feature `debug-log` of `tracer-ebpf`, through aya-log.
//!
//! Never in a release object: a message costs more than the probe that writes it.

use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya_log::EbpfLogger;

use super::error::KernelError;

/// Most messages kept between two calls of [`DebugLog::take`].
const MAX_LINES: usize = 4096;

/// Reads the programs' messages.
pub(super) struct DebugLog {
    logger: EbpfLogger<Lines>,
    lines: Lines,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            lines.push(format!("{}", record.args()));
        }
    }

    fn flush(&self) {}
}

impl DebugLog {
    /// Starts reading, when the object has messages at all.
    pub(super) fn start(ebpf: &mut Ebpf) -> Result<Option<Self>, KernelError> {
        if ebpf.map("AYA_LOGS").is_none() {
            return Ok(None);
        }
        let lines = Lines::default();
        let logger = EbpfLogger::init_with_logger(ebpf, lines.clone())
            .map_err(|e| KernelError::DebugLog(e.to_string()))?;
        Ok(Some(Self { logger, lines }))
    }

    /// The messages since the last call.
    pub(super) fn take(&mut self) -> Vec<String> {
        self.logger.flush();
        std::mem::take(&mut *self.lines.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
