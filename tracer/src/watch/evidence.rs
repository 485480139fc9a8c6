//! What is kept of a stall: a recording and its report, as many as fit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::dir::Dir;

const FOLDER: &str = "evidence";
const ENDINGS: [&str; 2] = ["plegtrace", "txt"];
/// Length of `20261127T024148`.
const MOMENT: usize = 15;
/// Recordings and reports together.
const FILES: usize = 64;

/// A stall to be kept.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Name of its files, without an ending: a moment and an id.
    pub(super) name: String,
    pub(super) recording: Vec<u8>,
    pub(super) report: Vec<u8>,
}

/// Writes it, and removes the oldest stalls, each with all its files, until everything fits.
pub(super) fn keep(dir: &Dir, evidence: &Evidence, most_bytes: u64) -> io::Result<()> {
    let folder = dir.folder(FOLDER)?;
    let size = (evidence.recording.len() + evidence.report.len()) as u64;
    if size > most_bytes {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the evidence is larger than all evidence may be",
        ));
    }
    let kept = kept(&folder)?;
    let mut left: u64 = kept.values().flatten().map(|(_, bytes)| bytes).sum();
    let mut count = kept.values().flatten().count();
    for files in kept.into_values() {
        if left + size <= most_bytes && count + ENDINGS.len() <= FILES {
            break;
        }
        for (path, bytes) in files {
            fs::remove_file(path)?;
            (left, count) = (left - bytes, count - 1);
        }
    }
    for (ending, bytes) in [("plegtrace", &evidence.recording), ("txt", &evidence.report)] {
        dir.replace(&format!("{FOLDER}/{}.{ending}", evidence.name), bytes)?;
    }
    Ok(())
}

/// Files and their bytes by the name of their stall, the oldest first: a name begins with its moment. When a file was written says less,
/// a recording and its report are not written at once.
fn kept(folder: &Path) -> io::Result<BTreeMap<String, Vec<(PathBuf, u64)>>> {
    let mut kept: BTreeMap<String, Vec<(PathBuf, u64)>> = BTreeMap::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Of what is not ours nothing is asked: it may go at any moment.
        let Some(stall) = stall_of(&name) else { continue };
        let about = entry.metadata()?;
        if about.is_file() {
            kept.entry(stall.to_owned()).or_default().push((entry.path(), about.len()));
        }
    }
    Ok(kept)
}

/// The name without its ending, if it is one of ours: a moment, an id, and one of our endings. Whatever else lies there is not counted,
/// and stays.
fn stall_of(name: &str) -> Option<&str> {
    let stall = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'))?;
    let (moment, _) = stall.split_once("Z-").filter(|(_, id)| !id.is_empty())?;
    let fits = |(place, byte): (usize, u8)| if place == 8 { byte == b'T' } else { byte.is_ascii_digit() };
    (moment.len() == MOMENT && moment.bytes().enumerate().all(fits)).then_some(stall)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Only our own files are counted and removed; what somebody else put there stays, and a link leads nowhere.
    #[test]
    fn what_is_not_ours_stays() {
        assert_eq!(stall_of("20261127T024148Z-R1.plegtrace"), Some("20261127T024148Z-R1"));
        assert_eq!(stall_of("20261127T024148Z-unknown.txt"), Some("20261127T024148Z-unknown"));
        for other in [
            "passwd",
            "R1.txt",
            "20261127T024148Z-.txt",
            "20261127-024148Z-R1.txt",
            "20261127T024148Z-R1.log",
        ] {
            assert_eq!(stall_of(other), None, "{other}");
        }
        let (temp, etc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = Dir::take(&temp.path().join("d")).unwrap();
        let one = |n: u32| Evidence {
            name: format!("20261127T0241{n:02}Z-R1"),
            recording: vec![0; 900],
            report: Vec::new(),
        };
        keep(&dir, &one(1), 1000).unwrap();
        fs::write(dir.path("evidence/notes.txt"), [1; 5000]).unwrap();
        keep(&dir, &one(2), 1000).unwrap();
        assert!(dir.path("evidence/notes.txt").exists());
        assert!(!dir.path("evidence/20261127T024101Z-R1.txt").exists(), "the older one had to go");
        fs::rename(dir.path("evidence"), dir.path("old")).unwrap();
        fs::write(etc.path().join("20200101T000000Z-R1.txt"), "mine").unwrap();
        std::os::unix::fs::symlink(etc.path(), dir.path("evidence")).unwrap();
        assert!(keep(&dir, &one(3), 1000).is_err());
        assert_eq!(fs::read_dir(etc.path()).unwrap().count(), 1);
    }

    /// The oldest goes when there is no more room; what can never fit is refused and takes nothing away.
    #[test]
    fn bounded() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::take(temp.path()).unwrap();
        let some = |name: usize, bytes| Evidence {
            name: format!("20261127T00{name:04}Z-R1"),
            recording: vec![0; bytes],
            report: vec![1; 10],
        };
        let names = || {
            let mut names: Vec<String> = fs::read_dir(dir.path(FOLDER))
                .unwrap()
                .map(|it| it.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for n in 0..5 {
            keep(&dir, &some(n, 1000), 3100).unwrap();
            // A report may be written later than its recording, and goes with it.
            let report = fs::File::open(dir.path(&format!("{FOLDER}/{}.txt", some(n, 0).name))).unwrap();
            report.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        }
        assert_eq!(
            names(),
            [2, 3, 4]
                .map(|n| ["plegtrace", "txt"].map(|end| format!("20261127T00{n:04}Z-R1.{end}")))
                .concat()
        );
        assert!(keep(&dir, &some(9, 4000), 3100).is_err());
        assert_eq!(names().len(), 6);
        for n in 10..100 {
            keep(&dir, &some(n, 1), 1 << 20).unwrap();
        }
        assert!(names().len() <= FILES);
    }
}
