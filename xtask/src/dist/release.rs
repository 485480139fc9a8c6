//! What a release is called and when it was made: by the commit, never by the clock.

use anyhow::{Context as _, Result};

use crate::commit;

/// A version of plegtrace as it is shipped.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// The commit, with `+` when the checkout differed from it.
    pub(crate) commit: String,
    /// Seconds since 1970: `$SOURCE_DATE_EPOCH`, else when the commit was made. Every file carries this time.
    pub(crate) time: u64,
}

impl Release {
    /// The release that this checkout is. `built_of`: the commit that the program names, which may be another one; one that names
    /// none is taken for this checkout's.
    ///
    /// # Errors
    /// When git cannot be asked, or `$SOURCE_DATE_EPOCH` is no number.
    pub(crate) fn of_checkout(built_of: Option<String>) -> Result<Self> {
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => commit::time()?,
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: built_of.map_or_else(commit::of_checkout, Ok)?,
            time: time.parse().with_context(|| format!("no time in seconds since 1970: {time}"))?,
        })
    }

    /// The time as RFC 3339 has it, in UTC.
    ///
    /// # Errors
    /// When the time is beyond year 9999.
    pub(crate) fn date(&self) -> Result<String> {
        let seconds = i64::try_from(self.time).context("a time that is no time")?;
        Ok(jiff::Timestamp::from_second(seconds).ok().context("a time beyond year 9999")?.to_string())
    }
}

#[cfg(test)]
impl Release {
    /// A release for tests.
    pub(crate) fn sample() -> Self {
        Self { version: "1.2.3".to_owned(), commit: "c0ffee".to_owned(), time: 1_700_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dates are UTC, to the second.
    #[test]
    fn the_date_is_in_utc() {
        assert_eq!(Release::sample().date().unwrap(), "2023-11-14T22:13:20Z");
    }
}
