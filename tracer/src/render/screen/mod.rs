//! The first screen of a report: what, who, since when, who suffers, what to do and what not, and why. At most 24 lines of 80 columns
//! for a verdict that calls for action, 20 for a healthy node; what does not fit is cut where it matters least, and
//! marked "…". The rest of the report is for whoever asks.

mod advice;
mod block;
mod cause;
mod facts;
mod headline;
mod healthy;
mod node;
mod problem;
mod versions;
mod waits;

use std::io::{self, Write};

use super::paint::Paint;
use crate::{
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict},
};

pub(in crate::render) use advice::step;
pub(in crate::render) use cause::cause;
pub(in crate::render) use facts::since;
pub use headline::headline;
pub(in crate::render) use versions::has_crio;

/// Lines of the screen of a verdict that calls for action: a terminal.
const MOST: usize = 24;
/// Lines of the screen of a healthy node.
const MOST_HEALTHY: usize = 20;

/// What the screen is about, and how wide it is.
#[derive(Clone, Copy)]
pub(in crate::render) struct View<'a> {
    /// The facts.
    pub(in crate::render) snapshot: &'a Snapshot,
    /// What they mean.
    pub(in crate::render) diagnosis: &'a Diagnosis,
    /// Columns.
    pub(in crate::render) width: usize,
}

/// Writes the screen.
///
/// # Errors
///
/// Writing fails.
pub(in crate::render) fn write(view: View<'_>, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let (blocks, most) = match view.diagnosis.verdict {
        Verdict::Healthy => (healthy::blocks(view)?, MOST_HEALTHY),
        Verdict::CannotTell => (healthy::blocks(view)?, MOST),
        Verdict::Stall | Verdict::Failing | Verdict::Slow => (problem::blocks(view), MOST),
    };
    let verdict = view.diagnosis.verdict;
    block::fit(blocks, most, view.width).iter().try_for_each(|line| line.write(verdict, paint, out))
}
