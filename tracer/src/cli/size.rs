//! Sizes as people type them.

/// Smallest recording: one block must fit in, whatever is in it.
const LEAST: u64 = 1 << 20;

/// Bytes of `256M`, `1G`, `2000000`; K, M and G are powers of 1024.
///
/// # Errors
///
/// No such size, or one that is too small or too large.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err("a size is a number of bytes, or one with K, M or G".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "a size is a number of bytes, or one with K, M or G")?;
    let bytes = number.checked_mul(1 << shift).ok_or("too large")?;
    if bytes < LEAST { Err("at least 1M".into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units are powers of 1024, in whatever case; nonsense is refused.
    #[test]
    fn sizes() {
        for (text, bytes) in [("1M", 1 << 20), ("256m", 256 << 20), ("3G", 3 << 30), ("2000000", 2_000_000)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("2048KiB"), Ok(2 << 20));
        for text in ["", "M", "-1M", "1T", "1.5M", "512K", "99999999999999999999", "99999999999999G", "1M ü"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
