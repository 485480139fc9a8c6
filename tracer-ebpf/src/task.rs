//! Reads fields of kernel structures at the offsets the loader resolved from BTF.

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_probe_read_kernel, bpf_probe_read_user,
    generated::{bpf_get_current_task_btf, bpf_task_pt_regs},
};
use plegtrace_common::{reason::Reason, site::SiteKey};

use crate::settings::setting;

/// A value of type `T` at `base + offset` in kernel memory.
#[inline(always)]
pub(crate) fn kernel<T>(base: u64, offset: u32) -> Result<T, Reason> {
    let at = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address and fails cleanly.
    unsafe { bpf_probe_read_kernel(at) }.map_err(|_| Reason::KernelUnreadable)
}

/// A word at `address` in the memory of the current process.
#[inline(always)]
pub(crate) fn user_word(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address and fails cleanly; it does not fault pages in.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Half a word at `address` in the memory of the current process.
#[inline(always)]
pub(crate) fn user_half(address: u64) -> Option<u32> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_user(address as *const u32) }.ok()
}

/// The current `task_struct`.
#[inline(always)]
pub(crate) fn current() -> u64 {
    // SAFETY: no arguments; always valid in a program of these types.
    unsafe { bpf_get_current_task() }
}

/// Address of the registers with which the current thread entered the kernel (Linux 5.15).
#[inline(always)]
pub(crate) fn registers() -> u64 {
    // SAFETY: the first has no arguments, and the second takes what it gives.
    unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as u64 }
}

/// Thread pointer of the current thread (amd64: FS base).
#[inline(always)]
pub(crate) fn thread_pointer() -> Result<u64, Reason> {
    let offset = setting!(task_tp);
    if offset == 0 {
        return Err(Reason::GoroutineUnreadable);
    }
    kernel(current(), offset)
}

/// Where the code of the current process begins (`mm->start_code`).
#[inline(always)]
pub(crate) fn start_code() -> Result<u64, Reason> {
    let mm: u64 = kernel(current(), setting!(task_mm))?;
    kernel(mm, setting!(mm_start_code))
}

/// Inode number of the pid namespace in which the children of the current process are born: its own, except between an
/// `unshare(2)` and the next fork.
#[inline(always)]
pub(crate) fn pid_namespace() -> Result<u32, Reason> {
    let proxy: u64 = kernel(current(), setting!(task_nsproxy))?;
    let namespace: u64 = kernel(proxy, setting!(nsproxy_pid_ns))?;
    kernel(namespace, setting!(pid_ns_inum))
}

/// The mount namespace of a task, by the address of its structure.
#[inline(always)]
pub(crate) fn mounts(task: u64) -> Result<u64, Reason> {
    let proxy: u64 = kernel(task, setting!(task_nsproxy))?;
    kernel(proxy, setting!(nsproxy_mnt_ns))
}

/// Which site of which executable the instruction at `ip` is.
#[inline(always)]
pub(crate) fn site_key(ip: u64) -> Result<SiteKey, Reason> {
    let mm: u64 = kernel(current(), setting!(task_mm))?;
    let file: u64 = kernel(mm, setting!(mm_exe_file))?;
    let inode: u64 = kernel(file, setting!(file_inode))?;
    let sb: u64 = kernel(inode, setting!(inode_sb))?;
    let start_code: u64 = kernel(mm, setting!(mm_start_code))?;
    let dev: u32 = kernel(sb, setting!(sb_dev))?;
    Ok(SiteKey {
        inode: kernel(inode, setting!(inode_ino))?,
        offset: ip.wrapping_sub(start_code),
        dev: u64::from(dev),
    })
}
