//! The kernel's process connector (`cn_proc`): an observer of forks, execs and exits that shares nothing with eBPF.
//!
//! Source: include/uapi/linux/connector.h, include/uapi/linux/cn_proc.h.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace_lab::process;

const NETLINK_CONNECTOR: libc::c_int = 11;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const MCAST_LISTEN: u32 = 1;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;
/// Offset of `struct proc_event` behind `struct nlmsghdr` and `struct cn_msg`.
const EVENT: usize = 16 + 20;
/// Room for a burst; the kernel tells when it did not suffice.
static BUFFER: libc::c_int = 32 << 20;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessStep {
    /// A process (not a thread) was born.
    Fork {
        /// Who made it.
        parent: u32,
    },
    /// It became another program.
    Exec {
        /// Its command line, when it still had one a moment later.
        arguments: Vec<String>,
    },
    /// It ended.
    Exit,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Process.
    pub pid: u32,
    /// What happened.
    pub what: ProcessStep,
}

/// A running observer.
#[derive(Debug)]
pub struct Connector {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Seen>>>,
}

impl Connector {
    /// Begins to observe all processes of the machine.
    ///
    /// # Errors
    ///
    /// The kernel has no connector (`CONFIG_PROC_EVENTS`), or does not let us.
    pub fn start() -> Result<Connector> {
        let socket = listen().context("cannot listen to the kernel's process connector")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || observe(&socket, &stopped));
        Ok(Connector { stop, thread })
    }

    /// Ends, and gives everything that was seen, in the order of the kernel.
    ///
    /// # Errors
    ///
    /// The kernel had to drop events.
    pub fn finish(self) -> Result<Vec<Seen>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the observer panicked"))?
    }
}

fn listen() -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, NETLINK_CONNECTOR) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zero is a valid address; its fields are set below.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    (address.nl_family, address.nl_groups) = (libc::AF_NETLINK as u16, CN_IDX_PROC);
    let timeout = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
    // SAFETY: both values live during the calls and have the sizes given.
    let done = unsafe {
        let size = |len: usize| len as libc::socklen_t;
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const BUFFER).cast(), size(4));
        let len = size(size_of_val(&timeout));
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const timeout).cast(), len);
        libc::bind(fd, (&raw const address).cast(), size(size_of_val(&address)))
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // nlmsghdr: len, type NLMSG_DONE, flags, seq, pid; cn_msg: idx, val, seq, ack, len, flags; the operation.
    let words = [40u32, 3, 0, 0, CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, MCAST_LISTEN];
    let message: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // SAFETY: the message lives during the call.
    let sent = unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn observe(socket: &OwnedFd, stop: &AtomicBool) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        // SAFETY: the buffer lives during the call and has this size.
        let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if let Ok(len) = usize::try_from(len) {
            seen.extend(event(&buffer[..len])?);
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            // Silence: everything from before the stop has been read.
            Some(libc::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(seen),
            Some(libc::EAGAIN | libc::EINTR) => {}
            Some(libc::ENOBUFS) => bail!("the connector lost events"),
            _ => return Err(io::Error::last_os_error()).context("cannot read the connector"),
        }
    }
}

/// `struct proc_event`: what, cpu, timestamp (8 bytes), then per kind pid and tgid of one or two processes.
fn event(message: &[u8]) -> Result<Option<Seen>> {
    let word = |at: usize| -> Result<u32> {
        let bytes = message.get(EVENT + at..EVENT + at + 4).context("a short message")?;
        Ok(u32::from_ne_bytes(bytes.try_into()?))
    };
    ensure!(message.len() >= EVENT + 24, "a short message");
    let at_ns = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    Ok(match word(0)? {
        FORK if word(24)? == word(28)? => {
            Some(Seen { at_ns, pid: word(28)?, what: ProcessStep::Fork { parent: word(20)? } })
        }
        EXEC => {
            let pid = word(20)?;
            Some(Seen { at_ns, pid, what: ProcessStep::Exec { arguments: process::arguments(pid) } })
        }
        EXIT if word(16)? == word(20)? => Some(Seen { at_ns, pid: word(20)?, what: ProcessStep::Exit }),
        _ => None,
    })
}
