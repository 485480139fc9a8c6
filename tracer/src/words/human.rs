//! Figures as people read them: durations, counts, sizes, moments.

/// A duration: three figures below 100 s, then two units.
#[must_use]
pub fn duration(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    for (unit, name, limit) in [(1_000, "µs", 1000), (1_000_000, "ms", 1000), (1_000_000_000, "s", 100)] {
        let rounded = |parts: u64| (u128::from(ns) * u128::from(parts) + unit / 2) / unit;
        let (tenths, whole) = (rounded(10), rounded(1));
        if tenths < 1000 {
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        if whole < limit {
            return format!("{whole} {name}");
        }
    }
    let seconds = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
    match seconds {
        0..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A limit of whole minutes: `2 min`.
#[must_use]
pub fn minutes(ns: u64) -> String {
    format!("{} min", count(ns / 60_000_000_000))
}

/// A count with separators: 48,211.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 call`, `3 calls`, `2 processes`.
#[must_use]
pub fn plural(n: u64, one: &str) -> String {
    let ending = match n {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {one}{ending}", count(n))
}

/// A size in MiB, which is the scale of this program.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// A size of a file: `812 bytes`, `1.2 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
        return plural(bytes, "byte");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// A share of one core, in percent.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole);
    format!("{}.{} %", hundredths / 100, hundredths % 100 / 10)
}

/// A part of a whole in whole percent: `58 %`, `< 1 %`.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    let percent = (u128::from(part) * 100 + u128::from(whole) / 2).checked_div(u128::from(whole));
    match percent {
        None => "–".into(),
        Some(0) if part > 0 => "< 1 %".into(),
        Some(percent) => format!("{percent} %"),
    }
}

/// RFC 3339 in UTC with nanoseconds.
#[must_use]
pub fn rfc3339(unix_ns: i64) -> String {
    format!("{:.9}", timestamp(unix_ns))
}

/// Time of day in UTC, to the second: `14:02:11Z`.
#[must_use]
pub fn clock(unix_ns: i64) -> String {
    timestamp(unix_ns).strftime("%H:%M:%SZ").to_string()
}

/// Date and time of day in UTC, to the second: `2026-11-22 02:41:48Z`.
#[must_use]
pub fn moment(unix_ns: i64) -> String {
    timestamp(unix_ns).strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn timestamp(unix_ns: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(unix_ns.into()).expect("64 bits of nanoseconds are years 1677 to 2262")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three figures, and no unit overflows into "1000".
    #[test]
    fn durations() {
        let table = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.0 µs"),
            (99_949, "99.9 µs"),
            (99_999, "100 µs"),
            (999_600, "1.0 ms"),
            (1_100_000, "1.1 ms"),
            (31_400_000_000, "31.4 s"),
            (99_960_000_000, "1 min 40 s"),
            (119_980_000_000, "2 min 0 s"),
            (272_000_000_000, "4 min 32 s"),
            (3_600_000_000_000, "1 h 0 min"),
            (90_000_000_000_000, "1 d 1 h"),
        ];
        for (ns, text) in table {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(duration(u64::MAX), "213503 d 23 h");
    }

    /// Thousands are separated, and one is no plural.
    #[test]
    fn counts() {
        assert_eq!((count(0), count(999), count(48_211)), ("0".into(), "999".into(), "48,211".into()));
        assert_eq!((plural(1, "call"), plural(1000, "call")), ("1 call".into(), "1,000 calls".into()));
    }

    /// Dates agree with `date -u -d @N`.
    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(1_709_164_800_000_000_001), "2024-02-29T00:00:00.000000001Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(clock(1_767_276_131_000_000_000), "14:02:11Z");
        assert_eq!(moment(1_767_276_131_000_000_000), "2026-01-01 14:02:11Z");
        assert_eq!((clock(-1), clock(999_999_999)), ("23:59:59Z".into(), "00:00:00Z".into()));
        assert_eq!(rfc3339(i64::MIN), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(rfc3339(i64::MAX), "2262-04-11T23:47:16.854775807Z");
    }

    /// Cost is shown to a tenth of a percent.
    #[test]
    fn percents() {
        assert_eq!((percent(3, 1000), percent(1, 0)), ("0.3 %".into(), "–".into()));
        let shares = [(0, 9), (1, 1000), (995, 1000), (1, 0)].map(|(part, whole)| share(part, whole));
        assert_eq!(shares, ["0 %", "< 1 %", "100 %", "–"]);
    }
}
