//! Does the kernel still compile a seccomp filter for a program without privileges?
//!
//! Machine code of BPF programs takes memory that `net.core.bpf_jit_limit` bounds. How much of it is used the kernel tells
//! nobody; so it is tried, with a filter as long as that of a container, in a thread that has given up its privileges and ends at
//! once. A kernel that does not interpret instead refuses a filter that it cannot compile with an errno that has no name outside of
//! it. Whoever has `CAP_BPF` or `CAP_SYS_ADMIN` is not bound by the limit (`bpf_jit_charge_modmem` in kernel/bpf/core.c).

use std::{fs, io, thread};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use crate::input::SeccompFact;

const LIMIT: &str = "/proc/sys/net/core/bpf_jit_limit";
/// `ENOTSUPP` (include/linux/errno.h).
const NOT_COMPILED: i32 = 524;
/// About as many as the default profile of container runtimes has.
const INSTRUCTIONS: usize = 1000;
/// Instructions (linux/filter.h): load the number of the call, add to it, allow the call.
const LOAD: u16 = 0x20;
const ADD: u16 = 0x04;
const RETURN: u16 = 0x06;
/// Of seccomp(2).
const SET_FILTER: libc::c_long = 1;
const ALLOW: u32 = 0x7fff_0000;

/// Whom it refuses a filter; `None` when nobody, or that could not be tried.
pub(super) fn refused() -> Option<SeccompFact> {
    if !is_refused(false)? {
        return None;
    }
    let spares_root = is_refused(true) == Some(false);
    let limit = fs::read_to_string(LIMIT).ok().and_then(|text| text.trim().parse().ok());
    Some(SeccompFact { limit, spares_root })
}

/// Loads a filter in a thread of its own, with our privileges or with none.
fn is_refused(privileged: bool) -> Option<bool> {
    let load = move || {
        if !privileged {
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .ok()?;
        }
        set_no_new_privs(true).ok()?;
        match load() {
            Ok(()) => Some(false),
            Err(error) => (error.raw_os_error() == Some(NOT_COMPILED)).then_some(true),
        }
    };
    thread::Builder::new().name("seccomp".to_owned()).spawn(load).ok()?.join().ok()?
}

/// Loads a filter that allows everything.
fn load() -> io::Result<()> {
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut filter = vec![step(LOAD, 0)];
    filter.resize(INSTRUCTIONS, step(ADD, 1));
    filter.push(step(RETURN, ALLOW));
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives longer than the call, which copies it.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, SET_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel takes this filter from anybody, and only the thread that loads it has it.
    #[test]
    fn a_filter_is_taken() {
        let own = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let confines =
                |line: &&str| ["Cap", "NoNewPrivs", "Seccomp"].iter().any(|name| line.starts_with(name));
            status.lines().filter(confines).map(str::to_owned).collect::<Vec<_>>()
        };
        let before = own();
        assert_eq!(is_refused(false), Some(false));
        assert_eq!(own(), before);
    }
}
