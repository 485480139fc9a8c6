//! [`Picture`]: what a screen shows, as harmless text. Pure.

use std::cmp::Reverse;

use crate::{
    correlate::{Relist, RpcRow, Side, Snapshot},
    diagnose::{Diagnosis, Verdict},
    render::{
        escape, human,
        text::{self, OpenLine},
    },
};

/// Relists that are kept for the sparkline: more than any terminal has columns.
const RELISTS: usize = 400;
/// Calls and methods that are kept: more than any terminal has lines.
const ROWS: usize = 200;

/// Calls of one method that have returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Count, failures, p50, p99, maximum.
    pub figures: [String; 5],
}

/// What there is to see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Node and time.
    pub about: String,
    /// The verdict; `None` while there is none.
    pub verdict: Option<Verdict>,
    /// The verdict in one line, or why there is none.
    pub headline: String,
    /// Who is to blame, and what to do first.
    pub advice: Vec<(&'static str, String)>,
    /// What relists took, oldest first, microseconds; one that is open, so far.
    pub relists: Vec<u64>,
    /// What the last relist did.
    pub relist: String,
    /// What has not returned, oldest first.
    pub open: Vec<OpenLine>,
    /// What has, the method with the longest time in all first.
    pub methods: Vec<Method>,
    /// What was lost.
    pub lost: u64,
}

impl Picture {
    /// While there is nothing to observe.
    #[must_use]
    pub fn waiting(why: &str) -> Self {
        Self { headline: format!("waiting: {}", escape::line(why)), ..Self::default() }
    }

    /// Of a node.
    #[must_use]
    pub fn of(snapshot: &Snapshot, diagnosis: &Diagnosis) -> Self {
        let at = human::rfc3339(snapshot.wall_ns(snapshot.now));
        let at = at.split('.').next().unwrap_or_default().replace('T', " ");
        let mut roots: Vec<_> = snapshot.relists.iter().map(Relist::root).collect();
        let early = roots.len().saturating_sub(RELISTS);
        roots.drain(..early);
        let last = roots.last().map(|root| {
            let took = human::duration(root.duration_ns(snapshot.now));
            if root.is_open() { format!("open for {took}") } else { format!("the last took {took}") }
        });
        let mut open = text::open_calls(snapshot, true);
        open.truncate(ROWS);
        Self {
            about: format!("{}   {at}Z", escape::text(&snapshot.start.node)),
            verdict: Some(diagnosis.verdict),
            headline: text::headline(snapshot, diagnosis),
            advice: advice(diagnosis),
            relists: roots.iter().map(|root| root.duration_ns(snapshot.now) / 1000).collect(),
            relist: last.unwrap_or_else(|| "none seen".to_owned()),
            open,
            methods: methods(snapshot),
            lost: snapshot.real_losses().map(|loss| loss.count).sum(),
        }
    }
}

fn advice(diagnosis: &Diagnosis) -> Vec<(&'static str, String)> {
    let Some(finding) = diagnosis.accused().first() else { return Vec::new() };
    let culprit = finding.culprit.as_ref().map(|culprit| ("culprit", escape::line(&culprit.words)));
    let step = finding.next.first().map(|step| ("do", escape::line(step).replace('`', "")));
    culprit.into_iter().chain(step).collect()
}

/// Of the kubelet's own calls, as its metrics count them; without a probe there, of the handlers.
fn methods(snapshot: &Snapshot) -> Vec<Method> {
    let of = |side| snapshot.rows.iter().filter(|row| row.key.side == side).collect::<Vec<_>>();
    let mut rows = of(Side::Counted);
    if rows.is_empty() {
        rows = of(Side::Server);
    }
    rows.sort_by_key(|row| (Reverse(row.latency.sum_ns()), &row.key));
    rows.into_iter().take(ROWS).map(method).collect()
}

fn method(row: &RpcRow) -> Method {
    let quantile = |q| row.latency.quantile_ns(q).map_or_else(|| "–".into(), human::duration);
    let count = human::count(row.latency.count());
    let failed = human::count(row.failed);
    Method {
        name: escape::text_to(&row.key.operation, 28),
        figures: [count, failed, quantile(0.5), quantile(0.99), quantile(1.0)],
    }
}
