//! A process that is called kubelet and asks containerd to remove images. It has no functions that plegtrace knows, so its requests show
//! on their sockets, as those of a kubelet that cannot be probed.

use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};

use crate::cri::{Client, DEADLINE};
use crate::wait;

/// What its file is called.
pub const NAME: &str = "kubelet";

/// One that runs, and ends when this is dropped.
#[derive(Debug)]
pub struct Kubelet {
    child: Child,
    program: PathBuf,
}

impl Kubelet {
    /// Starts it; it asks for nothing yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(images: &[String]) -> Result<Self> {
        let program = PathBuf::from("/var/tmp").join(NAME);
        fs::copy(std::env::current_exe()?, &program).context("cannot copy this program")?;
        let mut command = Command::new(&program);
        let child = command.args(images).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(Self { child: child.context("no kubelet")?, program })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it ask for the removal of all its images at the same time.
    ///
    /// # Errors
    /// When it is gone.
    pub fn ask(&mut self) -> Result<()> {
        drop(self.child.stdin.take().context("it was asked before")?);
        Ok(())
    }

    /// Waits until it has all its answers.
    ///
    /// # Errors
    /// When one does not come, or is an error.
    pub fn answered(mut self) -> Result<()> {
        let status = wait::until("the kubelet's answers", DEADLINE, || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the kubelet ended with {status}");
        Ok(())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_file(&self.program));
    }
}

/// What it does: its arguments are the images, and the end of its input has it ask.
#[must_use]
pub fn main() -> ExitCode {
    match remove_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn remove_all() -> Result<()> {
    let client = Client::connect()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    let images: Vec<String> = std::env::args().skip(1).collect();
    thread::scope(|scope| {
        let asked: Vec<_> = images.iter().map(|image| scope.spawn(|| client.remove_image(image))).collect();
        asked.into_iter().try_for_each(|asked| asked.join().expect("a request does not panic"))
    })
}
