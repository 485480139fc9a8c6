//! Requests outside of relists as trees: those that are open, else the slowest.

use std::{collections::HashSet, io};

use super::{page::Page, processes::short, tree};
use crate::{
    correlate::{Caller, RequestTree, thresholds::SECOND_NS},
    input::Layer,
    render::{human, wrap::fold},
};

/// Shorter ones are the node's daily work.
const WORTH_SHOWING_NS: u64 = SECOND_NS;
/// Of finished ones that are shorter not even a verbose report tells; JSON does.
const WORTH_A_TREE_NS: u64 = SECOND_NS / 100;
/// Trees of open requests, when the report is not verbose.
const OPEN: usize = 3;
/// Trees of finished ones, when none is open.
const FINISHED: usize = 1;

/// Writes the open requests, oldest first; when there is none, the slowest.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let now = page.snapshot.now;
    let worth = |request: &&RequestTree| {
        let least = match (page.verbose, request.root().is_open()) {
            (true, true) => 0,
            (true, false) => WORTH_A_TREE_NS,
            (false, _) => WORTH_SHOWING_NS,
        };
        request.root().duration_ns(now) >= least
    };
    let (open, finished): (Vec<&RequestTree>, Vec<&RequestTree>) =
        page.snapshot.requests.iter().filter(worth).partition(|request| request.root().is_open());
    if !open.is_empty() {
        let rest = format!("{} open, oldest first", human::count(open.len() as u64));
        page.section("Open requests", &rest)?;
        some(page, &open, OPEN)?;
    }
    if !finished.is_empty() && (open.is_empty() || page.verbose) {
        let title = if page.verbose { "Slowest requests" } else { "Slowest request" };
        page.section(title, "the longest of each operation")?;
        some(page, &finished, FINISHED)?;
    }
    Ok(())
}

/// Writes the first ones, each of another operation: those of one operation mostly wait alike.
fn some(page: &mut Page<'_>, all: &[&RequestTree], most: usize) -> io::Result<()> {
    let mut operations = HashSet::new();
    let first = all.iter().filter(|request| page.verbose || operations.insert(request.root().operation()));
    let shown: Vec<&RequestTree> =
        first.copied().take(if page.verbose { usize::MAX } else { most }).collect();
    for (place, request) in shown.iter().enumerate() {
        if place > 0 {
            writeln!(page.out)?;
        }
        tree::draw(page, &request.tree)?;
        for line in fold(&about(request, page), page.width - 2) {
            writeln!(page.out, "  {}", page.paint.faint(&line))?;
        }
    }
    page.more(all.len() - shown.len())
}

/// When it began, what it is about, who asked for it, and what its tree does not show.
fn about(request: &RequestTree, page: &Page<'_>) -> String {
    let root = request.root();
    let mut parts = vec![format!("began {}", human::clock(page.snapshot.wall_ns(root.start())))];
    parts.extend(request.container.as_deref().map(|id| format!("container {}", short(id))));
    if root.layer() == Layer::Handler {
        parts.push(match request.caller {
            Caller::Gone(at) => {
                format!("given up by the kubelet {} ago", human::duration(page.snapshot.now.since(at)))
            }
            Caller::Foreign => "called by a client other than the kubelet".into(),
            Caller::Own => "asked by plegtrace".into(),
            Caller::NotAsked | Caller::Waiting | Caller::Unknown => "caller unknown".into(),
        });
    }
    if request.left_out > 0 {
        let what = if request.left_out == 1 { "process" } else { "processes" };
        let count = human::count(request.left_out);
        parts.push(format!(
            "left out {count} {what} that overlap those shown or may belong to another request"
        ));
    }
    parts.join(", ")
}
