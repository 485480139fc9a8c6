//! [`Age`]: how long something lasts.

/// An age, or a lower bound of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// Nanoseconds.
    pub ns: u64,
    /// It may be older.
    pub at_least: bool,
}
