//! [`GoVersion`]: the release that built a binary, from strings like `go1.24.4` or `go1.18.1 X:noregabi`.

use std::fmt;

/// Oldest release whose layouts are known here.
pub(crate) const OLDEST: GoVersion = GoVersion { major: 1, minor: 13 };
/// Newest release whose layouts are known here.
pub(crate) const NEWEST: GoVersion = GoVersion { major: 1, minor: 27 };

/// Major and minor release; layouts never changed within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoVersion {
    /// 1.
    pub major: u16,
    /// 13 to 27.
    pub minor: u16,
}

impl GoVersion {
    /// Go 1.`minor`.
    #[must_use]
    pub const fn minor(minor: u16) -> Self {
        Self { major: 1, minor }
    }

    /// Reads `go1.24.4`, `go1.25rc1`, `go1.19.8 X:exp`, `devel go1.22-abcdef`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("devel ").unwrap_or(text);
        let (major, rest) = digits(text.strip_prefix("go")?)?;
        let (minor, _) = digits(rest.strip_prefix('.')?)?;
        Some(Self { major, minor })
    }

    /// Are the layouts of this release known?
    #[must_use]
    pub fn is_supported(self) -> bool {
        (OLDEST..=NEWEST).contains(&self)
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "go{}.{}", self.major, self.minor)
    }
}

fn digits(text: &str) -> Option<(u16, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every spelling the linker writes is understood.
    #[test]
    fn spellings() {
        let parse = |text| GoVersion::parse(text).map(|version| version.minor);
        assert_eq!(parse("go1.15.15"), Some(15));
        assert_eq!(parse("go1.27"), Some(27));
        assert_eq!(parse("go1.25rc1"), Some(25));
        assert_eq!(parse("go1.17.13 X:noregabi"), Some(17));
        assert_eq!(parse("devel go1.22-8c445b7 Thu"), Some(22));
        assert_eq!(parse("gcc 12"), None);
        assert_eq!(parse("go1.99999999"), None);
    }

    /// Releases outside of the tables are not supported.
    #[test]
    fn range() {
        assert!(!GoVersion::minor(12).is_supported());
        assert!(GoVersion::minor(13).is_supported());
        assert!(GoVersion::minor(27).is_supported());
        assert!(!GoVersion::minor(28).is_supported());
    }
}
