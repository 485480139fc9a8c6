//! What is kept of a stall: a recording and its report, as many as fit.

use std::{fs, io, time::SystemTime};

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

/// Writes it, and removes the oldest files until everything fits.
pub(super) fn keep(dir: &Dir, evidence: &Evidence, most_bytes: u64) -> io::Result<()> {
    let folder = dir.folder(FOLDER)?;
    let size = (evidence.recording.len() + evidence.report.len()) as u64;
    if size > most_bytes {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the evidence is larger than all evidence may be",
        ));
    }
    let mut files: Vec<(SystemTime, u64, std::path::PathBuf)> = Vec::new();
    for entry in fs::read_dir(&folder)?.flatten().filter(|it| is_ours(&it.file_name().to_string_lossy())) {
        let about = entry.metadata()?;
        if !about.is_file() {
            continue;
        }
        files.push((about.modified()?, about.len(), entry.path()));
    }
    files.sort();
    let mut left: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    let mut count = files.len();
    for (_, bytes, path) in files {
        if left + size <= most_bytes && count + 2 <= FILES {
            break;
        }
        fs::remove_file(path)?;
        (left, count) = (left - bytes, count - 1);
    }
    for (ending, bytes) in [("plegtrace", &evidence.recording), ("txt", &evidence.report)] {
        dir.replace(&format!("{FOLDER}/{}.{ending}", evidence.name), bytes)?;
    }
    Ok(())
}

/// Is this one of our names: a moment, an id, and one of our endings? Whatever else lies there is not counted, and stays.
fn is_ours(name: &str) -> bool {
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'));
    let moment = stem.and_then(|stem| stem.split_once("Z-")).filter(|(_, id)| !id.is_empty());
    let fits = |(place, byte): (usize, u8)| if place == 8 { byte == b'T' } else { byte.is_ascii_digit() };
    moment.is_some_and(|(moment, _)| moment.len() == MOMENT && moment.bytes().enumerate().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only our own files are counted and removed; what somebody else put there stays, and a link leads nowhere.
    #[test]
    fn what_is_not_ours_stays() {
        assert!(is_ours("20261127T024148Z-R1.plegtrace") && is_ours("20261127T024148Z-unknown.txt"));
        for other in [
            "passwd",
            "R1.txt",
            "20261127T024148Z-.txt",
            "20261127-024148Z-R1.txt",
            "20261127T024148Z-R1.log",
        ] {
            assert!(!is_ours(other), "{other}");
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
