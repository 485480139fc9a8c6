//! How far the verifier walks through each program stays within a budget, so that no kernel's limit comes as a
//! surprise. Prints a `VM-STAT` line per program.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use plegtrace::kernel::{AttachMode, WireProbes, verified_instructions};

use crate::feature::Feature;
use crate::kernel::KernelVersion;
use crate::machine;

const BUDGETS: &str = include_str!("../../verifier-budget.txt");

/// Measures the modes that this kernel has and compares with the file.
///
/// # Errors
/// When a program is over its budget, or has none.
pub fn run() -> Result<String> {
    let has_registers = KernelVersion::running()? >= Feature::TaskRegisters.since();
    let mut modes = vec![("address", AttachMode::PerfAddress)];
    if KernelVersion::running()? >= Feature::UprobeCookie.since() {
        modes.push(("cookie", AttachMode::PerfCookie));
    }
    let mut figures = Vec::new();
    for (name, mode) in modes {
        let mut options = machine::load_options(mode)?;
        if !has_registers {
            options.wire_probes = &[WireProbes::RawTracepoints];
        }
        if !figures.is_empty() {
            // Only uprobes are other programs in another mode.
            (options.processes, options.wire) = (false, None);
        }
        let programs = verified_instructions(&options)?;
        figures.extend(programs.into_iter().map(|(program, n)| (format!("{program}.{name}"), n)));
    }
    for (program, figure) in &figures {
        println!("VM-STAT {program} {figure}");
    }
    let over = over(&figures, &budgets(BUDGETS)?);
    ensure!(over.is_empty(), "{}", over.join(", "));
    let largest = figures.iter().max_by_key(|(_, n)| *n).context("no programs")?;
    Ok(format!("{} figures, the largest is {} for {}", figures.len(), largest.1, largest.0))
}

/// `program.mode most-instructions` per line.
fn budgets(text: &str) -> Result<BTreeMap<&str, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (program, most) = line.split_once(' ').with_context(|| format!("no figure in {line:?}"))?;
            Ok((program, most.trim().parse().with_context(|| format!("no number in {line:?}"))?))
        })
        .collect()
}

fn over(figures: &[(String, u64)], budgets: &BTreeMap<&str, u64>) -> Vec<String> {
    figures
        .iter()
        .filter_map(|(program, figure)| match budgets.get(program.as_str()) {
            Some(most) if figure <= most => None,
            Some(most) => Some(format!("{program} takes {figure} instructions, its budget is {most}")),
            None => Some(format!("{program} takes {figure} instructions and has no budget")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plegtrace::kernel::VERIFIED_PROGRAMS;

    use super::*;

    /// A program over its budget and one without are named, one within is not.
    #[test]
    fn budgets_are_enforced() {
        let budgets = budgets("# comment\na.x 10\nb.x 10\n").unwrap();
        let figures = [("a.x".to_owned(), 10), ("b.x".to_owned(), 11), ("c.x".to_owned(), 1)];
        let over = over(&figures, &budgets);
        assert_eq!(over.len(), 2);
        assert!(over[0].starts_with("b.x takes 11") && over[1].contains("no budget"));
    }

    /// The file can be read, and has a budget for each program, in each mode where it is another one, and for nothing else.
    #[test]
    fn the_file_is_whole() {
        let is_uprobe = |program: &&str| program.starts_with("call_") || program.starts_with("park_");
        let with = |mode: &'static str| move |program: &str| format!("{program}.{mode}");
        let mut programs: Vec<_> = VERIFIED_PROGRAMS.into_iter().map(with("address")).collect();
        programs.extend(VERIFIED_PROGRAMS.into_iter().filter(is_uprobe).map(with("cookie")));
        programs.sort_unstable();
        assert_eq!(budgets(BUDGETS).unwrap().into_keys().collect::<Vec<_>>(), programs);
    }
}
