//! `/proc/sys/kernel/osrelease` → a version that can be compared.

use std::fmt;
use std::fs;

use anyhow::{Context as _, Result};

/// Major and minor version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// The kernel we run on.
    ///
    /// # Errors
    /// When procfs is not mounted or the release does not begin with two numbers.
    pub fn running() -> Result<Self> {
        let release =
            fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's release")?;
        Self::parse(&release).with_context(|| format!("no version in the kernel's release {release:?}"))
    }

    /// The version at the beginning of a release such as `6.1.0-35-cloud-amd64`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases of distributions and of release candidates are understood and ordered.
    #[test]
    fn releases_are_parsed() {
        assert_eq!(KernelVersion::parse("5.10.0-35-cloud-amd64\n"), Some(KernelVersion(5, 10)));
        assert_eq!(KernelVersion::parse("7.0-rc3"), Some(KernelVersion(7, 0)));
        assert_eq!(KernelVersion::parse("next"), None);
        assert!(KernelVersion(5, 10) > KernelVersion(5, 8));
    }
}
