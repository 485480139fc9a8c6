//! The Debian suites the lab takes programs from.

use std::fmt;
use std::str::FromStr;

/// A suite of the Debian archive. They need not be the machine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suite {
    /// Debian 11.
    Bullseye,
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
    /// Unstable; its versions move.
    Sid,
    /// Newer packages for Debian 12, used for their Go toolchains only.
    BookwormBackports,
    /// Newer packages for Debian 13, used for their Go toolchains only.
    TrixieBackports,
}

impl Suite {
    /// The releases, oldest first.
    pub const ALL: [Suite; 4] = [Suite::Bullseye, Suite::Bookworm, Suite::Trixie, Suite::Sid];

    /// The name in the archive's `dists`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Suite::Bullseye => "bullseye",
            Suite::Bookworm => "bookworm",
            Suite::Trixie => "trixie",
            Suite::Sid => "sid",
            Suite::BookwormBackports => "bookworm-backports",
            Suite::TrixieBackports => "trixie-backports",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Suite {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Suite> {
        let found = Suite::ALL.into_iter().find(|suite| suite.name() == name);
        found.ok_or_else(|| anyhow::anyhow!("unknown suite {name}: use bullseye, bookworm, trixie or sid"))
    }
}
