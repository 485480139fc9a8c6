//! Figures for Prometheus: what `watch` has seen since it began, and what is in flight now. Off unless it is asked for.
//!
//! Names, units and the values of `operation_type` are those of the kubelet's own metrics, so that both can be joined in one
//! query. The labels are bounded: CRI methods, sides, outcomes, verdicts, ids of causes and reasons of losses; no names of
//! pods.

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
    pub(super) fn in_flight(&self, calls: Vec<InFlightCalls>, last_list: LastList) {
        lock(&self.figures).in_flight(calls, last_list);
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
    use crate::{clock, decode::MonoNs, diagnose::Verdict, input::Layer};

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
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
        metrics.in_flight(Vec::new(), LastList::At(MonoNs(now - 43_000_000_000)));
        // A relist has failed since.
        metrics.in_flight(calls, LastList::NotSince(MonoNs(now)));
        lock(&metrics.figures).relists.record(3_000_000);
        lock(&metrics.figures).verdict = Some(Verdict::Stall);
        lock(&metrics.figures).cause = Some(("R1".to_owned(), "shim".to_owned()));
        let page = get(metrics.address, "/metrics");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("# EOF\n"), "{page}");
        assert!(page.contains("application/openmetrics-text; version=1.0.0"), "{page}");
        let relist = sample(&page, "plegtrace_relist_in_flight_seconds ");
        assert!((42..72).contains(&relist), "{page}");
        assert!((43..73).contains(&sample(&page, "plegtrace_last_successful_list_age_seconds ")), "{page}");
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
}
