//! A [`Flame`] as folded text, as an interactive picture (SVG), and against an earlier one.
//!
//! Folded text has a line for each stack: its frames, outermost first, joined by `;`, a space, and the wall time spent in
//! the innermost frame itself, in microseconds. A first line that begins with `# ` says what was folded. It is the format of
//! the usual tools for flame graphs, which ignore that line.

mod legend;
mod lines;
mod saved;
mod svg;

pub use lines::Per;
pub use saved::{Saved, SavedError};

use std::io::{self, Write};

use crate::flame::Flame;
use lines::Lines;

/// What belongs above a picture.
#[derive(Clone, Debug, Default)]
pub struct Caption {
    /// Node, moment, or file. Hostile text.
    pub about: String,
}

/// Writes folded text. With `before`, each line has two figures: that of `before`, and that of now.
///
/// # Errors
///
/// `out` cannot be written, or `before` was made in another way.
pub fn folded(flame: &Flame, per: Per, before: Option<&Saved>, out: &mut dyn Write) -> io::Result<()> {
    let lines = Lines::new(flame, per);
    writeln!(out, "# {}", lines.header())?;
    let Some(before) = before else {
        for (stack, line) in &lines.lines {
            writeln!(out, "{} {}", stack.join(";"), line.us)?;
        }
        return Ok(());
    };
    for (stack, (then, now)) in saved::differences(&before.per(per)?, &lines) {
        writeln!(out, "{} {then} {now}", stack.join(";"))?;
    }
    Ok(())
}

/// Writes an interactive picture: a click on a frame zooms, Ctrl-F searches. With `before`, what has grown is red, and
/// what has shrunk is blue.
///
/// # Errors
///
/// `out` cannot be written, or `before` was made in another way.
pub fn svg(
    flame: &Flame,
    per: Per,
    before: Option<&Saved>,
    caption: &Caption,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = Lines::new(flame, per);
    match before {
        None => svg::plain(&lines, flame, caption, out),
        Some(before) => svg::difference(&before.per(per)?, &lines, caption, out),
    }
}
