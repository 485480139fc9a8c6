//! The `bpf(2)` commands that aya 0.14 does not offer: programs for uprobe_multi, their links, batch reads, the verifier's
//! statistics.

use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use aya_obj::{
    btf::FuncSecInfo,
    generated::{bpf_attach_type, bpf_attr, bpf_cmd, bpf_func_info, bpf_insn, bpf_prog_type},
};

/// `BPF_TRACE_UPROBE_MULTI` (include/uapi/linux/bpf.h, 6.6).
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
/// Bytes of verifier log asked for when a program is refused.
const LOG_BYTES: usize = 1 << 20;

fn bpf(cmd: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: `attr` is a whole, initialised union; every pointer in it outlives the call.
    let ret = unsafe { libc::syscall(libc::SYS_bpf, cmd, &raw mut *attr, size_of::<bpf_attr>()) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of integers; all zero is valid.
    unsafe { mem::zeroed() }
}

fn owned(fd: i64) -> OwnedFd {
    let fd = RawFd::try_from(fd).expect("the kernel's file descriptors fit");
    // SAFETY: just returned by the kernel, owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Loads a uprobe program that can be attached through uprobe_multi.
///
/// # Errors
///
/// errno and, when the verifier refused, its log.
pub(super) fn load_multi_program(
    name: &str,
    license: &CString,
    insns: &[bpf_insn],
) -> Result<OwnedFd, (io::Error, String)> {
    let mut attr = zeroed();
    // SAFETY: writing plain fields of the `BPF_PROG_LOAD` member.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI;
    load.insns = insns.as_ptr() as u64;
    load.insn_cnt = u32::try_from(insns.len()).expect("programs are small");
    load.license = license.as_ptr() as u64;
    for (to, from) in load.prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    match bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
        Ok(fd) => Ok(owned(fd)),
        Err(first) => {
            let mut log = vec![0u8; LOG_BYTES];
            // SAFETY: as above; the log buffer outlives the call.
            let load = unsafe { &mut attr.__bindgen_anon_3 };
            load.log_level = 1;
            load.log_size = LOG_BYTES as u32;
            load.log_buf = log.as_mut_ptr() as u64;
            if let Ok(fd) = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
                return Ok(owned(fd));
            }
            let end = log.iter().position(|b| *b == 0).unwrap_or(LOG_BYTES);
            Err((first, String::from_utf8_lossy(&log[..end]).into_owned()))
        }
    }
}

/// A program as the kernel takes it.
pub(super) struct Code<'a> {
    pub(super) kind: bpf_prog_type,
    pub(super) license: &'a CString,
    pub(super) insns: &'a [bpf_insn],
    /// What its functions are: types that the kernel has, and which of them. Global functions are not looked at by themselves
    /// without.
    pub(super) functions: Option<(BorrowedFd<'a>, &'a FuncSecInfo)>,
    /// Of a program for a function of the kernel: its id in the kernel's type information, and at which end.
    pub(super) on: Option<(u32, bpf_attach_type)>,
}

impl<'a> Code<'a> {
    /// A few instructions that call no functions of their own.
    pub(super) fn plain(kind: bpf_prog_type, license: &'a CString, insns: &'a [bpf_insn]) -> Self {
        Self { kind, license, insns, functions: None, on: None }
    }

    /// Loads it, with what the verifier says at this level of detail.
    fn load(&self, name: &str, log_level: u32) -> (io::Result<OwnedFd>, String) {
        let mut log = vec![0u8; if log_level == 0 { 0 } else { LOG_BYTES }];
        let mut attr = zeroed();
        let infos = self.functions.map(|(_, infos)| infos.func_info_bytes()).unwrap_or_default();
        // SAFETY: writing plain fields of the `BPF_PROG_LOAD` member; the buffers outlive the call.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = self.kind as u32;
        load.insns = self.insns.as_ptr() as u64;
        load.insn_cnt = u32::try_from(self.insns.len()).expect("programs are small");
        load.license = self.license.as_ptr() as u64;
        for (to, from) in load.prog_name.iter_mut().take(15).zip(name.bytes()) {
            *to = from.cast_signed();
        }
        if let Some((types, known)) = self.functions {
            load.prog_btf_fd = types.as_raw_fd().cast_unsigned();
            load.func_info = infos.as_ptr() as u64;
            load.func_info_cnt = u32::try_from(known.len()).expect("programs are small");
            load.func_info_rec_size = size_of::<bpf_func_info>() as u32;
        }
        if let Some((function, end)) = self.on {
            load.attach_btf_id = function;
            load.expected_attach_type = end as u32;
        }
        if log_level != 0 {
            load.log_level = log_level;
            load.log_size = LOG_BYTES as u32;
            load.log_buf = log.as_mut_ptr() as u64;
        }
        let loaded = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr).map(owned);
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        (loaded, String::from_utf8_lossy(&log[..end]).into_owned())
    }
}

/// Loads a program.
///
/// # Errors
///
/// errno and, when the verifier refused, its log.
pub(super) fn load_program(name: &str, code: &Code<'_>) -> Result<OwnedFd, (io::Error, String)> {
    code.load(name, 0).0.or_else(|first| {
        let (again, log) = code.load(name, 1);
        again.map_err(|_| (first, log))
    })
}

