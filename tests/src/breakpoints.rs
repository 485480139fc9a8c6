//! Reads probe sites in the memory of a running program: is a breakpoint there, or the program's own instruction?
//!
//! A proof from outside: neither plegtrace nor the kernel's own lists are asked.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use plegtrace::target::{GoBinary, Pattern};

/// The breakpoint that a uprobe puts in the place of an instruction's first byte (x86-64 `int3`).
const BREAKPOINT: u8 = 0xcc;

/// Probe sites of one process.
#[derive(Debug)]
pub struct Sites {
    pid: u32,
    memory: File,
    sites: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    name: String,
    address: u64,
    original: Vec<u8>,
}

impl Sites {
    /// The sites where plegtrace probes the start of the functions that match `patterns`, in the process `pid`.
    ///
    /// # Errors
    ///
    /// The process or its program cannot be read, or no function matches.
    pub fn find(pid: u32, patterns: &[&str]) -> Result<Sites> {
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let binary = GoBinary::open(&exe).with_context(|| format!("cannot read the program of {pid}"))?;
        let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::new(text)).collect();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("cannot read its mappings")?;
        let mut sites = Vec::new();
        for function in binary.resolve(&patterns) {
            // Functions that are refused have no probe to look for.
            let Ok(site) = binary.start_site(&function) else { continue };
            let address = address(&maps, binary.id().ino, site.file_offset)
                .with_context(|| format!("{} is not mapped", function.name))?;
            sites.push(Place { name: function.name.clone(), address, original: site.bytes });
        }
        ensure!(!sites.is_empty(), "no function of process {pid} matches");
        let memory = File::open(format!("/proc/{pid}/mem")).context("cannot open its memory")?;
        Ok(Sites { pid, memory, sites })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sites.len()
    }

    /// Names of the sites with a breakpoint.
    ///
    /// # Errors
    ///
    /// The memory cannot be read, or a site has neither its instruction nor a breakpoint.
    pub fn armed(&self) -> Result<Vec<&str>> {
        let mut armed = Vec::new();
        for site in &self.sites {
            let mut now = vec![0; site.original.len()];
            self.memory
                .read_exact_at(&mut now, site.address)
                .with_context(|| format!("cannot read {} in process {}", site.name, self.pid))?;
            if now == site.original {
                continue;
            }
            let only_first = now[0] == BREAKPOINT && now[1..] == site.original[1..];
            ensure!(only_first, "{}: {now:02x?} instead of {:02x?}", site.name, site.original);
            armed.push(site.name.as_str());
        }
        Ok(armed)
    }

    /// Is there a breakpoint at every site?
    ///
    /// # Errors
    ///
    /// As for [`armed`](Self::armed).
    pub fn all_armed(&self) -> Result<bool> {
        Ok(self.armed()?.len() == self.count())
    }
}

/// Where a byte of the file is in the process.
fn address(maps: &str, inode: u64, file_offset: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (range, mode, offset) = (words.next()?, words.next()?, words.next()?);
        let (_device, ino) = (words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
        let inside = file_offset >= offset && file_offset - offset < end - start;
        (mode.contains('x') && ino.parse() == Ok(inode) && inside).then(|| start + (file_offset - offset))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00500000 r--p 00000000 08:01 77  /bin/x
00500000-00600000 r-xp 00100000 08:01 77  /bin/x
7f0000000000-7f0000001000 r-xp 00100000 08:01 78  /lib/y
";

    /// Only the executable mapping of the right file counts.
    #[test]
    fn addresses_are_found_in_the_text() {
        assert_eq!(address(MAPS, 77, 0x10_0010), Some(0x50_0010));
        assert_eq!(address(MAPS, 77, 0x10), None);
        assert_eq!(address(MAPS, 78, 0x10_0010), Some(0x7f00_0000_0010));
        assert_eq!(address(MAPS, 77, 0x20_0000), None);
    }
}
