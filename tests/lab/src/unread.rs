//! What processes have not read from their unix sockets yet.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

/// Bytes that have arrived at the connected unix sockets of a process, all together. Each is asked itself, by a copy of its descriptor
/// (`pidfd_getfd`, Linux 5.6).
///
/// # Errors
///
/// There is no such process, or it cannot be looked at.
pub fn of(pid: u32) -> Result<u64> {
    let process = handle(pid).with_context(|| format!("no handle of process {pid}"))?;
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let is_socket = |path: &std::path::Path| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    let sockets = links.filter(|entry| is_socket(&entry.path()));
    let numbers = sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(|fd| Some(u64::from(unread(&copy(&process, fd).ok()?)?))).sum())
}

fn handle(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// A copy of a descriptor of another process.
fn copy(process: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made it for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `None` of a socket that is not connected, or is no stream.
fn unread(socket: &OwnedFd) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    (done == 0).then(|| u32::try_from(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What was written counts until it is read. Other tests of this process have sockets, too, so only the change is certain.
    #[test]
    fn until_it_is_read() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(&[0; 1000]).unwrap();
        assert!(of(std::process::id()).unwrap() >= 1000);
        assert_eq!(unread(&other.try_clone().unwrap().into()), Some(1000));
        other.read_exact(&mut [0; 400]).unwrap();
        assert_eq!(unread(&other.into()), Some(600));
        assert!(of(u32::MAX / 2).is_err());
    }
}