/// Loads a program once more to learn what the verifier says about it, and drops it again.
///
/// # Errors
///
/// errno, with what the verifier said up to then.
pub(super) fn verifier_log(code: &Code<'_>) -> Result<String, (io::Error, String)> {
    // A full log is an error on kernels before 6.4, so only statistics are asked for.
    const STATISTICS: u32 = 4;
    match code.load("", STATISTICS) {
        (Ok(_), log) => Ok(log),
        (Err(errno), log) => Err((errno, log)),
    }
}

/// Attaches a program to the function that it was loaded for.
///
/// # Errors
///
/// errno of `BPF_RAW_TRACEPOINT_OPEN`.
pub(super) fn link_function(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.raw_tracepoint.prog_fd = program.as_raw_fd().cast_unsigned();
    bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(owned)
}

/// Hands the types of programs (BTF) to the kernel.
///
/// # Errors
///
/// errno of `BPF_BTF_LOAD`.
pub(super) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    // SAFETY: writing plain fields of the `BPF_BTF_LOAD` member; the buffer outlives the call.
    let load = unsafe { &mut attr.__bindgen_anon_7 };
    load.btf = types.as_ptr() as u64;
    load.btf_size = u32::try_from(types.len()).map_err(io::Error::other)?;
    bpf(bpf_cmd::BPF_BTF_LOAD, &mut attr).map(owned)
}

/// Attaches a program to `offsets` of the executable at `path`, in every process, each with its cookie.
///
/// # Errors
///
/// errno of `BPF_LINK_CREATE`.
pub(super) fn link_uprobe_multi(
    program: BorrowedFd<'_>,
    path: &CString,
    offsets: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    debug_assert_eq!(offsets.len(), cookies.len());
    let mut attr = zeroed();
    // SAFETY: writing plain fields of the `BPF_LINK_CREATE` member.
    unsafe {
        let link = &mut attr.link_create;
        link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
        link.attach_type = BPF_TRACE_UPROBE_MULTI;
        let multi = &mut link.__bindgen_anon_3.uprobe_multi;
        multi.path = path.as_ptr() as u64;
        multi.offsets = offsets.as_ptr() as u64;
        multi.cookies = cookies.as_ptr() as u64;
        multi.cnt = u32::try_from(offsets.len()).expect("sites are bounded");
    }
    bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr).map(owned)
}

/// Reads a hash map in whole buckets (`BPF_MAP_LOOKUP_BATCH`, 5.6), so that entries that come and go meanwhile do not
/// make others appear twice or not at all. Returns whether the end was reached.
///
/// # Errors
///
/// errno other than the end of the map.
pub(super) fn lookup_batch(
    map: BorrowedFd<'_>,
    key_len: usize,
    value_len: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> io::Result<bool> {
    const START: u32 = 1024;
    const LIMIT: u32 = 1 << 20;
    let (mut cursor, mut first) = (vec![0u8; key_len.max(8)], true);
    let mut room = START;
    loop {
        let mut next = vec![0u8; key_len.max(8)];
        let mut keys = vec![0u8; key_len * room as usize];
        let mut values = vec![0u8; value_len * room as usize];
        let mut attr = zeroed();
        // SAFETY: writing plain fields of the batch member.
        let batch = unsafe { &mut attr.batch };
        batch.in_batch = if first { 0 } else { cursor.as_ptr() as u64 };
        batch.out_batch = next.as_mut_ptr() as u64;
        batch.keys = keys.as_mut_ptr() as u64;
        batch.values = values.as_mut_ptr() as u64;
        batch.count = room;
        batch.map_fd = map.as_raw_fd().cast_unsigned();
        let result = bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr);
        // SAFETY: the kernel wrote the number of entries there.
        let count = unsafe { attr.batch.count } as usize;
        let ended = match &result {
            Ok(_) => false,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => true,
            // One bucket is longer than the room.
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && room < LIMIT => {
                room *= 2;
                continue;
            }
            Err(_) => return result.map(|_| false),
        };
        for i in 0..count.min(room as usize) {
            each(&keys[i * key_len..(i + 1) * key_len], &values[i * value_len..(i + 1) * value_len]);
        }
        if ended {
            return Ok(true);
        }
        cursor.copy_from_slice(&next);
        first = false;
    }
}

/// Reads what the kernel says of an object (`BPF_OBJ_GET_INFO_BY_FD`, 4.13) into `info`, which is zeros; returns how many
/// bytes it says it filled in.
///
/// # Errors
///
/// errno.
pub(super) fn object_info(object: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<usize> {
    let mut attr = zeroed();
    attr.info.bpf_fd = object.as_raw_fd().cast_unsigned();
    attr.info.info_len = u32::try_from(info.len()).expect("descriptions are small");
    attr.info.info = info.as_mut_ptr() as u64;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    // SAFETY: the kernel wrote its own length there.
    Ok(unsafe { attr.info.info_len } as usize)
}

/// Waits until every program that runs now has ended: uprobe programs run inside an RCU read section, or with preemption
/// off. Where the kernel cannot be asked (`nohz_full`), it does not wait.
pub(super) fn wait_for_running_programs() {
    /// `MEMBARRIER_CMD_GLOBAL` (include/uapi/linux/membarrier.h, 4.3): `synchronize_rcu` in the kernel.
    const GLOBAL: libc::c_int = 1;
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
}
