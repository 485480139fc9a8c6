//! A mount table that is long and changes all the time, as on a node with many pods and exec probes: systemd reads all of it after each
//! change.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::stall::WATCHDOG;

/// From one change to the next: less than systemd takes to read the table, and enough to leave a processor to others.
const PAUSE: Duration = Duration::from_millis(5);
/// What is mounted on itself, many times.
const ROOT: &str = "/var/tmp/plegtrace-mounts";

/// Mounts and unmounts until it is dropped, or for some time. Nothing stays mounted.
#[derive(Debug)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    places: Vec<PathBuf>,
}

impl Storm {
    /// Mounts so many, and goes on with the last one.
    ///
    /// # Errors
    /// When nothing can be mounted.
    pub fn start(mounts: usize) -> Result<Self> {
        ensure!(mounts > 0, "a storm needs a mount");
        let places: Vec<PathBuf> = (0..mounts).map(|n| Path::new(ROOT).join(n.to_string())).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let mut storm = Self { stop: Arc::clone(&stop), thread: None, places: Vec::new() };
        for place in places {
            fs::create_dir_all(&place)?;
            mount(&place).with_context(|| format!("cannot mount {}", place.display()))?;
            storm.places.push(place);
        }
        let last = storm.places[mounts - 1].clone();
        let began = Instant::now();
        let change = move || {
            while !stop.load(Ordering::Relaxed) && began.elapsed() < WATCHDOG {
                // systemd may look at it just now: then it is busy, and the next one goes.
                let _ = unmount(&last).and_then(|()| mount(&last));
                thread::sleep(PAUSE);
            }
        };
        storm.thread = Some(thread::spawn(change));
        Ok(storm)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        for place in &self.places {
            drop(unmount(place));
        }
        drop(fs::remove_dir_all(ROOT));
    }
}

/// The empty folder of one place, bound to itself.
fn mount(place: &Path) -> io::Result<()> {
    let path = c_path(place)?;
    // SAFETY: both paths end with a zero and outlive the call; no type and no data are needed for a bind mount.
    let done = unsafe { libc::mount(path.as_ptr(), path.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn unmount(place: &Path) -> io::Result<()> {
    let path = c_path(place)?;
    // SAFETY: the path ends with a zero and outlives the call.
    let done = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other)
}
