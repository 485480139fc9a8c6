//! Figures for Prometheus: what `watch` has seen since it began, and what is in flight now. Off unless it is asked for.
//!
//! Names, units and the values of `operation_type` are those of the kubelet's own metrics, so that both can be joined in one
//! query. The labels are bounded: CRI methods, sides, outcomes, verdicts, ids of causes and reasons of losses; no names of
//! pods.

mod classic;
mod figures;
mod histogram;
mod page;
mod serve;

pub use serve::MetricsError;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use figures::Figures;

use crate::{
    correlate::{Finished, InFlightCalls, LastList, Snapshot},
    decode::MonoNs,
    diagnose::Diagnosis,
};

/// Serves the figures until the process ends.
#[derive(Debug)]
pub(crate) struct Metrics {
    figures: Arc<Mutex<Figures>>,
    /// Where they are served; tests let the system choose the port.
    #[cfg(test)]
    address: SocketAddr,
}

impl Metrics {
    /// Serves them at `address`.
    ///
    /// # Errors
    ///
    /// The address is in use, or not one of this machine.
    pub(crate) fn serve(address: SocketAddr) -> Result<Self, MetricsError> {
        let figures = Arc::new(Mutex::new(Figures::default()));
        let _address = serve::start(address, Arc::clone(&figures))?;
        Ok(Self {
            figures,
            #[cfg(test)]
            address: _address,
        })
    }

    /// Something has ended.
    pub(super) fn ended(&self, finished: &Finished) {
        lock(&self.figures).ended(finished);
    }

    /// What is in flight now, and when a relist last got its list.
    pub(super) fn in_flight(&self, calls: Vec<InFlightCalls>, last_list: LastList, now: MonoNs) {
        lock(&self.figures).in_flight(calls, last_list, now);
    }

    /// The whole picture was drawn.
    pub(super) fn judged(&self, snapshot: &Snapshot, diagnosis: &Diagnosis) {
        lock(&self.figures).judged(snapshot, diagnosis);
    }
}

