//! Where the time of relists goes, and that of the slowest requests.

use serde::Serialize;

use super::facts::component;
use crate::correlate::{RequestTime, TimeRow, TimeTable};

#[derive(Debug, Serialize)]
pub(super) struct TimeDoc<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    count: u64,
    open: u64,
    wall_ns: u64,
    parts: Vec<PartDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct PartDoc<'a> {
    component: Option<&'static str>,
    doing: &'static str,
    program: Option<&'a str>,
    sum_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl<'a> TimeDoc<'a> {
    pub(super) fn of_relists(table: &'a TimeTable) -> Self {
        Self::new(None, table)
    }

    pub(super) fn of_requests(time: &'a RequestTime) -> Self {
        Self::new(Some(&time.operation), &time.table)
    }

    fn new(operation: Option<&'a str>, table: &'a TimeTable) -> Self {
        let TimeTable { count, open, wall_ns, rows } = table;
        let part = |row: &'a TimeRow| PartDoc {
            component: row.place.component.map(component),
            doing: row.place.doing.name(),
            program: row.place.program.as_deref(),
            sum_ns: row.sum_ns,
            p50_ns: table.quantile_ns(row, 0.5),
            p99_ns: table.quantile_ns(row, 0.99),
            max_ns: table.quantile_ns(row, 1.0),
        };
        Self {
            operation,
            count: *count,
            open: *open,
            wall_ns: *wall_ns,
            parts: rows.iter().map(part).collect(),
        }
    }
}
