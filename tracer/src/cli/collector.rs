//! [`Collector`]: who gets traces, as typed.

use std::{fmt, str::FromStr};

use http::Uri;

/// The gRPC address of a collector, as in `http://127.0.0.1:4317`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    url: String,
}

/// Why that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectorError {
    /// No address that could be meant.
    #[error("it takes the gRPC address of a collector, such as http://127.0.0.1:4317")]
    Url,
    /// There is no TLS here.
    #[error(
        "there is no TLS: send to a collector on this node, http://127.0.0.1:4317, and from there on with TLS"
    )]
    Tls,
}

impl Collector {
    /// The address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(url: &str) -> Result<Self, CollectorError> {
        let uri: Uri = url.parse().map_err(|_| CollectorError::Url)?;
        match uri.scheme_str() {
            Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => {
                Ok(Self { url: url.to_owned() })
            }
            Some("https") => Err(CollectorError::Tls),
            _ => Err(CollectorError::Url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["http://127.0.0.1:4317", "http://collector.monitoring", "http://[::1]:4317/"] {
            assert_eq!(good.parse::<Collector>().unwrap().url(), good);
        }
        for wrong in ["127.0.0.1:4317", "", "http://", "unix:/run/x", "grpc://x:1"] {
            assert_eq!(wrong.parse::<Collector>(), Err(CollectorError::Url), "{wrong}");
        }
        assert_eq!("https://x:4317".parse::<Collector>(), Err(CollectorError::Tls));
    }
}
