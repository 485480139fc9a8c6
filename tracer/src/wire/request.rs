//! One gRPC request, as its two directions showed it.

use std::fmt;
use std::sync::Arc;

use plegtrace_common::wire::grpc::Messages;

use super::Side;
use super::hpack::JOIN;

/// Longest method that is believed, bytes with both slashes.
const MAX_METHOD: usize = 200;

/// What was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// `/package.Service/Method`, of the right form.
    Known(Arc<str>),
    /// Its path is an entry of the header table that is older than us, and was not learnt yet.
    Unknown {
        /// How many insertions before we came the first such entry of the request was made; the same for all requests of
        /// one method, and as long as nothing was taught perhaps also for those of others. 0 when it has none.
        entry: u64,
        /// Which table of the connection that is: bytes that were missed cost one.
        epoch: u32,
    },
    /// Its path is none of gRPC, or its header block could not be read.
    Unreadable,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(path) => f.write_str(path),
            Self::Unknown { entry, epoch: 0 } => write!(f, "unknown#{entry}"),
            Self::Unknown { entry, epoch } => write!(f, "unknown#{entry}.{epoch}"),
            Self::Unreadable => f.write_str("unreadable"),
        }
    }
}

impl Method {
    /// A path, when it is one of gRPC: `/[A-Za-z0-9_.]+/[A-Za-z0-9_]+`.
    pub(super) fn of_path(path: &Arc<str>) -> Self {
        let is_word = |text: &str, also_dot: bool| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || (also_dot && c == '.');
            !text.is_empty() && text.chars().all(is_part)
        };
        let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
        let is_method =
            parts.is_some_and(|(service, method)| is_word(service, true) && is_word(method, false));
        if is_method && path.len() <= MAX_METHOD { Self::Known(Arc::clone(path)) } else { Self::Unreadable }
    }

    /// A request whose path is one of these entries.
    pub(super) fn unknown(among: &[u64], epoch: u32) -> Self {
        let entry = among.first().map_or(0, |ordinal| JOIN.saturating_sub(*ordinal));
        Self::Unknown { entry, epoch }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server's trailers: its grpc-status, `None` when it is an entry of the header table that nobody knows.
    Status(Option<u32>),
    /// The server ended the stream without trailers: not what gRPC does.
    WithoutTrailers,
    /// The stream was reset.
    Reset {
        /// By whom.
        by: Side,
        /// The error code (RFC 9113, 7).
        code: u32,
    },
    /// The server said that it will not serve it.
    Refused {
        /// The error code.
        code: u32,
    },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its stream.
    pub stream: u32,
    /// What was called.
    pub method: Method,
    /// The client's deadline, nanoseconds; `None` when it has none or it is not known.
    pub timeout_ns: Option<u64>,
    /// When its header block was sent, in the clock of the pushes, nanoseconds.
    pub start_ns: u64,
    /// When and how it ended.
    pub end: Option<(u64, End)>,
    /// Messages of the client.
    pub sent: Messages,
    /// Messages of the server.
    pub received: Messages,
    /// Whether the client has nothing more to say.
    pub half_closed: bool,
    /// Whether the server sent anything on the stream.
    pub answered: bool,
    /// Bytes were missed while it was open: it may have ended.
    pub doubtful: bool,
}

/// The value of `grpc-timeout`: at most eight digits and a unit.
pub(super) fn timeout_ns(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let each = match unit {
        'H' => 3_600_000_000_000,
        'M' => 60_000_000_000,
        'S' => 1_000_000_000,
        'm' => 1_000_000,
        'u' => 1_000,
        'n' => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_are_methods() {
        let known = |path: &str| matches!(Method::of_path(&path.into()), Method::Known(_));
        assert!(known("/runtime.v1.RuntimeService/ListPodSandbox"));
        for path in ["", "/", "/a", "/a/", "//b", "a/b", "/a/b/c", "/a b/c", "/a/b.c", "/ä/b", "/a/b\n"] {
            assert!(!known(path), "{path:?}");
        }
        assert!(!known(&format!("/a/{}", "b".repeat(MAX_METHOD))));
    }

    #[test]
    fn timeouts() {
        assert_eq!(timeout_ns("120000m"), Some(120_000_000_000));
        assert_eq!(timeout_ns("5S"), Some(5_000_000_000));
        assert_eq!(timeout_ns("99999999H"), None, "more than 64 bits");
        for text in ["", "5", "m", "+5m", "123456789m", "5x", "5µ"] {
            assert_eq!(timeout_ns(text), None, "{text}");
        }
    }
}
