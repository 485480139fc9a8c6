//! Does the kernel refuse root another instance of inotify?
//!
//! The descriptors of root's processes do not tell: a daemon may have taken an instance as root and be somebody else since. So one is
//! tried and given back at once, but only when there seems to be little left.

use std::{
    io,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
};

/// `None` when that could not be tried.
pub(super) fn is_refused() -> Option<bool> {
    match instance() {
        Ok(_) => Some(false),
        // The same error comes from a limit of our own descriptors.
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => has_room().then_some(true),
        Err(_) => None,
    }
}

fn instance() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is ours, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Can we have another descriptor?
fn has_room() -> bool {
    io::stderr().as_fd().try_clone_to_owned().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there are enough nobody is refused one, and there is room for descriptors.
    #[test]
    fn one_is_given() {
        assert_eq!((is_refused(), has_room()), (Some(false), true));
    }
}
