//! The picture, drawn by inferno.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
};

use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{BackgroundColor, Color, PaletteMap, StrokeColor},
};

use super::{
    Caption, legend,
    lines::{Line, Lines, Per},
    saved::{Stacks, differences},
};
use crate::{
    flame::{Flame, Kind},
    render::{escape, human},
};

/// What a microsecond is called in titles. They are rewritten, so this is only how they are found.
const UNIT: &str = "us";

/// The picture of one time.
pub(super) fn plain(lines: &Lines, flame: &Flame, caption: &Caption, out: &mut dyn Write) -> io::Result<()> {
    let all = lines.or_nothing();
    let mut colours = PaletteMap::default();
    // The frame below all others, which inferno adds, has no name.
    colours.insert("", colour(None));
    for (stack, line) in &all {
        for (name, (kind, _)) in stack.iter().zip(&line.frames) {
            colours.insert(name, colour(*kind));
        }
    }
    let mut options = options(lines, caption);
    options.palette_map = Some(&mut colours);
    let text: Vec<String> =
        all.iter().map(|(stack, line)| format!("{} {}", stack.join(";"), line.us)).collect();
    let mut drawn = Vec::new();
    draw(&mut options, &text, &mut drawn)?;
    let kinds = all.values().flat_map(|line| line.frames.iter().filter_map(|(kind, _)| *kind)).collect();
    let drawn = legend::add(&String::from_utf8_lossy(&drawn), &kinds, missing(flame));
    retitle(&drawn, &figures(&all), out)
}

/// What has changed since `before`.
pub(super) fn difference(
    before: &Stacks,
    lines: &Lines,
    caption: &Caption,
    out: &mut dyn Write,
) -> io::Result<()> {
    let all = differences(before, lines);
    let mut options = options(lines, caption);
    options.title = format!("{}: red has grown, blue has shrunk", options.title);
    let mut text: Vec<String> =
        all.iter().map(|(stack, (then, now))| format!("{} {then} {now}", stack.join(";"))).collect();
    if all.values().all(|(_, now)| *now == 0) {
        text = vec![format!("{} 1", lines.or_nothing().into_keys().next().unwrap_or_default().join(";"))];
    }
    draw(&mut options, &text, out)
}

fn options<'a>(lines: &Lines, caption: &Caption) -> Options<'a> {
    let mut options = Options::default();
    options.title = match lines.per {
        Per::Whole => "plegtrace: wall time of relists and CRI requests".to_owned(),
        Per::Relist => format!("plegtrace: the mean of {}", human::plural(lines.relists, "relist")),
    };
    let seen = match lines.per {
        Per::Whole => {
            let (relists, requests) = (lines.relists, lines.requests);
            let others = human::plural(requests, "other request");
            let open = human::count(lines.open);
            format!("{}, {others}, {open} open", human::plural(relists, "relist"))
        }
        Per::Relist => String::new(),
    };
    let parts = [escape::text(&caption.about), seen];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    options.subtitle = Some(parts.join(" · ")).filter(|text| !text.is_empty());
    options.count_name = UNIT.to_owned();
    options.name_type = "".to_owned();
    options.bgcolors = Some(BackgroundColor::Grey);
    // Neighbours of one colour are told apart.
    options.stroke_color = StrokeColor::Color(Color { r: 238, g: 238, b: 238 });
    // Names are told apart by their beginning.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The lines are in the order in which they are to be drawn: this keeps inferno from sorting them as texts, where the
    // same frame could come twice.
    options.flame_chart = true;
    options
}

/// What is not in the picture.
fn missing(flame: &Flame) -> &'static str {
    if flame.is_complete() {
        ""
    } else {
        "incomplete: some requests were given up before they could be drawn"
    }
}

fn draw(options: &mut Options<'_>, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    flamegraph::from_lines(options, lines.iter().rev().map(String::as_str), out)
}

/// Running, waiting and the rest have colours that people who see few colours can tell apart, too.
pub(super) fn colour(kind: Option<Kind>) -> Color {
    let (r, g, b) = match kind {
        Some(Kind::Runs) => (230, 97, 1),
        Some(Kind::Waits | Kind::Kernel | Kind::Function) => (116, 173, 229),
        Some(Kind::WaitsShortly) => (171, 205, 239),
        Some(Kind::Transport) => (178, 171, 210),
        Some(Kind::Program | Kind::Phase) => (253, 184, 99),
        Some(Kind::Kubelet) => (214, 226, 160),
        Some(Kind::Runtime) => (166, 206, 145),
        Some(Kind::Root) => (235, 225, 190),
        Some(Kind::Unexplained | Kind::Other) | None => (190, 190, 190),
    };
    Color { r, g, b }
}

