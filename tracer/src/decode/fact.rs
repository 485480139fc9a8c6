//! JSON of a fact → [`Fact`]; the message of a failure is cut to a bounded length.

use super::DecodeError;
use crate::input::Fact;

/// Longest message of a parser that is kept.
const MAX_MESSAGE: usize = 200;

/// Reads a fact.
pub(super) fn decode(json: &[u8]) -> Result<Fact, DecodeError> {
    serde_json::from_slice(json).map_err(|error| {
        let mut message = error.to_string();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
        }
        DecodeError::Fact(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fact of a later version, or garbage, is an error; deep nesting does not exhaust the stack.
    #[test]
    fn garbage_is_an_error() {
        for json in [&b"{\"fact\":\"from_the_future\"}"[..], b"", b"\xff", &[b'['; 100_000]] {
            assert!(matches!(decode(json), Err(DecodeError::Fact(_))));
        }
    }
}
