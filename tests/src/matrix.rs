//! The table of faults in `tracer/docs/causes.md`: written from the results of the fault matrix, never by hand.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The lines of that page between which the table lies.
const BEGIN: &str = "<!-- matrix: begin -->";
const END: &str = "<!-- matrix: end -->";
/// The first lines of the table.
const HEAD: &str = "| fault of the lab (`plegtrace-lab fault NAME`) | named first | proof | after it could be named |\n|---|---|---|---|\n";

/// One fault that was named.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name in the lab.
    pub fault: String,
    /// The id of the rule that named it.
    pub id: &'static str,
    /// How tests prove that rule.
    pub proof: &'static str,
    /// From the moment at which it could be named to the report.
    pub after: Duration,
    /// From the start of a plegtrace that came when it was there already, or from its being as old as it has to be; `None` when
    /// only the length of the observation ends it, or none came.
    pub since_start: Option<Duration>,
}

/// A line for the log of a run, also of one that passes: what was drawn, what was named when.
pub fn log(line: &str) {
    // Not by a macro, whose output the test harness keeps to itself. Without a stderr nobody reads it.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Logs within which time half of what was there already was named.
pub fn log_median(rows: &[Row]) {
    let mut all: Vec<Duration> = rows.iter().filter_map(|row| row.since_start).collect();
    all.sort_unstable();
    if let Some(median) = all.get(all.len().saturating_sub(1) / 2) {
        log(&format!(
            "half of {} faults that were there were named within {median:.1?} of the start",
            all.len()
        ));
    }
}

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tracer/docs/causes.md")
}

/// The table without the measured times, which differ from run to run.
fn rows_of(table: &str) -> Vec<String> {
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.rsplitn(3, '|').last().unwrap_or_default().trim_end().to_owned()).collect()
}

fn table(rows: &[Row]) -> String {
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.sort_unstable();
    HEAD.to_owned() + &lines.concat()
}

fn line(row: &Row) -> String {
    let Row { fault, id, proof, after, .. } = row;
    format!("| `{fault}` | {id} | {proof} | {:.1} s |\n", after.as_secs_f64())
}

/// The table on the page with these rows instead of those of these faults, in the order of [`table`].
fn merged(old: &str, new: &str, faults: &[String]) -> String {
    let others = old.lines().filter(|line| line.starts_with("| `") && !is_of(line, faults));
    let mut all: Vec<&str> = new.lines().skip(HEAD.lines().count()).chain(others).collect();
    all.sort_unstable();
    HEAD.to_owned() + &all.join("\n") + "\n"
}

/// Is this the row of one of these faults?
fn is_of(line: &str, faults: &[String]) -> bool {
    line.split('`').nth(1).is_some_and(|name| faults.iter().any(|fault| fault == name))
}

/// The rows of these faults.
fn only(table: &str, faults: &[String]) -> Vec<String> {
    rows_of(&table.lines().filter(|line| is_of(line, faults)).collect::<Vec<_>>().join("\n"))
}

/// Compares the results of these faults with the table on the page; with `PLEGTRACE_BLESS=1` writes them.
///
/// # Panics
///
/// The page says something else, or has no place for the table.
pub fn publish(rows: &[Row], faults: &[String]) {
    let text = fs::read_to_string(page()).expect("the page can be read");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for the matrix");
    let (old, after) = rest.split_once(END).expect("that place has an end");
    let new = table(rows);
    if std::env::var("PLEGTRACE_BLESS").is_ok_and(|value| value == "1") {
        let table = merged(old, &new, faults);
        fs::write(page(), format!("{before}{BEGIN}\n{table}{END}{after}")).expect("the page can be written");
        return;
    }
    assert_eq!(
        only(old, faults),
        rows_of(&new),
        "the page is not what was found; PLEGTRACE_BLESS=1 writes it:\n{new}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fault: &str) -> Row {
        Row {
            fault: fault.to_owned(),
            id: "N1",
            proof: "real",
            after: Duration::from_millis(300),
            since_start: None,
        }
    }

    /// What is written is what is found when the same is found again, whatever begins with the name of another one.
    #[test]
    fn what_is_written_is_found() {
        let faults = ["cni-agent", "cni", "cni-reload"].map(str::to_owned);
        let found = table(&faults.each_ref().map(|fault| row(fault)));
        let page = merged(&table(&["cni", "cni-flock"].map(row)), &found, &faults);
        assert_eq!(only(&page, &faults), rows_of(&found));
        assert_eq!(rows_of(&page).len(), 4, "{page}");
        assert_eq!(merged(&page, &found, &faults), page);
    }
}
