//! What each of the capabilities is for that the reader of the census keeps: without it, something cannot be read of a process
//! of another user.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use plegtrace_lab::{host, process};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

const LIMIT: Duration = Duration::from_secs(20);
/// Nobody on this machine.
const USER: u32 = 12_345;

/// A process of that user. Killed when dropped.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads with these capabilities, in a thread of its own: capabilities belong to threads.
fn with(capabilities: CapabilitySet, read: fn(u32) -> bool, pid: u32) -> bool {
    let thread = std::thread::spawn(move || {
        let sets = CapabilitySets {
            effective: capabilities,
            permitted: capabilities,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).unwrap();
        read(pid)
    });
    thread.join().unwrap()
}

fn has_text(path: &str) -> bool {
    fs::read(path).is_ok_and(|bytes| !bytes.is_empty())
}

fn exe(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn descriptors(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|entries| entries.count() > 0)
}

fn call(pid: u32) -> bool {
    has_text(&format!("/proc/{pid}/syscall"))
}

/// Is it in the call that `sleep` ends in?
fn sleeps(pid: u32) -> bool {
    let call = format!("{} ", libc::SYS_clock_nanosleep);
    fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|text| text.starts_with(&call))
}

fn stack(pid: u32) -> bool {
    has_text(&format!("/proc/{pid}/stack"))
}

fn addresses(_: u32) -> bool {
    fs::read_to_string("/proc/kallsyms").is_ok_and(|text| !text.starts_with("0000000000000000 "))
}

/// With all four everything can be read; each of them is the one that something needs.
#[test]
fn each_of_the_reader_s_is_needed() {
    const KEPT: CapabilitySet = CapabilitySet::SYS_PTRACE
        .union(CapabilitySet::DAC_READ_SEARCH)
        .union(CapabilitySet::SYS_ADMIN)
        .union(CapabilitySet::SYSLOG);
    host::require_root().unwrap();
    let stranger = Stranger(Command::new("sleep").arg("600").uid(USER).gid(USER).spawn().unwrap());
    let pid = stranger.0.id();
    // A process that runs has no kernel stack: it must have come to its sleep, past the waits of its start.
    process::wait_for("a stranger that sleeps", LIMIT, || Ok(sleeps(pid).then_some(()))).unwrap();
    for (what, needs, read) in [
        ("exe", CapabilitySet::SYS_PTRACE, exe as fn(u32) -> bool),
        ("system call", CapabilitySet::SYS_PTRACE, call),
        ("system call", CapabilitySet::DAC_READ_SEARCH, call),
        ("descriptors", CapabilitySet::DAC_READ_SEARCH, descriptors),
        ("kernel stack", CapabilitySet::SYS_ADMIN, stack),
        ("addresses of kernel functions", CapabilitySet::SYSLOG, addresses),
    ] {
        assert!(with(KEPT, read, pid), "{what} with all of them");
        // With `perf_event_paranoid` below 2, everybody may see addresses (kallsyms_show_value, kernel/ksyms_common.c).
        let open_to_all = needs == CapabilitySet::SYSLOG && with(CapabilitySet::empty(), read, pid);
        assert!(open_to_all || !with(KEPT.difference(needs), read, pid), "{what} without {needs:?}");
    }
}
