//! The page that Prometheus reads: OpenMetrics text.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text},
    metrics::MetricType,
    registry::Registry,
};

use super::{figures::Figures, histogram::Histogram, lock};
use crate::{clock, decode::MonoNs, diagnose::Verdict};

/// The type of the page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the page of this moment.
pub(super) fn page(figures: &Arc<Mutex<Figures>>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page {
        figures: Arc::clone(figures),
        now: MonoNs(clock::monotonic_ns()),
    }));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Page {
    figures: Arc<Mutex<Figures>>,
    now: MonoNs,
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = lock(&self.figures);
        let mut sheet = Sheet { encoder, now: self.now };
        sheet.gauge(
            "plegtrace_build_info",
            "Version of plegtrace.",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1.0,
        )?;
        sheet.durations(&figures)?;
        sheet.in_flight(&figures)?;
        sheet.verdict(&figures)?;
        sheet.own(&figures)
    }
}

struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
    now: MonoNs,
}

type Labels<'a> = [(&'a str, &'a str)];

impl Sheet<'_> {
    fn gauge(&mut self, name: &str, help: &str, labels: &Labels<'_>, value: f64) -> fmt::Result {
        self.gauges(name, help, [(labels.to_vec(), value)].into_iter())
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        mut values: impl Iterator<Item = (Vec<(&'l str, &'l str)>, f64)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        values.try_for_each(|(labels, value)| {
            with_labels(&mut metric, &labels, &mut |series| series.encode_gauge(&value))
        })
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        mut values: impl Iterator<Item = (Vec<(&'l str, &'l str)>, f64)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.try_for_each(|(labels, value)| {
            with_labels(&mut metric, &labels, &mut |series| {
                series.encode_counter::<[(&str, &str); 0], f64, f64>(&value, None)
            })
        })
    }

    fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        mut values: impl Iterator<Item = (Vec<(&'l str, &'l str)>, &'l Histogram)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        values.try_for_each(|(labels, histogram)| {
            with_labels(&mut metric, &labels, &mut |series| {
                let (sum, count, buckets) = (histogram.sum_s(), histogram.count(), histogram.buckets());
                series.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
            })
        })
    }

    fn durations(&mut self, figures: &Figures) -> fmt::Result {
        let relists = [(Vec::new(), &figures.relists)].into_iter();
        self.histograms("plegtrace_relist_duration_seconds", "Relists that ended.", relists)?;
        let help =
            "Relists of one pod that ended; kubelet_pleg_pod_relist_duration_seconds is the kubelet's own.";
        let relists = [(Vec::new(), &figures.pod_relists)].into_iter();
        self.histograms("plegtrace_pod_relist_duration_seconds", help, relists)?;
        let calls = figures.calls.iter().map(|(key, histogram)| {
            let labels =
                vec![("operation_type", key.operation.as_str()), ("side", key.side), ("status", key.status)];
            (labels, histogram)
        });
        let help = "CRI calls that ended, as the kubelet (client) and the runtime (server) saw them.";
        self.histograms("plegtrace_cri_call_duration_seconds", help, calls)
    }

    #[expect(clippy::cast_precision_loss, reason = "calls in flight are few")]
    fn in_flight(&mut self, figures: &Figures) -> fmt::Result {
        let age = |since: MonoNs| seconds(self.now.since(since));
        let relist = figures.relist_since.map_or(0.0, age);
        let last_list = figures.last_list.map(age);
        let left = figures.threshold_ns.zip(figures.last_list.or(figures.no_list_since));
        let left = left.map(|(threshold, since)| seconds(threshold) - age(since));
        let looked = figures.looked.map(age);
        let calls: Vec<_> = figures
            .flying
            .iter()
            .map(|call| {
                let labels = vec![("operation_type", call.operation.as_str()), ("side", call.side)];
                (labels, call.count as f64, age(call.oldest))
            })
            .collect();
        let help = "Age of the relist that has not ended, of all pods or of one; 0 when there is none.";
        self.gauge("plegtrace_relist_in_flight_seconds", help, &[], relist)?;
        let help = "Age of the last list that a relist got; no sample when none was seen.";
        let one = |value: Option<f64>| value.map(|value| (Vec::new(), value)).into_iter();
        self.gauges("plegtrace_last_successful_list_age_seconds", help, one(last_list))?;
        let help = "Seconds until the kubelet reports PLEG is not healthy unless a list succeeds, at most; negative once it does.";
        self.gauges("plegtrace_pleg_unhealthy_in_seconds", help, one(left))?;
        let help =
            "Age of the last look at what is in flight; no sample while plegtrace waits for a kubelet.";
        self.gauges("plegtrace_last_look_age_seconds", help, one(looked))?;
        let counts = calls.iter().map(|(labels, count, _)| (labels.clone(), *count));
        self.gauges("plegtrace_cri_calls_in_flight", "CRI calls that have not ended.", counts)?;
        let ages = calls.iter().map(|(labels, _, age)| (labels.clone(), *age));
        self.gauges("plegtrace_cri_oldest_in_flight_seconds", "Age of the oldest of them.", ages)
    }

    fn verdict(&mut self, figures: &Figures) -> fmt::Result {
        let verdicts = Verdict::ALL.into_iter().map(|verdict| {
            let is_it = figures.verdict == Some(verdict);
            (vec![("verdict", verdict.name())], f64::from(u8::from(is_it)))
        });
        self.gauges("plegtrace_verdict", "1 for what the node is now.", verdicts)?;
        let cause = figures
            .cause
            .iter()
            .map(|(id, component)| (vec![("id", id.as_str()), ("component", component.as_str())], 1.0));
        let help = "1 for the cause of a stall or slowness: plegtrace explain ID.";
        self.gauges("plegtrace_cause", help, cause)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    fn own(&mut self, figures: &Figures) -> fmt::Result {
        let one = |value: f64| [(Vec::new(), value)].into_iter();
        self.counters("plegtrace_events", "Records read from the kernel.", one(figures.events as f64))?;
        let untold =
            (figures.untold > 0).then_some((vec![("reason", "too_many_series")], figures.untold as f64));
        let lost =
            figures.lost.iter().map(|(reason, count)| (vec![("reason", reason.as_str())], *count as f64));
        let help = "Records that were lost, by reason: what is said may be incomplete.";
        self.counters("plegtrace_events_lost", help, lost.chain(untold))?;
        self.counters("plegtrace_cpu_seconds", "CPU time of plegtrace itself.", one(figures.cpu_s))?;
        let help = "Memory of plegtrace itself.";
        self.gauge("plegtrace_resident_memory_bytes", help, &[], figures.rss_bytes as f64)?;
        self.gauge("plegtrace_probes", "Probe sites in use.", &[], figures.probes as f64)
    }
}

/// Writes one series; one without labels has no braces.
fn with_labels(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    write: &mut dyn FnMut(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() {
        return write(metric);
    }
    write(&mut metric.encode_family(&labels)?)
}

#[expect(clippy::cast_precision_loss, reason = "ages of years are exact to the microsecond")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
