//! `/proc/pressure/*`: shares of time in which some task waited (Documentation/accounting/psi.rst).

/// Hundredths of a percent of the last ten seconds, from the line that begins with `kind` ("some", "full").
pub(in crate::census) fn pressure(text: &str, kind: &str) -> Option<u32> {
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
    let value = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    let (percent, hundredths) = value.split_once('.')?;
    let hundredths: u32 = hundredths.get(..2)?.parse().ok()?;
    percent.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both lines; damaged ones have no value.
    #[test]
    fn lines() {
        let text = "some avg10=12.04 avg60=3.10 avg300=1.00 total=123\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!((pressure(text, "some"), pressure(text, "full")), (Some(1204), Some(50)));
        assert_eq!(pressure("some avg10=", "some"), None);
        assert_eq!(pressure("some avg10=99999999999.00", "some"), None);
        assert_eq!(pressure("", "full"), None);
    }
}
