//! One status line on stderr: rewritten in place on a terminal, a line per step elsewhere.

use std::io::{self, IsTerminal, Write};

/// The status line.
pub(crate) struct Progress {
    on: bool,
    terminal: bool,
    shown: bool,
}

impl Progress {
    /// Silent when `quiet`.
    #[must_use]
    pub(crate) fn new(quiet: bool) -> Self {
        Self { on: !quiet, terminal: io::stderr().is_terminal(), shown: false }
    }

    /// A step has begun: shown everywhere.
    pub(crate) fn step(&mut self, text: &str) {
        if self.on {
            self.clear();
            if self.terminal {
                self.write(&format!("plegtrace: {text}"));
                self.shown = true;
            } else {
                self.write(&format!("plegtrace: {text}\n"));
            }
        }
    }

    /// How far it is: only on terminals.
    pub(crate) fn tick(&mut self, text: &str) {
        if self.on && self.terminal {
            self.clear();
            self.write(&format!("plegtrace: {text}"));
            self.shown = true;
        }
    }

    /// Takes the line off the terminal before something else is printed.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            self.write("\r\x1b[2K");
            self.shown = false;
        }
    }

    /// A closed stderr is no reason to stop.
    #[expect(clippy::unused_self, reason = "a method of the line, not a free function")]
    fn write(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes());
        let _ = stderr.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
