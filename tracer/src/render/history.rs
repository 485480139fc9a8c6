//! Windows of a long observation as a table, with the latency of relists as a line of bars.

use std::io::{self, Write};

use super::{
    escape, human,
    paint::Paint,
    table::{Align, Table},
};

/// Columns.
const WIDTH: usize = 120;
/// Windows in the line of bars.
const BARS: usize = 60;
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One window. Texts may be hostile: anybody could have written the file.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// When it ended, nanoseconds since 1970.
    pub unix_ns: i64,
    /// Its length, nanoseconds.
    pub window_ns: u64,
    /// What was found.
    pub verdict: &'a str,
    /// Id of the cause; empty when there is none.
    pub id: &'a str,
    /// The component to blame; empty when there is none.
    pub component: &'a str,
    /// Relists that ended.
    pub relists: u64,
    /// Half of them took at most this, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 took at most this, nanoseconds.
    pub p99_ns: u64,
    /// CRI calls of the kubelet that ended.
    pub calls: u64,
    /// Relists and requests that had not ended.
    pub open: u64,
    /// CPU time of plegtrace, nanoseconds.
    pub cpu_ns: u64,
    /// Records that were lost.
    pub lost: u64,
}

/// Writes the table, the oldest window first.
///
/// # Errors
///
/// `out` cannot be written.
pub fn table(rows: &[Row<'_>], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no windows");
    }
    let right = Align::Right;
    let mut table = Table::new(&[
        ("ended", Align::Left),
        ("window", right),
        ("verdict", Align::Left),
        ("relists", right),
        ("p50", right),
        ("p99", right),
        ("CRI calls", right),
        ("open", right),
        ("own CPU", right),
        ("lost", right),
    ]);
    for row in rows {
        let verdict = [row.verdict, row.id, row.component].map(|text| escape::text_to(text, 24));
        let verdict: Vec<String> = verdict.into_iter().filter(|text| !text.is_empty()).collect();
        let latency = |ns| if row.relists == 0 { "–".to_owned() } else { human::duration(ns) };
        let moment = human::rfc3339(row.unix_ns);
        table.row(vec![
            format!("{}Z", moment.split('.').next().unwrap_or_default()).into(),
            human::duration(row.window_ns).into(),
            verdict.join(" ").into(),
            human::count(row.relists).into(),
            latency(row.p50_ns).into(),
            latency(row.p99_ns).into(),
            human::count(row.calls).into(),
            human::count(row.open).into(),
            human::percent(row.cpu_ns, row.window_ns).into(),
            human::count(row.lost).into(),
        ]);
    }
    table.write(out, Paint { colour: false }, WIDTH)?;
    let last = &rows[rows.len().saturating_sub(BARS)..];
    let most = last.iter().map(|row| row.p99_ns).max().unwrap_or(0);
    let bars: String = last.iter().map(|row| bar(row, most)).collect();
    writeln!(out, "\nrelist p99, up to {}   {bars}", human::duration(most))
}

fn bar(row: &Row<'_>, most: u64) -> char {
    if row.relists == 0 {
        return ' ';
    }
    let height = u128::from(row.p99_ns) * (HEIGHTS.len() as u128 - 1) / u128::from(most.max(1));
    usize::try_from(height).ok().and_then(|height| HEIGHTS.get(height)).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row<'_> = Row {
        unix_ns: 1_767_276_131_000_000_000,
        window_ns: 60_000_000_000,
        verdict: "healthy",
        id: "",
        component: "",
        relists: 58,
        p50_ns: 11_000_000,
        p99_ns: 30_000_000,
        calls: 1234,
        open: 0,
        cpu_ns: 60_000_000,
        lost: 0,
    };

    fn text(rows: &[Row<'_>]) -> String {
        let mut out = Vec::new();
        table(rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// A line for each window, bars below; a window without relists has neither latency nor bar.
    #[test]
    fn windows() {
        let stall =
            Row { verdict: "stall", id: "R1", component: "shim\u{1b}[2J", relists: 0, open: 3, ..ROW };
        let slow = Row { p99_ns: 300_000_000, ..ROW };
        let text = text(&[ROW, stall, slow]);
        assert!(text.contains("2026-01-01T14:02:11Z"), "{text}");
        assert!(text.contains("stall R1 shim\\x1b[2J"), "{text}");
        assert!(text.contains("up to 300 ms   ▁ █"), "{text}");
        assert!(text.contains("0.1 %") && text.contains("1,234"), "{text}");
    }

    /// Nothing is said, too.
    #[test]
    fn nothing() {
        assert_eq!(text(&[]), "no windows\n");
    }
}
