//! What to do and what not to do: commands that can be copied.

use super::block::{LABEL, Line, labelled};
use crate::{
    diagnose::Finding,
    render::{
        escape,
        wrap::{columns, fold_commands, plain},
    },
};

/// Steps on the first screen.
const STEPS: usize = 3;
/// Before each line of a comment to a command.
const COMMENT: &str = "  # ";
/// With this begins a trap that is an order.
const DO_NOT: &str = "Do not ";

/// The first steps, each with its lines.
pub(super) fn steps(texts: &[String], width: usize) -> Vec<Line> {
    let lines = texts.iter().take(STEPS).flat_map(|text| step(text, width - LABEL));
    labelled("do", lines.collect())
}

/// A step in lines of at most `width` columns: a command, and the rest as a comment of the shell, so that a whole line can
/// be copied.
pub(in crate::render) fn step(text: &str, width: usize) -> Vec<String> {
    let text = escape::line(text);
    let mut parts = text.splitn(3, '`');
    let (Some(lead), Some(command), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return fold_commands(&text, width);
    };
    let is_aside = rest.is_empty() || rest.starts_with([':', ',', ';']) || rest.starts_with(" (");
    let is_step = lead.is_empty() || [": ", "then ", "else "].iter().any(|end| lead.ends_with(end));
    if !is_aside || !is_step {
        return fold_commands(&text, width);
    }
    let rest = rest.trim_start_matches([':', ',', ';']).trim();
    let whole = format!("{lead}{command}   # {}", plain(rest));
    if !rest.is_empty() && columns(&whole) <= width {
        return vec![whole];
    }
    let mut lines = fold_commands(&format!("{lead}`{command}`"), width);
    let comment = fold_commands(rest, width - COMMENT.len());
    lines.extend(comment.into_iter().map(|line| format!("{COMMENT}{line}")));
    lines
}

/// What not to do: as an order, or as a warning.
pub(super) fn trap(finding: &Finding, width: usize) -> Vec<Line> {
    let trap = finding.rule.page.trap;
    match trap.strip_prefix(DO_NOT) {
        Some(order) => labelled("don't", fold_commands(order, width - LABEL)),
        None => labelled("beware", fold_commands(trap, width - LABEL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows a command is a comment to it; a condition before it stays before it.
    #[test]
    fn comments() {
        assert_eq!(step("`kill 7`: the kubelet tries again", 60), ["kill 7   # the kubelet tries again"]);
        assert_eq!(
            step("if it stays: `kill -9 7`, which ends it", 60),
            ["if it stays: kill -9 7   # which ends it"]
        );
        assert_eq!(
            step("`kill 7`: the kubelet tries again", 20),
            ["kill 7", "  # the kubelet", "  # tries again"]
        );
        assert_eq!(step("upgrade runc", 60), ["upgrade runc"]);
        assert_eq!(step("lazily (`umount -l`) and so", 60), ["lazily (umount -l) and so"]);
    }
}
