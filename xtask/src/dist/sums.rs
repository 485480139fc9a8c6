//! SHA-256, and the file that `sha256sum --check` reads.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::command::Asset;

/// The name of the file.
pub(crate) const NAME: &str = "SHA256SUMS";

/// The sum in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// One line for each file, by name.
pub(crate) fn of(assets: &[Asset]) -> String {
    let mut lines: Vec<(&str, String)> =
        assets.iter().map(|asset| (asset.name.as_str(), sha256(&asset.contents))).collect();
    lines.sort_unstable();
    lines.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of coreutils; the sum of nothing is a known one.
    #[test]
    fn sums_are_those_of_coreutils() {
        let asset = |name: &str| Asset { name: name.to_owned(), contents: Vec::new() };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of(&[asset("b"), asset("a")]), format!("{empty}  a\n{empty}  b\n"));
    }
}
