//! [`Exporter`]: sends what `watch` sees. A collector that is down or slow keeps nobody waiting.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Request, send};
use crate::{chain::chain, cli::Collector};

/// The last traces may take so long.
const LAST: Duration = Duration::from_secs(1);

/// A thread that sends one batch at a time. What comes while one is sent and another waits is left out, and counted.
#[derive(Debug)]
pub(crate) struct Exporter {
    batches: Option<SyncSender<Vec<Request>>>,
    thread: JoinHandle<()>,
    left_out: u64,
}

impl Exporter {
    /// Starts the thread; it connects to nobody yet.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub(crate) fn start(collector: Collector) -> io::Result<Self> {
        let (batches, inbox) = sync_channel(1);
        let thread =
            thread::Builder::new().name("otlp".to_owned()).spawn(move || serve(&collector, &inbox))?;
        Ok(Self { batches: Some(batches), thread, left_out: 0 })
    }

    /// Sends it when its turn comes. Waits for nobody.
    pub(crate) fn send(&mut self, batch: Vec<Request>) {
        let Some(batches) = self.batches.as_ref().filter(|_| !batch.is_empty()) else { return };
        if let Err(TrySendError::Full(_)) = batches.try_send(batch) {
            self.left_out += 1;
            tracing::warn!("the collector of --otlp is slow: traces left out {} times so far", self.left_out);
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.batches.take());
        let until = Instant::now() + LAST;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The same trouble, once a minute for months, is one line when it begins and one when it is over.
fn serve(collector: &Collector, inbox: &Receiver<Vec<Request>>) {
    let mut in_trouble = false;
    for batch in inbox {
        match send(collector, batch) {
            Err(error) if !in_trouble => {
                in_trouble = true;
                tracing::warn!("cannot send traces: {}", chain(&error));
            }
            Ok(sent) if sent.rejected > 0 => {
                tracing::warn!("the collector of --otlp rejected {} of {} spans", sent.rejected, sent.spans);
            }
            Ok(_) if in_trouble => {
                in_trouble = false;
                tracing::warn!("traces are sent again");
            }
            Err(_) | Ok(_) => {}
        }
    }
}
