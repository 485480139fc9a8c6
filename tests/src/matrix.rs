//! The table of faults in `tracer/docs/causes.md`: written from the results of the fault matrix, never by hand.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The lines of that page between which the table lies.
const BEGIN: &str = "<!-- matrix: begin -->";
const END: &str = "<!-- matrix: end -->";

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
    let mut text = String::from(
        "| fault of the lab (`plegtrace-lab fault NAME`) | named first | proof | after it could be named |\n|---|---|---|---|\n",
    );
    for row in rows {
        let Row { fault, id, proof, after, .. } = row;
        text.push_str(&format!("| `{fault}` | {id} | {proof} | {:.1} s |\n", after.as_secs_f64()));
    }
    text
}

/// Compares the results of these faults with the table on the page; with `PLEGTRACE_BLESS=1` writes them.
///
/// # Panics
///
/// The page says something else, or has no place for the table.
pub fn publish(rows: &mut [Row], faults: &[String]) {
    rows.sort_by(|a, b| a.fault.cmp(&b.fault));
    let text = fs::read_to_string(page()).expect("the page can be read");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for the matrix");
    let (old, after) = rest.split_once(END).expect("that place has an end");
    let new = table(rows);
    let is_mine =
        |line: &&str| line.split('`').nth(1).is_some_and(|name| faults.iter().any(|fault| fault == name));
    if std::env::var("PLEGTRACE_BLESS").is_ok_and(|value| value == "1") {
        let head: Vec<&str> = new.lines().take(2).collect();
        let others = old.lines().filter(|line| line.starts_with("| `") && !is_mine(line));
        let mut all: Vec<&str> = new.lines().skip(2).chain(others).collect();
        all.sort_unstable();
        let table = [head, all].concat().join("\n");
        fs::write(page(), format!("{before}{BEGIN}\n{table}\n{END}{after}"))
            .expect("the page can be written");
        return;
    }
    assert_eq!(
        rows_of(&old.lines().filter(is_mine).collect::<Vec<_>>().join("\n")),
        rows_of(&new),
        "the page is not what was found; PLEGTRACE_BLESS=1 writes it:\n{new}"
    );
}
