//! How full the eBPF maps of a process are, read from outside through `bpf(2)`.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, ensure};

use super::numbers_of;

/// Commands of `bpf(2)`, and kinds of maps, as `linux/bpf.h` numbers them.
const LOOKUP: libc::c_int = 1;
const NEXT_KEY: libc::c_int = 4;
const FD_OF_ID: libc::c_int = 14;
const INFO: libc::c_int = 15;
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PER_CPU_ARRAY: u32 = 6;

/// The beginning of `bpf_map_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
struct InfoOf {
    fd: u32,
    length: u32,
    info: u64,
}

#[repr(C)]
struct Element {
    fd: u32,
    /// The kernel aligns what follows to eight bytes.
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Entries in use in each map that descriptors of `pid` refer to, by its name. In an array, what is not zero is in use;
/// ring buffers have no entries and are left out.
///
/// # Errors
///
/// The kernel refuses to tell; not that the process has gone, which has no maps.
pub fn used_by(pid: u32) -> Result<BTreeMap<String, u64>> {
    let mut used = BTreeMap::new();
    for id in numbers_of(pid, "map_id:") {
        let map = Map::open(id)?;
        if let Some(entries) = map.used()? {
            *used.entry(map.name()).or_default() += entries;
        }
    }
    Ok(used)
}

struct Map {
    fd: OwnedFd,
    info: Info,
}

impl Map {
    fn open(id: u32) -> Result<Map> {
        let fd = bpf(FD_OF_ID, &mut ById { id, next: 0, flags: 0 }).context("cannot open a map")?;
        // SAFETY: the kernel has just made it, for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = Info::default();
        let length = u32::try_from(size_of::<Info>()).context("too long")?;
        bpf(INFO, &mut InfoOf { fd: number(&fd)?, length, info: (&raw mut info) as u64 })
            .context("cannot ask about a map")?;
        Ok(Map { fd, info })
    }

    fn name(&self) -> String {
        let bytes: Vec<u8> = self.info.name.iter().copied().take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn used(&self) -> Result<Option<u64>> {
        match self.info.kind {
            HASH => self.keys().map(Some),
            ARRAY => self.not_zero(self.info.value_size as usize).map(Some),
            PER_CPU_ARRAY => {
                let each = (self.info.value_size as usize).next_multiple_of(8);
                self.not_zero(each * possible_cpus()?).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Walks over the keys. A key that goes meanwhile starts the walk anew, so it ends after as many as there can be.
    fn keys(&self) -> Result<u64> {
        let size = self.info.key_size as usize;
        let (mut key, mut next, mut count) = (vec![0_u8; size], vec![0_u8; size], 0);
        let mut from = 0;
        while count < u64::from(self.info.max_entries) {
            let mut of = self.element(from, next.as_mut_ptr())?;
            if bpf(NEXT_KEY, &mut of).is_err() {
                break;
            }
            count += 1;
            key.copy_from_slice(&next);
            from = key.as_ptr() as u64;
        }
        Ok(count)
    }

    fn not_zero(&self, size: usize) -> Result<u64> {
        let (mut value, mut count) = (vec![0_u8; size], 0);
        for index in 0..self.info.max_entries {
            let mut of = self.element((&raw const index) as u64, value.as_mut_ptr())?;
            bpf(LOOKUP, &mut of).context("cannot read an array")?;
            count += u64::from(value.iter().any(|byte| *byte != 0));
        }
        Ok(count)
    }

    fn element(&self, key: u64, value: *mut u8) -> Result<Element> {
        Ok(Element { fd: number(&self.fd)?, padding: 0, key, value: value as u64, flags: 0 })
    }
}

fn number(fd: &OwnedFd) -> Result<u32> {
    u32::try_from(fd.as_raw_fd()).context("an odd descriptor")
}

/// How many values a map per CPU has for each key.
fn possible_cpus() -> Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().context("no possible CPU")?;
    Ok(last.parse::<usize>()? + 1)
}

fn bpf<T>(command: libc::c_int, attr: &mut T) -> Result<libc::c_int> {
    // SAFETY: the attribute is alive for the call and as long as we say; what it points to is held by the caller.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut T, size_of::<T>()) };
    ensure!(done >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
    libc::c_int::try_from(done).context("an odd answer")
}
