//! Ctrl-C and SIGTERM: end early, but end with a report.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end observing.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Takes the signals over.
    ///
    /// # Errors
    ///
    /// The runtime has no signal driver.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
