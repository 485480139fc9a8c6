//! [`Entry`]: a window in one line, and the file of all lines, bounded by bytes and age.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::dir::{Dir, options};
use crate::correlate::Latency;

pub(super) const FILE: &str = "history.jsonl";
/// No file of ours is larger, bytes.
const MOST: u64 = 1 << 30;
/// Longest line that is read, bytes.
const LINE: usize = 256 << 10;

/// Durations of one operation in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantiles {
    /// How many ended.
    pub count: u64,
    /// Half of them took at most this, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took at most this, nanoseconds.
    pub p99_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

impl Quantiles {
    pub(super) fn of(latency: &Latency) -> Self {
        let at = |q| latency.quantile_ns(q).unwrap_or(0);
        Self { count: latency.count(), p50_ns: at(0.5), p99_ns: at(0.99), max_ns: latency.max_ns() }
    }
}

/// A window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// When it ended: wall clock, nanoseconds since 1970.
    pub at_unix_ns: i64,
    /// The same, RFC 3339 in UTC.
    pub at: String,
    /// Its length, nanoseconds.
    pub window_ns: u64,
    /// `healthy`, `stall` or `cannot_tell`.
    pub verdict: String,
    /// Id of the cause of a stall, when it is known.
    pub id: Option<String>,
    /// The component to blame for a stall, when it is known.
    pub component: Option<String>,
    /// Relists that ended.
    pub relists: Quantiles,
    /// Relists and requests that have not ended.
    pub open: u64,
    /// CRI calls of the kubelet that ended, by method.
    pub client: BTreeMap<String, Quantiles>,
    /// CRI handlers of the runtime that ended, by method.
    pub server: BTreeMap<String, Quantiles>,
    /// CPU time of plegtrace, nanoseconds.
    pub cpu_ns: u64,
    /// Memory of plegtrace, bytes.
    pub rss_bytes: u64,
    /// Records lost in this window, at whatever stage.
    pub lost: u64,
    /// Everything that ended is in these figures.
    pub complete: bool,
}

/// What a history may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) age_ns: u64,
}

/// Adds a line; drops the oldest ones where there are too many. A line that a kill has cut is left alone.
pub(super) fn append(dir: &Dir, entry: &Entry, bounds: Bounds) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    let path = dir.path(FILE);
    let mut file = options().read(true).append(true).create(true).open(&path)?;
    let size = file.metadata()?.len();
    if size > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(&line)?;
    let oldest = first_line(&path).map_or(entry.at_unix_ns, |first| first.at_unix_ns);
    let too_old = age(oldest, entry) > bounds.age_ns.saturating_add(bounds.age_ns / 16);
    if size + line.len() as u64 > bounds.bytes || too_old { shorten(dir, entry, bounds) } else { Ok(()) }
}

/// Keeps what is young enough, and of that three quarters of what fits.
fn shorten(dir: &Dir, now: &Entry, bounds: Bounds) -> io::Result<()> {
    let text = fs::read(dir.path(FILE))?;
    let (mut room, mut kept) = (bounds.bytes / 4 * 3, Vec::new());
    for line in text.split(|byte| *byte == b'\n').rev().filter(|line| !line.is_empty()) {
        let Some(entry) = parse(line) else { continue };
        let size = line.len() as u64 + 1;
        if room < size || age(entry.at_unix_ns, now) > bounds.age_ns {
            break;
        }
        room -= size;
        kept.push(line);
    }
    kept.reverse();
    let mut bytes = kept.join(&b'\n');
    bytes.push(b'\n');
    dir.replace(FILE, &bytes)
}

fn age(at: i64, now: &Entry) -> u64 {
    u64::try_from(now.at_unix_ns.saturating_sub(at)).unwrap_or(0)
}

fn first_line(path: &Path) -> Option<Entry> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LINE as u64).read_to_end(&mut bytes).ok()?;
    parse(bytes.split(|byte| *byte == b'\n').next()?)
}

fn parse(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}

/// All lines that can be read, oldest first.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Entry>> {
    let mut bytes = Vec::new();
    options().read(true).open(dir.join(FILE))?.take(MOST).read_to_end(&mut bytes)?;
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.len() <= LINE);
    Ok(lines.filter_map(parse).collect())
}

/// Those that ended at this moment or later.
pub(crate) fn select(entries: Vec<Entry>, since_unix_ns: Option<i64>) -> Vec<Entry> {
    entries.into_iter().filter(|entry| since_unix_ns.is_none_or(|since| entry.at_unix_ns >= since)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seconds: i64) -> Entry {
        Entry { at_unix_ns: seconds * 1_000_000_000, verdict: "healthy".into(), ..Entry::default() }
    }

    fn times(dir: &Path) -> Vec<i64> {
        read(dir).unwrap().iter().map(|entry| entry.at_unix_ns / 1_000_000_000).collect()
    }

    /// Bounded by bytes, the youngest lines stay; a cut line hurts no other one.
    #[test]
    fn bounded_by_bytes() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::take(temp.path()).unwrap();
        let bounds = Bounds { bytes: 4000, age_ns: u64::MAX };
        for n in 0..200 {
            append(&dir, &entry(n), bounds).unwrap();
            assert!(fs::metadata(dir.path(FILE)).unwrap().len() <= 4000);
        }
        let kept = times(temp.path());
        assert!(kept.ends_with(&[197, 198, 199]) && kept.len() > 3 && kept.is_sorted(), "{kept:?}");
        let mut cut = fs::read(dir.path(FILE)).unwrap();
        cut.truncate(cut.len() - 10);
        fs::write(dir.path(FILE), cut).unwrap();
        append(&dir, &entry(200), bounds).unwrap();
        let kept = times(temp.path());
        assert!(kept.ends_with(&[198, 200]), "{kept:?}");
    }

    /// Bounded by age.
    #[test]
    fn bounded_by_age() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::take(temp.path()).unwrap();
        let bounds = Bounds { bytes: 1 << 20, age_ns: 32_000_000_000 };
        (0..100).for_each(|n| append(&dir, &entry(n), bounds).unwrap());
        let kept = times(temp.path());
        assert!(kept[0] >= 99 - 34 && kept.ends_with(&[99]), "{kept:?}");
        assert_eq!(select(read(temp.path()).unwrap(), Some(98_000_000_000)).len(), 2);
    }
}