/// Where a frame is drawn: its depth, and what is left of it, microseconds.
type Place = (usize, u64);

/// Wall time in each frame, microseconds, and how often it was entered.
fn figures(lines: &BTreeMap<Vec<String>, Line>) -> HashMap<Place, (u64, u64)> {
    let mut found: HashMap<Place, (u64, u64)> = HashMap::new();
    let mut begins: Vec<u64> = Vec::new();
    let (mut left, mut last): (u64, &[String]) = (0, &[]);
    for (stack, line) in lines {
        let same = stack.iter().zip(last).take_while(|(a, b)| a == b).count();
        begins.truncate(same);
        begins.resize(stack.len(), left);
        for (depth, (begin, (_, count))) in begins.iter().zip(&line.frames).enumerate() {
            let figure = found.entry((depth, *begin)).or_insert((0, *count));
            figure.0 += line.us;
        }
        (left, last) = (left + line.us, stack);
    }
    found
}

/// Gives each frame the title `name (12.3 ms, 58 times, 4.56%)`. What inferno's script makes of a title stays possible:
/// a name, and figures in one pair of parentheses at the end.
fn retitle(drawn: &str, figures: &HashMap<Place, (u64, u64)>, out: &mut dyn Write) -> io::Result<()> {
    let mut rest = drawn;
    let depths = depths(drawn);
    while let Some((before, title, after)) = cut_between(rest, "<title>", "</title>") {
        write!(out, "{before}<title>{}</title>", figure_of(title, after, &depths, figures))?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn figure_of(
    title: &str,
    after: &str,
    depths: &HashMap<&str, usize>,
    figures: &HashMap<Place, (u64, u64)>,
) -> String {
    let whole = || {
        let (name, figure) = title.rsplit_once(" (")?;
        let (us, share) = figure.strip_suffix(')')?.split_once(&format!(" {UNIT}, "))?;
        let rect = &after[..after.find("/>")?];
        let (y, x) = (attribute(rect, "y")?, attribute(rect, "fg:x")?.parse().ok()?);
        // Below the first frame, "all", are ours.
        let place = (depths.get(y)?.checked_sub(1)?, x);
        let us: u64 = us.replace(',', "").parse().ok()?;
        let (mine, count) = *figures.get(&place)?;
        let times = if mine == us && count > 0 {
            format!("{}, ", human::plural(count, "time"))
        } else {
            String::new()
        };
        Some(format!("{name} ({}, {times}{share})", human::duration(us.saturating_mul(1000))))
    };
    let all = || {
        let us: u64 = title.strip_prefix("all (")?.split_once(' ')?.0.replace(',', "").parse().ok()?;
        Some(format!("all ({}, 100%)", human::duration(us.saturating_mul(1000))))
    };
    whole().or_else(all).unwrap_or_else(|| title.to_owned())
}

/// The depth of each height at which frames are drawn, the lowest first.
fn depths(drawn: &str) -> HashMap<&str, usize> {
    let mut heights: Vec<(u64, &str)> = Vec::new();
    let mut rest = drawn;
    while let Some((_, rect, after)) = cut_between(rest, "</title><rect ", "/>") {
        heights.extend(attribute(rect, "y").and_then(|y| Some((y.parse().ok()?, y))));
        rest = after;
    }
    heights.sort_unstable_by(|a, b| b.cmp(a));
    heights.dedup();
    heights.into_iter().enumerate().map(|(depth, (_, y))| (y, depth)).collect()
}

fn cut_between<'a>(text: &'a str, from: &str, to: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = text.split_once(from)?;
    let (inside, after) = rest.split_once(to)?;
    Some((before, inside, after))
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(us: u64, frames: &[(Kind, u64)]) -> Line {
        Line { us, frames: frames.iter().map(|(kind, count)| (Some(*kind), *count)).collect() }
    }

    fn stack(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Frames of the same name in different places have figures of their own.
    #[test]
    fn each_frame_has_its_figures() {
        let root = (Kind::Root, 3);
        let lines = BTreeMap::from([
            (stack(&["a"]), line(5, &[root])),
            (stack(&["a", "x"]), line(10, &[root, (Kind::Waits, 7)])),
            (stack(&["a", "y", "x"]), line(20, &[root, (Kind::Kubelet, 2), (Kind::Waits, 9)])),
            (stack(&["b"]), line(1, &[(Kind::Root, 4)])),
        ]);
        let figures = figures(&lines);
        assert_eq!(figures[&(0, 0)], (35, 3));
        assert_eq!(figures[&(1, 5)], (10, 7));
        assert_eq!((figures[&(1, 15)], figures[&(2, 15)]), ((20, 2), (20, 9)));
        assert_eq!(figures[&(0, 35)], (1, 4));
    }
}
