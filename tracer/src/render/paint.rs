//! [`Paint`]: the few styles of a report; without colour it changes nothing.

use owo_colors::{OwoColorize, Style};

/// Colour or none, as the caller has decided.
#[derive(Clone, Copy, Debug)]
pub(in crate::render) struct Paint {
    pub(super) colour: bool,
}

impl Paint {
    /// Something is wrong.
    pub(super) fn bad(self, text: &str) -> String {
        self.apply(text, Style::new().red().bold())
    }

    /// Something is uncertain.
    pub(super) fn doubt(self, text: &str) -> String {
        self.apply(text, Style::new().yellow().bold())
    }

    /// All is well.
    pub(super) fn good(self, text: &str) -> String {
        self.apply(text, Style::new().green().bold())
    }

    /// The title of a section.
    pub(super) fn title(self, text: &str) -> String {
        self.apply(text, Style::new().bold())
    }

    /// Of less weight.
    pub(super) fn faint(self, text: &str) -> String {
        self.apply(text, Style::new().dimmed())
    }

    fn apply(self, text: &str, style: Style) -> String {
        if self.colour && !text.is_empty() { text.style(style).to_string() } else { text.to_owned() }
    }
}
