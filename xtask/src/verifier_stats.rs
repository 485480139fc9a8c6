//! `cargo xtask verifier-stats`: how many instructions the verifier walked through, per program and kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::vm::{Figures, Selection, stats};

/// Options of `cargo xtask verifier-stats`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Guest by Debian release or kernel version; repeatable
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Seconds after which a guest has failed
    #[arg(long, default_value_t = 420, value_name = "SECONDS")]
    budget: u64,
}

/// Prints the table; the budgets themselves are checked in the guests.
///
/// # Errors
/// When a guest fails or no guest prints a figure.
pub(crate) fn run(options: &Options) -> Result<()> {
    let budget = Duration::from_secs(options.budget);
    let selection = Selection::new(&options.kernel, Some("verifier".to_owned()), false, budget)?;
    let figures = stats(&selection)?;
    ensure!(figures.iter().any(|(_, rows)| !rows.is_empty()), "no guest printed a VM-STAT line");
    print!("{}", table(&figures));
    Ok(())
}

fn table(figures: &[(String, Figures)]) -> String {
    let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (column, (_, programs)) in figures.iter().enumerate() {
        for (program, figure) in programs {
            let cells = rows.entry(program).or_insert_with(|| vec!["-".to_owned(); figures.len()]);
            cells[column] = figure.to_string();
        }
    }
    let guests: Vec<String> = figures.iter().map(|(guest, _)| format!("{guest:>14}")).collect();
    let width = rows.keys().map(|program| program.len()).max().unwrap_or(0).max("program".len());
    let mut out = format!("{:width$}{}\n", "program", guests.concat());
    for (program, cells) in rows {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>14}")).collect();
        out += &format!("{program:width$}{}\n", cells.concat());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that one kernel has no figure for keeps its column.
    #[test]
    fn the_table_has_gaps() {
        let figures = [
            ("bookworm 6.1".to_owned(), vec![("call_in".to_owned(), 900)]),
            ("sid 7".to_owned(), vec![("call_in".to_owned(), 800), ("multi".to_owned(), 7)]),
        ];
        let text = table(&figures);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["call_in", "900", "800"], ["multi", "-", "7"]]);
    }
}
