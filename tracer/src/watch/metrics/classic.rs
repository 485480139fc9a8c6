//! The page in the text format 0.0.4, for readers that do not know OpenMetrics.

use std::collections::HashSet;

/// The type of such a page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Does a reader that accepts this know OpenMetrics?
pub(super) fn knows_openmetrics(accept: &str) -> bool {
    accept.contains("application/openmetrics-text")
}

/// The page of OpenMetrics in the older format, where a counter is called what its samples are, and a page just ends.
pub(super) fn from_openmetrics(page: &str) -> String {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: HashSet<&str> = types.filter_map(|line| line.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF") {
        let about = ["# HELP ", "# TYPE "].into_iter().find_map(|key| {
            let (name, rest) = line.strip_prefix(key)?.split_once(' ')?;
            counters.contains(name).then(|| format!("{key}{name}_total {rest}"))
        });
        out.push_str(about.as_deref().unwrap_or(line));
        out.push('\n');
    }
    out
}
