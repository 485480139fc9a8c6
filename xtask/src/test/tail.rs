//! [`Tail`]: the log of a test program while it grows: which tests have failed so far, and how busy the machine was.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::machine;

/// What libtest writes for a test that failed, after its name.
const FAILED: &str = "FAILED";
/// More is not read at once.
const MOST: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Tail {
    program: String,
    log: PathBuf,
    read: u64,
    /// A line that has not ended yet.
    begun: String,
    /// The test whose line was begun last; with several threads every line has its own.
    test: Option<String>,
    failed: BTreeMap<String, String>,
}

impl Tail {
    pub(super) fn new(program: &str, log: &Path) -> Self {
        let (program, log) = (program.to_owned(), log.to_path_buf());
        Self { program, log, read: 0, begun: String::new(), test: None, failed: BTreeMap::new() }
    }

    /// Reads what is new, and says which tests have failed.
    pub(super) fn look(&mut self) {
        let mut new = Vec::new();
        let mut read = || {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.read))?;
            file.take(MOST).read_to_end(&mut new)
        };
        // A log that cannot be read now is read whole at the end.
        let Ok(length) = read() else { return };
        self.read += length as u64;
        for name in self.take(&String::from_utf8_lossy(&new)) {
            let moment = machine::moment();
            println!("FAILED {} {name}  ({moment})", self.program);
            self.failed.insert(name, moment);
        }
    }

    /// The tests that failed according to more of the log.
    fn take(&mut self, text: &str) -> Vec<String> {
        self.begun.push_str(text);
        let Some(end) = self.begun.rfind('\n') else { return Vec::new() };
        let rest = self.begun.split_off(end + 1);
        let lines = std::mem::replace(&mut self.begun, rest);
        lines.lines().filter_map(|line| self.failed_in(line)).collect()
    }

    fn failed_in(&mut self, line: &str) -> Option<String> {
        let test = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
        let ended = match test {
            Some((name, ended)) => {
                self.test = Some(name.to_owned());
                ended
            }
            None => line,
        };
        let name = if ended == FAILED { self.test.take() } else { None };
        name.map(|name| name.strip_suffix(" - should panic").unwrap_or(&name).to_owned())
    }

    /// How busy the machine was when this test failed.
    pub(super) fn moment(&self, test: &str) -> String {
        self.failed.get(test).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test is named as soon as its line is whole, whatever was printed in between.
    #[test]
    fn failures_are_seen_as_they_come() {
        let mut tail = Tail::new("p", Path::new("/nonexistent"));
        assert_eq!(tail.take("running 3 tests\ntest a ... ok\ntest b::c ... FAI"), [""; 0]);
        assert_eq!(tail.take("LED\ntest d ... MARGIN x 1 2 ms\nnoise\n"), ["b::c"]);
        assert_eq!(tail.take("FAILED\nFAILED\n"), ["d"]);
        tail.look();
    }
}
