//! [`text`]: the view for people.

use std::io::{self, Write};

use super::view::{DoctorView, HookRow, ProgramRow, Verdict};
use crate::{
    checks::{Check, State},
    render::{escape, paint::Paint},
};

/// Longest symbol shown: the interesting part of a Go symbol is its end.
const SYMBOL: usize = 72;

/// Writes the view as text, in colour when `colour`.
///
/// # Errors
///
/// Writing fails.
pub fn text(view: &DoctorView, colour: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { colour };
    writeln!(
        out,
        "plegtrace {}   node {}   kernel {}\n",
        escape::text(&view.tool_version),
        escape::text(&view.node),
        escape::text(&view.kernel)
    )?;
    verdict(view, paint, out)?;
    checks(&view.report.checks, paint, out)?;
    programs(view, paint, out)?;
    refused(view, paint, out)
}

/// The answer first.
fn verdict(view: &DoctorView, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    match (view.verdict(), view.report.blocking()) {
        (Verdict::CannotRun, Some(blocked)) => {
            writeln!(out, "{}  {}", paint.bad("CANNOT RUN HERE"), escape::text_to(&blocked.sentence, 400))?;
            hint(blocked.hint.as_deref(), "  ", paint, out)
        }
        (Verdict::CanRun, _) => writeln!(out, "{}", paint.good("CAN RUN HERE")),
        _ => writeln!(out, "{}  some checks could not be asked", paint.doubt("NOT KNOWN")),
    }
}

fn checks(checks: &[Check], paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", paint.title("This machine"))?;
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    for check in checks {
        let word = format!("{:<7}", check.state.name());
        let word = match check.state {
            State::Ok => paint.good(&word),
            State::Warn => paint.doubt(&word),
            State::Fail => paint.bad(&word),
            State::Unknown => paint.faint(&word),
        };
        writeln!(out, "  {word}  {:<width$}  {}", check.what, escape::text_to(&check.detail, 400))?;
        if check.state != State::Ok {
            hint(check.hint.as_deref(), &" ".repeat(13 + width), paint, out)?;
        }
    }
    Ok(())
}

fn hint(hint: Option<&str>, indent: &str, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    match hint {
        Some(hint) => {
            writeln!(out, "{indent}{}", paint.faint(&format!("hint: {}", escape::text_to(hint, 400))))
        }
        None => Ok(()),
    }
}

fn programs(view: &DoctorView, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", paint.title("Programs"))?;
    if view.programs.is_empty() {
        writeln!(out, "  no kubelet and no container runtime found")?;
    }
    for (row, count) in together(&view.programs) {
        program(row, count, paint, out)?;
    }
    for presence in &view.presence {
        writeln!(out, "  {}: {} is there", presence.component.name(), escape::text(&presence.path))?;
    }
    Ok(())
}

/// Neighbours without probes that differ in nothing but their pid, as one row and how many they are.
fn together(rows: &[ProgramRow]) -> Vec<(&ProgramRow, usize)> {
    let same = |a: &ProgramRow, b: &ProgramRow| {
        a.hooks.is_empty() && b.hooks.is_empty() && *a == ProgramRow { pid: a.pid, ..b.clone() }
    };
    rows.chunk_by(same).map(|group| (&group[0], group.len())).collect()
}

fn program(row: &ProgramRow, count: usize, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let version =
        |text: &Option<String>| text.as_ref().map_or_else(String::new, |v| format!(" {}", escape::text(v)));
    let who = match (count, row.pid) {
        (1, 0) => "each time it is started".to_owned(),
        (1, pid) => format!("pid {pid}"),
        _ => format!("{count} processes"),
    };
    write!(out, "  {}{}   {who}   {}", row.component.name(), version(&row.version), escape::text(&row.exe))?;
    if let Some(go) = &row.go_version {
        write!(out, "   {}", escape::text(go))?;
    }
    if let Some(socket) = &row.socket {
        write!(out, "   {}", escape::text(socket))?;
    }
    match row.hooks.iter().map(|hook| hook.sites).sum::<u32>() {
        0 => writeln!(out, "   no probes")?,
        sites => writeln!(out, "   {} functions, {sites} probes", row.hooks.len())?,
    }
    if let Some(why) = &row.unproved {
        writeln!(out, "    {}", paint.doubt(&format!("unproved: {}", escape::text(why))))?;
    }
    if let Some(note) = &row.note {
        writeln!(out, "    {}", paint.faint(&escape::text(note)))?;
    }
    let width = row.hooks.iter().map(|hook| hook.operation.chars().count()).max().unwrap_or(0).min(32);
    row.hooks.iter().try_for_each(|hook| self::hook(hook, width, paint, out))
}

