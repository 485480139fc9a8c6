//! Lengths of time as people type them.

use std::time::Duration;

/// The time of `60s`, `5m`, `1h 30m`, `7d`, or of a number of seconds.
///
/// # Errors
///
/// No such time, or none that is above zero.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong =
        || "a length of time is a number of seconds, or one with s, m, h or d: 60s, 5m, 1h30m, 7d".to_owned();
    let (mut total, mut number, mut any) = (0_u64, String::new(), false);
    for c in text.chars().filter(|c| *c != ' ') {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let seconds = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let count: u64 = number.parse().map_err(|_| wrong())?;
        total = count.checked_mul(seconds).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        number.clear();
        any = true;
    }
    if !number.is_empty() {
        let seconds: u64 = number.parse().ok().filter(|_| !any).ok_or_else(wrong)?;
        total = seconds;
    }
    // A hundred years: nothing of ours lasts longer, and no sum overflows.
    if total == 0 || total > 100 * 366 * 86_400 { Err(wrong()) } else { Ok(Duration::from_secs(total)) }
}

/// The length of a window: a second to an hour.
///
/// # Errors
///
/// It is shorter, longer, or none.
pub(super) fn parse_window(text: &str) -> Result<Duration, String> {
    let window = parse(text)?;
    if window > Duration::from_secs(3600) {
        Err("a window is at most an hour long".to_owned())
    } else {
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units add up; nonsense is refused.
    #[test]
    fn lengths() {
        for (text, seconds) in
            [("60s", 60), ("5m", 300), ("1h30m", 5400), ("1h 30m", 5400), ("7d", 604_800), ("90", 90)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "0", "0s", "s", "-1s", "1.5h", "1h30", "5x", "99999999999999999999s", "99999999999d", "5 ü"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_window("1h").is_ok() && parse_window("61m").is_err());
    }
}
