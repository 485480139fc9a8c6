//! [`chain`]: an error in one line.

use std::error::Error;

/// An error with its causes, from the outermost to the first.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