fn hook(hook: &HookRow, width: usize, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let price = match hook.prices {
        None => format!("{} sites", hook.sites),
        Some(p) if p.single_stepped == 0 => format!("{} emulated", p.emulated),
        Some(p) if p.emulated == 0 => format!("{} single-stepped", p.single_stepped),
        Some(p) => format!("{} emulated, {} single-stepped", p.emulated, p.single_stepped),
    };
    let symbol = paint.faint(&end_of(&hook.symbol));
    let operation = escape::text_to(&hook.operation, 60);
    writeln!(out, "    found  {operation:<width$}  {price:<30}  {symbol}")
}

/// The end of a symbol, harmless.
fn end_of(symbol: &str) -> String {
    let skip = symbol.chars().count().saturating_sub(SYMBOL);
    let cut: String = symbol.chars().skip(skip).collect();
    let mark = if skip > 0 { "…" } else { "" };
    format!("{mark}{}", escape::text(&cut))
}

fn refused(view: &DoctorView, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    if view.refused.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint.title("Refused, and why"))?;
    for fact in &view.refused {
        let place = fact.component.map_or_else(|| escape::text(&fact.source), |c| c.name().to_owned());
        let (what, why) = (end_of(&fact.what), escape::text_to(&fact.why, 400));
        let line = format!("{place}  {what}: {why}");
        writeln!(out, "  {}", if fact.matters { line } else { paint.faint(&line) })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn page(view: &DoctorView) -> String {
        let mut out = Vec::new();
        text(view, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The answer and what to do come first; every check, probe and refusal has its line; equal shims share one.
    #[test]
    fn whole_page() {
        let page = page(&sample::view());
        let expected = "\
plegtrace 0.1.0   node n1   kernel 6.1.0

CANNOT RUN HERE  not enough privileges
  hint: run: sudo plegtrace

This machine
  ok       eBPF programs    built in
  fail     privileges       not enough privileges
                            hint: run: sudo plegtrace
  unknown  BPF ring buffer  cannot be asked
  warn     attach mode      perf events

Programs
  kubelet 1.20.2   pid 7   /usr/bin/kubelet   go1.15.15   /run/containerd/containerd.sock   1 functions, 4 probes
    found  relist  1 emulated, 3 single-stepped    k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist
  shim   2 processes   /tmp/\\x1b[2J\\u{202e}evil   no probes
    unproved: no test has run on arm64 yet
  crio: /run/crio/crio.sock is there

Refused, and why
  kubelet  counted-error: no such function in this build
";
        assert_eq!(page, expected);
    }

    /// Without failures the page does not claim more than was asked.
    #[test]
    fn verdicts() {
        let mut view = sample::view();
        view.report.checks.retain(|check| check.state != State::Fail);
        assert!(page(&view).contains("NOT KNOWN"));
        view.report.checks.retain(|check| check.state != State::Unknown);
        assert!(page(&view).contains("\nCAN RUN HERE"));
        assert!(page(&DoctorView::default()).contains("no kubelet and no container runtime found"));
    }

    /// Long symbols keep their end.
    #[test]
    fn symbols_keep_their_end() {
        let long = format!("{}/pleg.(*GenericPLEG).Relist", "x".repeat(100));
        let shown = end_of(&long);
        assert!(shown.starts_with('…') && shown.ends_with("(*GenericPLEG).Relist"));
    }
}
