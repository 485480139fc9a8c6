//! The guest's console → an alarm when its kernel is dying, so that nobody waits for the budget of a dead guest.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What a kernel prints when it cannot go on, and how often it may be seen: emulation on a busy machine stalls a
/// processor now and then without harm.
const MARKERS: [(&str, u32); 7] = [
    ("Kernel panic - not syncing", 0),
    ("] Oops: ", 0),
    ("BUG: unable to handle", 0),
    ("general protection fault", 0),
    ("soft lockup", 3),
    ("detected stalls on CPUs", 3),
    ("self-detected stall", 3),
];

/// Looks at console lines.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: [u32; MARKERS.len()],
}

impl Watch {
    /// The line that ends the guest, if this is one.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        let index = MARKERS.iter().position(|(marker, _)| line.contains(marker))?;
        self.seen[index] += 1;
        (self.seen[index] > MARKERS[index].1).then(|| line.trim().to_owned())
    }
}

/// A file that another process is writing.
#[derive(Debug)]
pub(crate) struct Follow {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

impl Follow {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), file: None, rest: Vec::new() }
    }

    /// The complete lines that have been added since the last time.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            // An error reads as nothing new; the guest's budget ends it.
            drop(file.read_to_end(&mut self.rest));
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let complete: Vec<u8> = self.rest.drain(..=end).collect();
        String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A panic is the end at once, a stall only when it keeps coming back.
    #[test]
    fn markers_have_their_patience() {
        let mut watch = Watch::default();
        assert_eq!(watch.line("[ 1.0] systemd[1]: started"), None);
        for _ in 0..3 {
            assert_eq!(watch.line("watchdog: BUG: soft lockup - CPU#1 stuck for 22s!"), None);
        }
        assert!(watch.line("watchdog: BUG: soft lockup - CPU#1 stuck for 22s!").is_some());
        let panic = "[ 2.0] Kernel panic - not syncing: VFS";
        assert_eq!(Watch::default().line(panic).as_deref(), Some(panic));
    }

    /// Lines are handed out once, and only when they are complete.
    #[test]
    fn a_growing_file_is_followed() {
        let path = std::env::temp_dir().join(format!("plegtrace-follow-{}", std::process::id()));
        let mut follow = Follow::new(&path);
        assert!(follow.lines().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\r\ntw").unwrap();
        assert_eq!(follow.lines(), ["one"]);
        file.write_all(b"o\n").unwrap();
        assert_eq!(follow.lines(), ["two"]);
        std::fs::remove_file(&path).unwrap();
    }
}
