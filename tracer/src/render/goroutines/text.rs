//! [`text`]: one section per group, in the style of Go's own dump.

use std::io::{self, Write};

use super::view::GoroutinesView;
use crate::{
    input::{Component, GoroutineGroup},
    render::{escape, human, paint::Paint},
};

/// Ids shown of a group.
const GOIDS: usize = 10;
/// Longest name shown: one line of a wide terminal.
const NAME: usize = 200;

/// Writes the view for people.
///
/// # Errors
///
/// Writing fails.
pub fn text(view: &GoroutinesView, colour: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { colour };
    header(view, paint, out)?;
    for group in &view.fact.groups {
        writeln!(out)?;
        section(view, group, paint, out)?;
    }
    if view.fact.groups_left_out > 0 {
        let left = human::plural(view.fact.groups_left_out.into(), "smaller group");
        writeln!(out, "\n{}", paint.doubt(&format!("{left} left out: there are too many")))?;
    }
    Ok(())
}

fn header(view: &GoroutinesView, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let fact = &view.fact;
    let name = match fact.component {
        Component::Helper => "process",
        component => component.name(),
    };
    let title = paint.title(&format!("{name} {}", fact.pid));
    let (exe, node, go) = (escape::text(&view.exe), escape::text(&view.node), escape::text(&fact.go_version));
    writeln!(out, "{title}   {exe}   {go}   node {node}   plegtrace {}", escape::text(&view.tool_version))?;
    let at_ns = i64::try_from(fact.at_ns).unwrap_or(i64::MAX).saturating_add(view.realtime_offset_ns);
    let groups = u64::from(fact.groups_left_out) + fact.groups.len() as u64;
    writeln!(
        out,
        "{} in {}, read at {} in {}",
        human::plural(fact.total.into(), "goroutine"),
        human::plural(groups, "group"),
        human::clock(at_ns),
        human::duration(fact.took_ns),
    )?;
    if let Some(age_ns) = view.last_list_age_ns() {
        writeln!(out, "last list began {} ago, by the kubelet's own clock", human::duration(age_ns))?;
    }
    if fact.unread > 0 {
        let unread = format!("{} not read: too busy, or too many", human::count(fact.unread.into()));
        writeln!(out, "{}", paint.doubt(&unread))?;
    }
    Ok(())
}

fn section(
    view: &GoroutinesView,
    group: &GoroutineGroup,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let what = escape::text(group.wait_reason.as_deref().unwrap_or(&group.state));
    let longest = if group.count > 1 { "longest " } else { "" };
    let since = view.waiting_ns(group).map(|ns| format!(", {longest}≥ {}", human::duration(ns)));
    let since = since.unwrap_or_default();
    let ids: Vec<String> = group.goids.iter().take(GOIDS).map(u64::to_string).collect();
    let more = if group.count as usize > ids.len() { " …" } else { "" };
    let title = match group.count {
        1 => format!("goroutine {} [{what}{since}]:", ids.join(" ")),
        count => format!("{} goroutines [{what}{since}]:", human::count(count.into())),
    };
    let list = if group.count > 1 { format!(" {}{more}", ids.join(" ")) } else { String::new() };
    writeln!(out, "{}{}", paint.title(&title), paint.faint(&list))?;
    for alike in shown(&group.frames).chunk_by(|a, b| a == b) {
        // Recursion would fill the screen.
        let times = if alike.len() > 1 { format!("   × {}", alike.len()) } else { String::new() };
        writeln!(out, "  {}{}", escape::text_to(&alike[0], NAME), paint.faint(&times))?;
    }
    if let Some(why) = &group.broken {
        let begin = if group.frames.is_empty() { "no stack: " } else { "… not followed further: " };
        writeln!(out, "  {}", paint.doubt(&format!("{begin}{}", escape::text(why))))?;
    }
    Ok(())
}

/// Without the runtime's own functions that parked it, as in Go's dump: the wait reason says the same. Goroutines of
/// the runtime itself have nothing else and are shown whole.
fn shown(frames: &[String]) -> &[String] {
    let first = frames.iter().position(|frame| !frame.starts_with("runtime."));
    &frames[first.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::render::escape::is_treacherous;

    fn rendered(view: &GoroutinesView) -> String {
        let mut out = Vec::new();
        text(view, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Header, a group, a single goroutine, one without a stack, and what was left out.
    #[test]
    fn sections() {
        let expected = "\
containerd 77   /usr/bin/containerd   go1.19.8   node n1   plegtrace 0.1.0
1,236 goroutines in 6 groups, read at 12:02:11Z in 3.5 ms
last list began 41.5 s ago, by the kubelet's own clock
3 not read: too busy, or too many

1,200 goroutines [select, longest ≥ 3 min 20 s]: 1 2 3 4 5 6 7 8 9 10 …
  main.wait
  main.main

goroutine 12 [syscall]:
  a\\x1b[31mb\\u{202e}
  main.recurse   × 2
  main.main
  … not followed further: it is deeper than 100 frames

goroutine 14 [running]:
  no stack: it runs

goroutine 2 [force gc (idle)]:
  runtime.gopark
  runtime.forcegchelper

2 smaller groups left out: there are too many
";
        assert_eq!(rendered(&sample::view()), expected);
        assert!(!rendered(&sample::view()).chars().any(|c| c != '\n' && is_treacherous(c)));
    }
}
