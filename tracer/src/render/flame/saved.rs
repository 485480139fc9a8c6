//! [`Saved`]: folded text of an earlier time, to compare with.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::lines::{Lines, Per};

/// Larger files are none of ours, bytes.
const MOST: u64 = 64 << 20;
/// Frames of a line; ours are much shorter.
const FRAMES: usize = 256;

/// Why something cannot be compared with.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is too large to be a folded file.
    #[error("this is no folded file: it is larger than {} MiB", MOST >> 20)]
    TooLarge,
    /// The first line does not say what was folded.
    #[error("this is no folded file of plegtrace: make one with -o folded")]
    Foreign,
    /// A line is none.
    #[error("line {0} is no folded stack")]
    Line(usize),
    /// The whole is wanted of what is a mean.
    #[error("this is a mean relist: compare with --per-relist")]
    Mean,
}

/// Folded text, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    per: Per,
    relists: u64,
    lines: BTreeMap<Vec<String>, u64>,
}

/// Microseconds by stack.
pub(super) type Stacks = BTreeMap<Vec<String>, u64>;

impl Saved {
    /// Reads what [`super::folded`] wrote.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is something else.
    pub fn read(source: impl Read) -> Result<Self, SavedError> {
        let mut text = Vec::new();
        source.take(MOST + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MOST {
            return Err(SavedError::TooLarge);
        }
        let text = String::from_utf8(text).map_err(|_| SavedError::Foreign)?;
        let mut lines = text.lines();
        let (per, relists) = lines.next().and_then(header).ok_or(SavedError::Foreign)?;
        let mut found = Stacks::new();
        for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (stack, us) = line
                .rsplit_once(' ')
                .and_then(|(stack, us)| Some((stack, us.parse::<u64>().ok()?)))
                .ok_or(SavedError::Line(number + 2))?;
            let stack: Vec<String> = stack.split(';').take(FRAMES).map(str::to_owned).collect();
            let sum = found.entry(stack).or_default();
            *sum = sum.saturating_add(us);
        }
        Ok(Self { per, relists, lines: found })
    }

    /// Is it a mean relist, and not the whole?
    #[must_use]
    pub fn is_mean(&self) -> bool {
        self.per == Per::Relist
    }

    /// Its stacks, of the whole or of the mean relist.
    ///
    /// # Errors
    ///
    /// The whole is wanted of what is a mean.
    pub(super) fn per(&self, per: Per) -> io::Result<Stacks> {
        match (self.per, per) {
            (Per::Whole, Per::Relist) => {
                let relists = self.relists.max(1);
                let of_relists = self.lines.iter().filter(|(stack, _)| stack[0] == "relist");
                Ok(of_relists.map(|(stack, us)| (stack.clone(), us / relists)).collect())
            }
            (Per::Relist, Per::Whole) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, SavedError::Mean.to_string()))
            }
            (Per::Whole, Per::Whole) | (Per::Relist, Per::Relist) => Ok(self.lines.clone()),
        }
    }
}

fn header(line: &str) -> Option<(Per, u64)> {
    let what = line.strip_prefix("# plegtrace wall time by stack: ")?;
    let (per, what) = match what.strip_prefix("mean of ") {
        Some(rest) => (Per::Relist, rest),
        None => (Per::Whole, what),
    };
    let (relists, _) = what.split_once(" relists")?;
    Some((per, relists.parse().ok()?))
}

/// The stacks of both, each with its microseconds then and now.
pub(super) fn differences(before: &Stacks, now: &Lines) -> BTreeMap<Vec<String>, (u64, u64)> {
    let mut all: BTreeMap<Vec<String>, (u64, u64)> =
        before.iter().map(|(stack, us)| (stack.clone(), (*us, 0))).collect();
    for (stack, line) in &now.lines {
        all.entry(stack.clone()).or_default().1 = line.us;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# plegtrace wall time by stack: 4 relists, 2 other requests, 0 open; in microseconds\n\
                        relist;kubelet GetPods, list phase 800\nExecSync;[unexplained] 70\n";

    fn stacks(saved: &Saved, per: Per) -> Vec<(String, u64)> {
        saved.per(per).unwrap().into_iter().map(|(stack, us)| (stack.join(";"), us)).collect()
    }

    /// A file of the whole also gives the mean relist; the other way round there is no way.
    #[test]
    fn whole_and_mean() {
        let saved = Saved::read(FILE.as_bytes()).unwrap();
        assert_eq!(stacks(&saved, Per::Whole).len(), 2);
        assert_eq!(stacks(&saved, Per::Relist), [("relist;kubelet GetPods, list phase".to_owned(), 200)]);
        let mean = Saved { per: Per::Relist, ..saved };
        assert!(mean.per(Per::Whole).is_err());
    }

    /// What is no file of ours is refused, and says where.
    #[test]
    fn foreign_files() {
        let read = |text: &str| Saved::read(text.as_bytes()).unwrap_err().to_string();
        assert!(read("a;b 7\n").contains("no folded file of plegtrace"));
        assert!(read("").contains("no folded file of plegtrace"));
        assert!(read(&format!("{FILE}oops\n")).contains("line 4"));
        assert!(Saved::read(&b"# \xff\xfe"[..]).is_err());
    }
}
