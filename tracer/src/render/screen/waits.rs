//! Who waits for whom, as a picture: a line for each party, its age at the right, the end marked.

use super::block::Line;
use crate::{
    diagnose::Link,
    render::{
        escape,
        human::duration,
        wrap::{clip, columns},
    },
    words,
};

/// Parties that are shown; of a longer chain those in the middle are left out.
const MOST: usize = 7;
/// Of these, from its end.
const LAST: usize = 4;
/// Marks the end of the chain.
const END: &str = "◀ here";

/// The lines; none where there is no chain.
pub(super) fn lines(chain: &[Link], width: usize) -> Vec<Line> {
    if chain.len() < 2 {
        return Vec::new();
    }
    let cut = chain.len() > MOST;
    let is_shown = |place: usize| !cut || place < MOST - LAST || place + LAST >= chain.len();
    let names: Vec<String> = chain.iter().map(name).collect();
    let wide = names.iter().map(|name| columns(name)).max().unwrap_or(0);
    let mut lines = vec![row("who waits for whom", "for", width, Line::Title)];
    let mut last = "";
    for (place, link) in chain.iter().enumerate() {
        if !is_shown(place) {
            if place + LAST + 1 == chain.len() {
                let left = chain.len() - MOST;
                lines.push(Line::Plain(format!("  {:wide$}  … {left} more, -v", "")));
            }
            continue;
        }
        // One name for lines of one process.
        let name = if names[place] == last { "" } else { &names[place] };
        last = &names[place];
        let gap = " ".repeat(wide - columns(name));
        let branch =
            if link.depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(link.depth - 1)) };
        let text = format!("  {name}{gap}  {branch}{}", escape::line(&link.words));
        lines.push(row(&text, &age(link), width, Line::Plain));
    }
    lines
}

fn name(link: &Link) -> String {
    let name = escape::text_to(&link.name, 20);
    link.pid.map_or_else(|| name.clone(), |pid| format!("{name} {pid}"))
}

fn age(link: &Link) -> String {
    match link.age {
        _ if link.is_end => END.to_owned(),
        Some(age) if age.at_least && age.ns == 0 => String::new(),
        Some(age) => format!("{}{}", if age.at_least { "≥ " } else { "" }, duration(age.ns)),
        None => String::new(),
    }
}

/// A text at the left and one at the right.
fn row(left: &str, right: &str, width: usize, line: fn(String) -> Line) -> Line {
    if right.is_empty() {
        return line(clip(left, width));
    }
    let left = clip(left, width - columns(right) - 2);
    let gap = " ".repeat(width - columns(&left) - columns(right));
    line(format!("{left}{gap}{right}"))
}

/// One party in words, for a chain of one.
pub(super) fn sentence(link: &Link) -> String {
    let age = link.age.map(|age| format!(", {}", words::age(age))).unwrap_or_default();
    format!("{}: {}{age}", name(link), escape::line(&link.words))
}
