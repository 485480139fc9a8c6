//! What is kept of a stall: a recording and its report, as many as fit.

use std::{fs, io, os::unix::fs::DirBuilderExt, time::SystemTime};

use super::dir::Dir;

const FOLDER: &str = "evidence";
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
    let folder = dir.path(FOLDER);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let size = (evidence.recording.len() + evidence.report.len()) as u64;
    if size > most_bytes {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the evidence is larger than all evidence may be",
        ));
    }
    let mut files: Vec<(SystemTime, u64, std::path::PathBuf)> = Vec::new();
    for entry in fs::read_dir(&folder)?.flatten() {
        let about = entry.metadata()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest goes when there is no more room; what can never fit is refused and takes nothing away.
    #[test]
    fn bounded() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::take(temp.path()).unwrap();
        let some = |name: usize, bytes| Evidence {
            name: format!("{name:04}"),
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
            ["0002.plegtrace", "0002.txt", "0003.plegtrace", "0003.txt", "0004.plegtrace", "0004.txt"]
        );
        assert!(keep(&dir, &some(9, 4000), 3100).is_err());
        assert_eq!(names().len(), 6);
        for n in 10..100 {
            keep(&dir, &some(n, 1), 1 << 20).unwrap();
        }
        assert!(names().len() <= FILES);
    }
}
