//! Ctrl-C and SIGTERM: end early, but end with a report. SIGHUP ends a one-shot at once, with its terminal; a service goes on, and
//! `top` ends as by the others.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end observing.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Only of what goes with its terminal, and takes its probes off first.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// Takes the signals over.
    ///
    /// # Errors
    ///
    /// The runtime has no signal driver.
    pub(crate) fn new() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())?, hangup: None })
    }

    /// The same for what runs for months, which SIGHUP does not end: services are asked so to open their files anew, and this
    /// one does so at each write.
    ///
    /// # Errors
    ///
    /// As those of [`Self::new`].
    pub(crate) fn of_a_service() -> io::Result<Self> {
        // From here on the signal has a handler, as long as the process lives.
        let _ = signal(SignalKind::hangup())?;
        Self::new()
    }

    /// The same for what a person looks at, which ends with the terminal.
    ///
    /// # Errors
    ///
    /// As those of [`Self::new`].
    pub(crate) fn of_a_screen() -> io::Result<Self> {
        Ok(Self { hangup: Some(signal(SignalKind::hangup())?), ..Self::new()? })
    }

    /// Waits for one.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}
