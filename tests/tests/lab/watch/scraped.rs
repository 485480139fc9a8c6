//! [`Scraped`]: a real Prometheus beside a real watch, with the packaged alerts and the queries of the packaged dashboard.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use plegtrace_lab::{Node, http, process};
use plegtrace_tests::prometheus::{Prometheus, dashboard_expressions, packaged, promtool};
use serde_json::Value;

use super::LIMIT;

/// From here on a call is past its threshold, which is an alert of its own.
const CALL_IS_LONG: Duration = Duration::from_secs(9);
/// Sums of relists: ours, and the kubelet's own.
const SUMS: [&str; 2] = ["plegtrace_relist_duration_seconds_sum", "kubelet_pleg_relist_duration_seconds_sum"];

/// What is done while something is waited for.
type Meanwhile<'a> = &'a mut dyn FnMut();

pub(super) struct Scraped {
    prometheus: Prometheus,
    metrics: SocketAddr,
    /// When both had been scraped, seconds since 1970.
    since: f64,
}

impl Scraped {
    /// Scrapes the watch at this address and the kubelet; alerts do not wait.
    pub(super) fn begin(node: &Node, metrics: SocketAddr) -> Self {
        let rules = fs::read_to_string(packaged("plegtrace-alerts.yml")).unwrap();
        let at_once =
            |line: &str| if line.trim().starts_with("for: ") { "        for: 0s" } else { line }.to_owned();
        let rules: Vec<String> = rules.lines().map(at_once).collect();
        assert!(rules.iter().any(|line| line == "        for: 0s"));
        let jobs = [("plegtrace", metrics), ("kubelet", node.kubelet().read_only_address())];
        let prometheus = Prometheus::start(&jobs, &rules.join("\n")).unwrap();
        let since = SUMS.map(|sum| {
            let seen = || prometheus.number(&format!("timestamp({sum})"));
            process::wait_for(&format!("a scrape of {sum}"), LIMIT, seen).unwrap()
        });
        let since = since[0].max(since[1]);
        Self { prometheus, metrics, since }
    }

    /// Nothing is wrong: no alert fires, and the page is as a page should be.
    pub(super) fn is_quiet(&self, meanwhile: Meanwhile<'_>) {
        let quiet = || {
            meanwhile();
            Ok(self.prometheus.firing()?.is_empty().then_some(()))
        };
        process::wait_for("no alert", LIMIT, quiet)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.prometheus.firing()));
        let page = http::get(self.metrics, "/metrics", LIMIT).unwrap();
        promtool(&["check", "metrics"], &page).unwrap();
    }

    /// The alert for this cause fires and no other, though what lasts is named as an open call, too.
    pub(super) fn accuses(&self, id: &str, component: &str, began: Instant, meanwhile: Meanwhile<'_>) {
        let fired = || {
            meanwhile();
            let firing = self.prometheus.firing()?;
            let accused = |labels: &Value| labels["id"] == id && labels["component"] == component;
            Ok(firing.iter().any(accused).then_some(firing))
        };
        let firing = process::wait_for("the alert", LIMIT, fired).unwrap();
        let names: BTreeSet<&str> = firing.iter().filter_map(|labels| labels["alertname"].as_str()).collect();
        let mut expected = BTreeSet::from(["PlegtraceStall"]);
        if began.elapsed() >= CALL_IS_LONG && names.contains("CriCallOpenLong") {
            expected.insert("CriCallOpenLong");
        }
        assert_eq!(names, expected, "{firing:?}");
    }

    /// Every query of alerts and dashboard is one; during a stall all have data, except those for what did not happen.
    pub(super) fn answers(&self, meanwhile: Meanwhile<'_>) {
        for rule in self.prometheus.rules().unwrap() {
            self.prometheus.query(&rule).unwrap();
        }
        for expression in dashboard_expressions().unwrap() {
            let never = ["plegtrace_events_lost_total", "status=\"error\""];
            let may_be_empty = never.iter().any(|word| expression.contains(word));
            let has_data = || {
                meanwhile();
                let result = self.prometheus.query(&expression)?;
                Ok((may_be_empty || !result.is_empty()).then_some(()))
            };
            process::wait_for(&format!("data of {expression}"), LIMIT, has_data).unwrap();
        }
    }

    /// In one query, relists took as long here as the kubelet's own metrics say; more than this, seconds.
    pub(super) fn agrees(&self, at_least: f64, meanwhile: Meanwhile<'_>) {
        let grown = |sum: &str| format!("(sum({sum}) - sum({sum} @ {:.3}))", self.since);
        let [ours, theirs] = SUMS.map(grown);
        let agrees = || {
            meanwhile();
            let ratio = self.prometheus.number(&format!("{ours} / ({theirs} > {at_least})"))?;
            Ok(ratio.filter(|ratio| (ratio - 1.0).abs() <= 0.03))
        };
        process::wait_for("agreement with the kubelet", LIMIT, agrees).unwrap_or_else(|error| {
            panic!("{error}: {:?}, {:?}", self.prometheus.number(&ours), self.prometheus.number(&theirs))
        });
    }
}
