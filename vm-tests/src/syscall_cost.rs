//! How long system calls take: printed as `VM-STAT` lines, in nanoseconds. Under emulation they tell proportions only.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::Result;

/// Calls in a row, and how often: the fastest row counts.
const IN_A_ROW: u32 = 2_000;
const ROWS: u32 = 10;
/// Calls of [`one_that_is_about_no_socket`].
pub const CALLS: u64 = (IN_A_ROW * ROWS) as u64;

/// Measures a call that is about no socket, and one that writes to a socket with one that reads from it.
///
/// # Errors
/// When there is no socket to be had.
pub fn print(name: &str) -> Result<()> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let mut byte = [0];
    println!("VM-STAT getppid.{name} {}", one_that_is_about_no_socket()?);
    let exchange = || {
        ours.write_all(b"x")?;
        Ok(theirs.read_exact(&mut byte)?)
    };
    println!("VM-STAT write_and_read.{name} {}", fastest(exchange)?);
    Ok(())
}

/// Nanoseconds of `getppid`.
///
/// # Errors
/// None.
pub fn one_that_is_about_no_socket() -> Result<u64> {
    fastest(|| {
        // SAFETY: no arguments, no memory.
        unsafe { libc::syscall(libc::SYS_getppid) };
        Ok(())
    })
}

/// Nanoseconds per call in the fastest row.
fn fastest(mut call: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut best = u64::MAX;
    for _ in 0..ROWS {
        let began = Instant::now();
        for _ in 0..IN_A_ROW {
            call()?;
        }
        best = best.min(began.elapsed().as_nanos() as u64 / u64::from(IN_A_ROW));
    }
    Ok(best)
}
