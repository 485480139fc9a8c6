//! Turns blocking calls into futures on a runtime of one thread. That thread always runs, so that pings are answered
//! and the reset of a cancelled stream leaves at once, as it does from a kubelet.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread that drives one client's connection; ends when dropped.
#[derive(Debug)]
pub(super) struct Driver {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(super) fn start() -> io::Result<Driver> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("lab-cri".to_owned()).spawn(move || {
            // An error is a dropped sender, which means stop as well.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Driver { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits for `future`, whose sockets and timers the driver's thread serves.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Runs `make` where futures may be spawned.
    pub(super) fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        make()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
