//! What a process holds in the kernel: its eBPF programs and perf events, and whether they outlive it.
//! [`maps`] looks into its maps.

pub mod maps;

use std::fs;

use anyhow::{Context as _, Result, ensure};

/// `BPF_PROG_GET_NEXT_ID` of `bpf(2)` (4.13).
const PROG_GET_NEXT_ID: libc::c_int = 11;

/// Numbers of the eBPF programs that descriptors of `pid` refer to; empty when it is gone.
#[must_use]
pub fn programs_of(pid: u32) -> Vec<u32> {
    numbers_of(pid, "prog_id:")
}

/// The different numbers behind `word` in the kernel's description of its descriptors.
fn numbers_of(pid: u32, word: &str) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let number = |text: String| text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    let mut ids: Vec<u32> = texts.filter_map(number).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Number of probes that `pid` holds as perf events, by the links of its descriptors; 0 with uprobe_multi.
#[must_use]
pub fn perf_events_of(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let is_perf = |line: &str| line.strip_prefix("link_type:").is_some_and(|kind| kind.trim() == "perf");
    texts.filter(|text| text.lines().any(is_perf)).count()
}

/// Does the process handle this signal (as opposed to being killed by it)?
///
/// # Errors
///
/// It is gone.
pub fn handles(pid: u32, signal: i32) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read its status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).context("no signal mask")?;
    let mask = u64::from_str_radix(mask.trim(), 16).context("odd signal mask")?;
    Ok(mask & (1 << (signal - 1)) != 0)
}

/// The part of `bpf_attr` that walks over ids.
#[repr(C)]
#[derive(Default)]
struct NextId {
    start_id: u32,
    next_id: u32,
    open_flags: u32,
}

/// Is the program of this number still loaded?
///
/// # Errors
///
/// The kernel cannot be asked.
pub fn is_loaded(program: u32) -> Result<bool> {
    let mut attr = NextId { start_id: program - 1, ..NextId::default() };
    // SAFETY: the attribute is alive for the call and as long as we say.
    let done = unsafe { libc::syscall(libc::SYS_bpf, PROG_GET_NEXT_ID, &raw mut attr, size_of::<NextId>()) };
    let error = std::io::Error::last_os_error();
    ensure!(done == 0 || error.raw_os_error() == Some(libc::ENOENT), "cannot list eBPF programs: {error}");
    Ok(done == 0 && attr.next_id == program)
}
