//! The guests: which Debian releases, and which kernel each is known for.

use anyhow::{Result, bail};

/// A Debian release whose kernel and runtime we test on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// How its kernel's version begins; sid moves on.
    pub(crate) kernel: &'static str,
    /// An image older than this is made anew: sid changes every day, the others rarely.
    pub(crate) fresh_days: u64,
}

/// The release that everything else rests on: its archive has to be there.
pub(crate) const BASE: &str = "bookworm";

/// Oldest kernel first.
pub(crate) const ALL: [Suite; 4] = [
    Suite { name: "bullseye", kernel: "5.10", fresh_days: 90 },
    Suite { name: "bookworm", kernel: "6.1", fresh_days: 30 },
    Suite { name: "trixie", kernel: "6.12", fresh_days: 30 },
    Suite { name: "sid", kernel: "7", fresh_days: 7 },
];

/// The suites that were asked for by name or by kernel version; all when none was.
///
/// # Errors
/// When a name is not known; the message lists those that are.
pub(crate) fn select(wanted: &[String]) -> Result<Vec<Suite>> {
    if wanted.is_empty() {
        return Ok(ALL.to_vec());
    }
    for name in wanted {
        if !ALL.iter().any(|suite| suite.matches(name)) {
            let known: Vec<String> = ALL.iter().map(|s| format!("{} ({})", s.name, s.kernel)).collect();
            bail!("no guest {name}: choose from {}", known.join(", "));
        }
    }
    Ok(ALL.into_iter().filter(|suite| wanted.iter().any(|name| suite.matches(name))).collect())
}

impl Suite {
    fn matches(&self, name: &str) -> bool {
        name == self.name || name == self.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guests are found by release and by kernel, in our order, and a wrong name is told the right ones.
    #[test]
    fn suites_are_selected() {
        let names = |wanted: &[&str]| -> Vec<&str> {
            let wanted: Vec<String> = wanted.iter().map(|w| (*w).to_owned()).collect();
            select(&wanted).unwrap().iter().map(|s| s.name).collect()
        };
        assert_eq!(names(&[]), ["bullseye", "bookworm", "trixie", "sid"]);
        assert_eq!(names(&["6.12", "bullseye"]), ["bullseye", "trixie"]);
        let error = select(&["6.6".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("bookworm (6.1)"), "{error}");
    }
}