fn lock(figures: &Mutex<Figures>) -> MutexGuard<'_, Figures> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        time::Duration,
    };

    use super::*;
    use crate::{clock, diagnose::Verdict, input::Layer};

    /// As Prometheus asks.
    fn get(address: SocketAddr, path: &str) -> String {
        get_as(address, path, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    }

    fn get_as(address: SocketAddr, path: &str, accept: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!("Host: here\r\nAccept: {accept}\r\nConnection: close");
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn flying(layer: Layer, operation: &str, age_s: u64) -> InFlightCalls {
        let oldest = MonoNs(clock::monotonic_ns() - age_s * 1_000_000_000);
        InFlightCalls { layer, operation: operation.to_owned(), count: 2, oldest }
    }

    /// The age of a sample, without its fraction.
    fn sample(page: &str, series: &str) -> u64 {
        let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{page}"));
        line.rsplit(' ').next().unwrap().split('.').next().unwrap().parse().unwrap()
    }

    /// What is in flight is as old as it is when the page is read; the page is whole, and there is no other.
    #[test]
    fn a_page_is_served() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let calls = vec![
            flying(Layer::Relist, "relist", 42),
            flying(Layer::KubeletCall, "ListContainers", 41),
            flying(Layer::KubeletClient, "ListContainers", 41),
            flying(Layer::Handler, "ListContainers", 40),
        ];
        let now = clock::monotonic_ns();
        metrics.in_flight(Vec::new(), LastList::At(MonoNs(now - 43_000_000_000)), MonoNs(now));
        // A relist has failed since.
        metrics.in_flight(calls, LastList::NotSince(MonoNs(now)), MonoNs(now));
        lock(&metrics.figures).threshold_ns = Some(180_000_000_000);
        lock(&metrics.figures).relists.record(3_000_000);
        lock(&metrics.figures).verdict = Some(Verdict::Stall);
        lock(&metrics.figures).cause = Some(("R1".to_owned(), "shim".to_owned()));
        let page = get(metrics.address, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("# EOF\n"), "{page}");
        assert!(page.contains("application/openmetrics-text; version=1.0.0"), "{page}");
        let relist = sample(&page, "plegtrace_relist_in_flight_seconds ");
        assert!((42..72).contains(&relist), "{page}");
        assert!((43..73).contains(&sample(&page, "plegtrace_last_successful_list_age_seconds ")), "{page}");
        let left = sample(&page, "plegtrace_pleg_unhealthy_in_seconds ");
        assert!((107..137).contains(&left), "{page}");
        assert!(sample(&page, "plegtrace_last_look_age_seconds ") < 30, "{page}");
        let list = |side: &str| {
            format!(
                "plegtrace_cri_oldest_in_flight_seconds{{operation_type=\"list_containers\",side=\"{side}\"}} "
            )
        };
        assert!(sample(&page, &list("client")) >= 41 && sample(&page, &list("server")) >= 40, "{page}");
        assert_eq!(
            page.matches("plegtrace_cri_calls_in_flight{").count(),
            2,
            "the bare client is the same call"
        );
        for line in [
            "plegtrace_relist_duration_seconds_bucket{le=\"0.0025\"} 0",
            "plegtrace_relist_duration_seconds_bucket{le=\"0.005\"} 1",
            "plegtrace_relist_duration_seconds_bucket{le=\"+Inf\"} 1",
            "plegtrace_relist_duration_seconds_count 1",
            "plegtrace_verdict{verdict=\"stall\"} 1.0",
            "plegtrace_verdict{verdict=\"healthy\"} 0.0",
            "plegtrace_cause{id=\"R1\",component=\"shim\"} 1.0",
            "# TYPE plegtrace_events counter",
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
        }
        assert!(get(metrics.address, "/").starts_with("HTTP/1.1 404 "));
    }

    /// Who came during a stall knows since when no list has come: at most so long is left, and when it is over, less than
    /// nothing.
    #[test]
    fn an_upper_bound_of_what_is_left() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let name = "plegtrace_pleg_unhealthy_in_seconds";
        assert!(!get(metrics.address, "/metrics").contains(&format!("\n{name} ")));
        let since = MonoNs(clock::monotonic_ns() - 200_000_000_000);
        metrics.in_flight(Vec::new(), LastList::NotSince(since), since);
        lock(&metrics.figures).threshold_ns = Some(180_000_000_000);
        let page = get(metrics.address, "/metrics");
        assert!(page.contains(&format!("\n{name} -2")) || page.contains(&format!("\n{name} -3")), "{page}");
    }

    /// Who does not know OpenMetrics gets the format before it: counters are called what their samples are.
    #[test]
    fn the_format_before() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        for accept in ["*/*", "text/plain;version=0.0.4"] {
            let page = get_as(metrics.address, "/metrics", accept);
            assert!(page.contains("text/plain; version=0.0.4") && !page.contains("# EOF"), "{page}");
            assert!(
                page.contains("\n# TYPE plegtrace_events_total counter\nplegtrace_events_total 0"),
                "{page}"
            );
            assert!(page.contains("\n# HELP plegtrace_events_total Records"), "{page}");
            assert!(page.contains("\n# TYPE plegtrace_verdict gauge\n"), "{page}");
        }
    }

    /// Two of them cannot serve at one address; the error says at which.
    #[test]
    fn an_address_that_is_taken() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Metrics::serve(metrics.address).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot serve metrics at {}", metrics.address));
    }

    /// Whoever connects and says nothing does not keep others from reading.
    #[test]
    fn a_silent_reader_holds_up_nobody() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(metrics.address).unwrap()).collect();
        assert!(get(metrics.address, "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
        drop(silent);
    }

    const ALERTS: &str = include_str!("../../../packaging/plegtrace-alerts.yml");
    const DASHBOARD: &str = include_str!("../../../packaging/plegtrace-dashboard.json");

    /// The names of our series in a text.
    fn names(text: &str) -> Vec<&str> {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("plegtrace_"));
        words.collect()
    }

    /// Alerts and dashboard ask for what a page has, and for nothing else.
    #[test]
    fn what_is_asked_for_is_there() {
        let metrics = Metrics::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let now = MonoNs(clock::monotonic_ns());
        let calls = vec![flying(Layer::KubeletCall, "ListContainers", 1)];
        metrics.in_flight(calls, LastList::At(now), now);
        {
            let mut figures = lock(&metrics.figures);
            figures.relists.record(1);
            let key = |side| figures::CallKey { operation: "status".to_owned(), side, status: "ok" };
            figures.calls.entry(key("client")).or_default().record(1);
            figures.threshold_ns = Some(1);
            figures.cause = Some(("R1".to_owned(), "shim".to_owned()));
            figures.lost.insert("ring_full".to_owned(), 0);
        }
        let page = get(metrics.address, "/metrics");
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let served: std::collections::HashSet<&str> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
        let asked = [names(ALERTS), names(DASHBOARD)].concat();
        assert!(asked.len() > 30, "{asked:?}");
        for name in asked {
            assert!(served.contains(name), "nothing serves {name}: {page}");
        }
    }

    /// The thresholds of the alert on calls are those of the verdict.
    #[test]
    fn an_alert_knows_the_thresholds() {
        use crate::{correlate::thresholds::stuck_after_ns, cri::Method};
        let line = ALERTS.lines().find(|line| line.contains("operation_type!~")).unwrap();
        let listed = |line: &str| -> Vec<String> {
            let mut all: Vec<_> = line.split('"').nth(1).unwrap().split('|').map(str::to_owned).collect();
            all.sort();
            all
        };
        let of = |is_it: &dyn Fn(Option<u64>) -> bool| -> Vec<String> {
            let methods = Method::ALL.iter().filter(|method| is_it(stuck_after_ns(method.name())));
            let mut all: Vec<_> = methods.map(|method| figures::operation_type(method.name())).collect();
            all.sort();
            all
        };
        let briefly = Some(10_000_000_000);
        assert!(line.trim_end().ends_with("} > 10"), "{line}");
        assert_eq!(listed(line), of(&|limit| limit != briefly));
        for seconds in [30, 120] {
            let end = format!("}} > {seconds}");
            let is_it = |line: &&str| line.contains("operation_type=~") && line.trim_end().ends_with(&end);
            let line = ALERTS.lines().find(is_it).unwrap();
            assert_eq!(listed(line), of(&|limit| limit == Some(seconds * 1_000_000_000)), "{seconds}");
        }
    }
}
