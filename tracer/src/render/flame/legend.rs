//! What the colours of a picture mean, on a line of its own below the frames: hovering and searching write above it.

use std::collections::BTreeSet;

use super::svg::colour;
use crate::flame::Kind;

/// Kinds of frames in the order of a request's way, each with what its colour means.
const ENTRIES: [(Kind, &str); 8] = [
    (Kind::Kubelet, "kubelet"),
    (Kind::Transport, "between client and handler"),
    (Kind::Runtime, "runtime"),
    (Kind::Program, "program"),
    (Kind::Waits, "waiting"),
    (Kind::WaitsShortly, "waiting, shortly"),
    (Kind::Runs, "running"),
    (Kind::Unexplained, "not measured"),
];
/// Height of the line, pixels.
const LINE: u64 = 18;

/// Adds the line to a picture as inferno has drawn it. `missing` says what is not in the picture.
pub(super) fn add(drawn: &str, kinds: &BTreeSet<Kind>, missing: &str) -> String {
    let (Some((_, rest)), Some(at)) = (drawn.split_once(" height=\""), drawn.find("<text id=\"title\""))
    else {
        return drawn.to_owned();
    };
    let Some(height) = rest.split('"').next().and_then(|text| text.parse::<u64>().ok()) else {
        return drawn.to_owned();
    };
    let (attribute, view) = (format!(" height=\"{height}\""), format!(" {height}\" xmlns"));
    let higher = height + LINE;
    // Of the whole and of its background.
    let head = drawn[..at].replace(&attribute, &format!(" height=\"{higher}\""));
    let head = head.replacen(&view, &format!(" {higher}\" xmlns"), 1);
    format!("{head}{}{}", line(height, kinds, missing), &drawn[at..])
}

fn line(y: u64, kinds: &BTreeSet<Kind>, missing: &str) -> String {
    let seen = |kind: &Kind| kinds.iter().any(|other| colour(Some(*other)) == colour(Some(*kind)));
    let mut line = format!("<text id=\"legend\" x=\"10\" y=\"{y}\">");
    for (kind, means) in ENTRIES.iter().filter(|(kind, _)| seen(kind)) {
        let colour = colour(Some(*kind));
        let (r, g, b) = (colour.r, colour.g, colour.b);
        line.push_str(&format!("<tspan fill=\"rgb({r},{g},{b})\">\u{25a0}</tspan> {means}   "));
    }
    line.push_str(missing);
    line.push_str("</text>");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: &str = "<svg width=\"1200\" height=\"40\" viewBox=\"0 0 1200 40\" xmlns=\"x\">\
                         <rect height=\"40\"/><text id=\"title\">t</text><rect height=\"15\"/></svg>";

    /// The picture grows by the line, which has the colours that are there and no others.
    #[test]
    fn a_line_below() {
        let with = add(DRAWN, &BTreeSet::from([Kind::Function, Kind::Root]), "incomplete");
        assert!(with.starts_with("<svg width=\"1200\" height=\"58\" viewBox=\"0 0 1200 58\""), "{with}");
        assert!(with.contains("<rect height=\"58\"/>") && with.contains("<rect height=\"15\"/>"), "{with}");
        assert!(with.contains("</tspan> waiting   incomplete</text><text id=\"title\""), "{with}");
        assert!(!with.contains("running") && !with.contains("kubelet"), "{with}");
        assert_eq!(add("<svg/>", &BTreeSet::new(), ""), "<svg/>");
    }
}
