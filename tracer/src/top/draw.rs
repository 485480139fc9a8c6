//! A [`Picture`] on a terminal: verdict, relists as a sparkline, what is open, what calls took.

use ratatui::{
    Frame, Terminal,
    backend::TestBackend,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph, Row, Sparkline, Table},
};

use super::Picture;
use crate::{
    diagnose::Verdict,
    render::{human, text::OpenLine},
};

const KEYS: &str = "q quit   f freeze   s save a recording";
/// Lines of the sparkline, with its title.
const SPARK: u16 = 3;

/// Draws it; `note` stands beside the keys, `colour` or not.
pub fn draw(picture: &Picture, note: &str, colour: bool, frame: &mut Frame<'_>) {
    let verdict = verdict(picture, colour);
    let [head, relists, open, calls, foot] = Layout::vertical([
        Constraint::Length(1 + u16::try_from(verdict.len()).unwrap_or(1)),
        Constraint::Length(SPARK),
        Constraint::Min(4),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let title = Line::from(format!("plegtrace top   {}", picture.about));
    let lines: Vec<Line<'_>> = [title].into_iter().chain(verdict).collect();
    frame.render_widget(Paragraph::new(lines), head);
    sparkline(picture, relists, frame);
    open_calls(picture, open, frame);
    methods(picture, calls, frame);
    let lost =
        if picture.lost == 0 { String::new() } else { format!("   {} lost", human::count(picture.lost)) };
    frame.render_widget(Paragraph::new(format!("{KEYS}{lost}   {note}")), foot);
}

/// The same without a terminal, and without colour: each line without the blanks at its end.
///
/// # Panics
///
/// Never: nothing here can fail to be written to.
#[must_use]
pub fn text(picture: &Picture, note: &str, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory is there");
    terminal.draw(|frame| draw(picture, note, false, frame)).expect("memory can be written to");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(|y| line(y) + "\n").collect()
}

fn verdict(picture: &Picture, colour: bool) -> Vec<Line<'static>> {
    let style = match picture.verdict {
        _ if !colour => Style::new(),
        Some(Verdict::Healthy) => Style::new().fg(Color::Green),
        Some(Verdict::Stall | Verdict::Failing) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Some(Verdict::Slow | Verdict::CannotTell) | None => Style::new().fg(Color::Yellow),
    };
    let advice = picture.advice.iter().map(|(label, text)| Line::from(format!("{label:<8} {text}")));
    [Line::from(Span::styled(picture.headline.clone(), style))].into_iter().chain(advice).collect()
}

fn block(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title)
}

/// The youngest relists at the right end.
fn sparkline(picture: &Picture, area: Rect, frame: &mut Frame<'_>) {
    let from = picture.relists.len().saturating_sub(usize::from(area.width));
    let data = &picture.relists[from..];
    let most = data.iter().max().map_or_else(String::new, |most| {
        format!(", the longest of {} {}", data.len(), human::duration(most.saturating_mul(1000)))
    });
    let spark =
        Sparkline::default().data(data.to_vec()).block(block(format!("relists: {}{most} ", picture.relist)));
    frame.render_widget(spark, area);
}

fn open_calls(picture: &Picture, area: Rect, frame: &mut Frame<'_>) {
    let row = |line: &OpenLine| {
        Row::new([format!("{:>9}", line.age), line.place.clone(), line.call.clone(), line.note.clone()])
    };
    let widths = [Constraint::Length(9), Constraint::Length(18), Constraint::Length(28), Constraint::Min(10)];
    let title = format!("in flight: {}, oldest first ", human::count(picture.open.len() as u64));
    let table = Table::new(picture.open.iter().map(row), widths).block(block(title));
    frame.render_widget(table, area);
}

fn methods(picture: &Picture, area: Rect, frame: &mut Frame<'_>) {
    let head = ["", "count", "failed", "p50", "p99", "max"];
    let head = Row::new(head.map(|name| if name.is_empty() { String::new() } else { format!("{name:>9}") }));
    let rows = picture.methods.iter().map(|method| {
        let figures = method.figures.iter().map(|figure| format!("{figure:>9}"));
        Row::new([method.name.clone()].into_iter().chain(figures).collect::<Vec<_>>())
    });
    let widths = [28, 9, 9, 9, 9, 9].map(Constraint::Length);
    let table = Table::new(rows, widths).header(head).block(block("returned ".to_owned()));
    frame.render_widget(table, area);
}
