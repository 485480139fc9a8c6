//! What the tests of `plegtrace::census::goroutines` share: Go programs that park, and damaged pictures of a process.

pub(crate) mod torture;
