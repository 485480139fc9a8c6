//! [`KernelVersion`]: the first two numbers of `uname -r`. For words; it decides only what cannot be tried.

use std::fmt;

/// Major and minor number of a kernel release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl KernelVersion {
    /// A version.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads a release such as `5.10.0-28-amd64`, `4.18.0-513.el8.x86_64` or `7.0-rc3`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let (major, rest) = release.trim().split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: major.parse().ok()?, minor: rest[..digits].parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases of distributions, release candidates and nonsense.
    #[test]
    fn releases() {
        let parse = |s| KernelVersion::parse(s).map(|v| (v.major, v.minor));
        assert_eq!(parse("3.10.0-1160.el7.x86_64\n"), Some((3, 10)));
        assert_eq!(parse("4.18.0-513.el8.x86_64"), Some((4, 18)));
        assert_eq!(parse("7.0-rc3"), Some((7, 0)));
        assert_eq!(parse("6.1"), Some((6, 1)));
        assert_eq!(parse("6"), None);
        assert_eq!(parse("x.y.z"), None);
        assert_eq!(parse("5.99999999999999999999"), None);
        assert!(KernelVersion::new(5, 8) < KernelVersion::new(5, 10));
    }
}
