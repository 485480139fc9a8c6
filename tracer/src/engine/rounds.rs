//! [`Rounds`]: when the census is taken, and taken again. At the start, now and then, and at the end; more often and with
//! goroutines while something looks stuck, because only a second look tells what stands still from what merely was in
//! flight.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    census::{Census, RUNTIME, Request},
    correlate::{
        OpenMessage, ProcessKind, Snapshot,
        thresholds::{CALL_OPEN_NS, SECOND_NS},
    },
    cri::Method,
    diagnose::Diagnosis,
    input::{CensusFact, Fact, Layer},
    stuck::{any_pull, api_is_awaited, blocked, late_from, loops_wait, silent_pulls},
};

/// From the end of a round to the start of the next while something looks stuck. Each reads the goroutines of kubelet and
/// runtime, so the pause doubles each time, up to [`LONG_PAUSE`].
const PAUSE: Duration = Duration::from_secs(3);
const LONG_PAUSE: Duration = Duration::from_secs(48);
/// The first two pauses when something has begun to look stuck, or did so when we came: whoever asks what holds the node up
/// waits for the answer. Together they are more than the three seconds that tell a stop from a short halt. So hasty is one observation once in [`HASTE`].
const SOON: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(2100)];
const HASTE: Duration = Duration::from_secs(60);
/// The same while nothing does: then only processes and the loops of the kubelet are looked at.
const CALM: Duration = Duration::from_secs(10);
/// A handler or request that is open for so long is worth a look at its goroutine.
const OPEN_NS: u64 = 3 * SECOND_NS;
/// Rounds after which a census without probes has seen what it can.
const ALONE: u64 = 3;

/// What a round looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Processes, sockets, cgroups, and the goroutines of the kubelet.
    Processes,
    /// The goroutines of the runtime too.
    Goroutines,
}

/// The rounds of an observation.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    running: Option<Census>,
    ended: Option<Instant>,
    count: u64,
    /// Rounds in a row since something looks stuck.
    in_a_row: u32,
    /// When the first of them began, the last time that we were hasty.
    hasty_since: Option<Instant>,
    /// Something has happened that is worth a look at once.
    hurried: bool,
    /// When that was so last, and when a look came early because something had become late.
    news: Option<Instant>,
    crossed: Option<Instant>,
    /// Starts of containers that had failed before the last round, and whether there is reason to ask the kernel for a filter.
    failed_starts: u64,
    tries_seccomp: bool,
    /// Somebody waits for what comes over TCP.
    connections: bool,
}

impl Rounds {
    /// Begins a round.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn begin(&mut self, request: Request) -> io::Result<()> {
        self.running = Some(Census::start(request)?);
        Ok(())
    }

    /// Was there no round before?
    pub(crate) fn is_first(&self) -> bool {
        self.running.is_none() && self.count == 0
    }

    /// The facts of a round that has ended; waits for its end when told to.
    pub(crate) fn take(&mut self, wait: bool) -> Vec<Fact> {
        let Some(census) = self.running.take_if(|census| wait || census.is_finished()) else {
            return Vec::new();
        };
        (self.ended, self.count) = (Some(Instant::now()), self.count + 1);
        census.finish()
    }

    /// Is another round worth its price now, and how deep shall it look? `last`: there will be no other.
    pub(crate) fn due(
        &mut self,
        snapshot: &Snapshot,
        diagnosis: &Diagnosis,
        alone: bool,
        last: bool,
    ) -> Option<Depth> {
        let rest = self.ended.filter(|_| self.running.is_none())?.elapsed();
        if std::mem::take(&mut self.hurried) || self.is_late_since(snapshot, rest, Instant::now()) {
            self.in_a_row += 1;
            return Some(Depth::Goroutines);
        }
        if rest < SOON[0] || last && rest < PAUSE {
            return None;
        }
        if !alone && !is_suspicious(snapshot, diagnosis) {
            self.in_a_row = 0;
            return (last || rest >= CALM).then_some(Depth::Processes);
        }
        let pause = self.pause(alone, Instant::now()).min(until_late(snapshot).unwrap_or(LONG_PAUSE));
        if rest < pause && !last {
            return None;
        }
        self.in_a_row += 1;
        Some(Depth::Goroutines)
    }

    /// Is a seccomp filter to be tried in the next round? When a container did not start since the last one, and as long as the
    /// kernel refuses them.
    pub(crate) fn look_for_failed_starts(&mut self, snapshot: &Snapshot) {
        let is_create = |kind: &ProcessKind| matches!(kind, ProcessKind::Runc { sub, .. } if sub == "create");
        let rows = snapshot.processes.rows.iter().filter(|row| is_create(&row.kind));
        let failed = rows.map(|row| row.failed).sum();
        let was_refused = snapshot.census.round.as_ref().is_some_and(|round| round.seccomp.is_some());
        self.tries_seccomp = was_refused || failed > self.failed_starts;
        self.failed_starts = failed;
    }

    /// Are TCP connections to be looked at in the next round? While a runtime pulls an image, or a loop of a kubelet waits for the API
    /// server.
    pub(crate) fn look_for_connections(&mut self, snapshot: &Snapshot) {
        self.connections = any_pull(snapshot) || api_is_awaited(snapshot);
    }

    /// As [`Self::look_for_connections`] has found.
    pub(crate) fn wants_connections(&self) -> bool {
        self.connections
    }

    /// As [`Self::look_for_failed_starts`] has found.
    pub(crate) fn tries_seccomp(&self) -> bool {
        self.tries_seccomp
    }

    /// A daemon has stopped: the next look is due at once, and those after it soon, unless that was so a moment ago. Whether
    /// it is due now.
    pub(crate) fn hurry(&mut self) -> bool {
        let now = Instant::now();
        let due = self.news.is_none_or(|last| now - last >= CALM);
        if due {
            (self.news, self.hasty_since, self.hurried, self.in_a_row) = (Some(now), Some(now), true, 0);
        }
        due
    }

    /// Do looks follow each other soon, because somebody waits for what they find?
    pub(crate) fn is_hasty(&self) -> bool {
        self.hasty_since.is_some_and(|since| since.elapsed() < CALM)
    }

    /// Has something become late since the last look? Then it is worth one, now and then.
    fn is_late_since(&mut self, snapshot: &Snapshot, rest: Duration, now: Instant) -> bool {
        let looked = snapshot.census.round.as_ref().map_or(0, |round| round.began_ns);
        let rare = self.crossed.is_none_or(|last| now - last >= PAUSE);
        let late =
            rest >= SOON[0] && rare && late_from(snapshot).any(|late| looked < late && late < snapshot.now.0);
        if late {
            self.crossed = Some(now);
            if self.news.is_none_or(|last| now - last >= HASTE) {
                (self.news, self.hasty_since, self.in_a_row) = (Some(now), Some(now), 0);
            }
        }
        late
    }

    /// From the end of the last round to the next while something looks stuck. A census alone knows ages by its looks only,
    /// so they lie far apart.
    fn pause(&mut self, alone: bool, now: Instant) -> Duration {
        // The round with which an observation begins reads goroutines, too: it is the first in a row.
        if self.count == 1 {
            self.in_a_row = self.in_a_row.max(1);
        }
        if self.in_a_row <= 1 && self.hasty_since.is_none_or(|since| now - since >= HASTE) {
            self.hasty_since = Some(now);
        }
        let hasty = !alone && self.hasty_since.is_some_and(|since| now - since < CALM);
        match self.in_a_row {
            0 | 1 if hasty => SOON[0],
            2 if hasty => SOON[1],
            row => {
                let hasty = if alone { 1 } else { 3 };
                LONG_PAUSE.min(PAUSE * 2_u32.pow(row.saturating_sub(hasty).min(8) / 2))
            }
        }
    }

    /// Was something that looks stuck looked at twice?
    pub(crate) fn are_enough(&self) -> bool {
        self.running.is_none() && (self.ended.is_none() || self.count >= 2)
    }

    /// No round runs: everything that was seen has been reported.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Nothing more comes of a census without probes.
    pub(crate) fn are_all(&self) -> bool {
        self.running.is_none() && (self.ended.is_none() || self.count >= ALONE)
    }
}

/// May the runtime be asked for its containers? Not when it did not answer before, and not while lists of others wait. An error is
/// an answer.
pub(crate) fn may_ask(snapshot: &Snapshot) -> bool {
    let round = snapshot.census.round.as_ref();
    let silent = round.is_some_and(|round| {
        let says = round.says.as_ref().and_then(|says| says.calls.last());
        let refused = says.is_some_and(|call| call.error.is_some());
        round.unanswered.iter().any(|one| one.what == RUNTIME) && !refused
    });
    let list = |method: Option<Method>| method.is_some_and(Method::is_relist_list);
    let open = snapshot.open.iter().any(|call| {
        call.span.layer() == Layer::Handler && call.age_ns >= SECOND_NS && list(call.span.method())
    });
    let waiting = snapshot.census.requests.iter().any(|request| list(request.method()) && request.stays);
    !silent && !open && !waiting
}

/// For how long after the last look a request that is older than the probes, and in flight as we know, is not late yet:
/// a look at that time tells, an earlier one does not.
fn until_late(snapshot: &Snapshot) -> Option<Duration> {
    let open = snapshot.census.requests.iter().filter(|request| {
        let young = request.stays && request.since.ns < CALL_OPEN_NS;
        young && request.since.at_least && request.component.role().is_runtime()
    });
    let left = open.map(|request| CALL_OPEN_NS - request.since.ns).min();
    left.map(Duration::from_nanos)
}

/// Something is held up, a thread waits for the server of a file system or for the end of an unmount, nothing comes of an image, or
/// a request or relist that was in flight at the last look may be older than the probes.
pub(crate) fn is_suspicious(snapshot: &Snapshot, diagnosis: &Diagnosis) -> bool {
    let first = snapshot.census.rounds <= 1;
    let old = snapshot.census.requests.iter().any(|request| {
        let waits = request.component.role().is_runtime() || request.is_relist();
        waits && request.since.at_least && (first || request.stays)
    });
    let open = snapshot.open.iter().any(|call| {
        call.span.layer() == Layer::Handler && call.age_ns >= OPEN_NS && !call.span.is_long_lived()
    });
    // What a goroutine waits for is known as long as it is looked at.
    let asks_systemd = snapshot.bus.open.iter().any(|call| call.fact.before);
    old || open
        || snapshot.grpc.open.iter().any(is_unanswered)
        || asks_systemd
        || has_ended(snapshot)
        || loops_wait(snapshot)
        || blocked(snapshot).next().is_some()
        || silent_pulls(snapshot).next().is_some()
        || !diagnosis.stuck.is_empty()
        || !diagnosis.reasons.is_empty()
}

/// Where no probe shows a handler, the socket shows its request. Nobody knows how long one without a name may last.
fn is_unanswered(request: &OpenMessage) -> bool {
    let OpenMessage { fact, age_ns, .. } = request;
    *age_ns >= OPEN_NS && request.should_end() && !fact.over && !fact.service.is_empty()
}

/// Has a container ended of which the runtime says that it runs, or, because it was not asked, may say so?
fn has_ended(snapshot: &Snapshot) -> bool {
    let census = &snapshot.census;
    let answered = |round: &CensusFact| round.says.as_ref().is_some_and(|says| !says.version.is_empty());
    let unasked = census.round.as_ref().filter(|round| !answered(round));
    let ended = unasked.is_some_and(|round| round.ended.iter().any(|init| init.exec.is_none()));
    // One that was killed and does not end is not far from it, or never gets there.
    let ended = ended || !census.unkillable.is_empty();
    ended || census.unreported.iter().any(|seen| seen.init.exec.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        correlate::{
            Correlator, Latency, Limits, OciRuntime, OpenProcess, ProcessRow, UnkillableSeen, Unreported,
        },
        decode::MonoNs,
        diagnose::diagnose,
        input::{
            CallError, CensusFact, EndedInit, OpenMessageFact, OwnCall, ParkedThreads, RuntimeSays,
            SeccompFact, Unanswered, Unkillable,
        },
    };

    /// Pauses before the next `looks` rounds of an observation that is suspicious all the time, in tenths of a second.
    fn pauses(rounds: &mut Rounds, looks: usize, alone: bool, now: &mut Instant) -> Vec<u128> {
        let one = |_| {
            let pause = rounds.pause(alone, *now);
            *now += pause;
            (rounds.in_a_row, rounds.count) = (rounds.in_a_row + 1, rounds.count + 1);
            pause.as_millis() / 100
        };
        (0..looks).map(one).collect()
    }

    /// A filter is tried once for starts that have failed, and again as long as it is refused.
    #[test]
    fn failed_starts_are_a_reason_to_try() {
        let mut rounds = Rounds::default();
        let mut tries = |failed, refused: bool| {
            let mut snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(9 * SECOND_NS));
            let kind = ProcessKind::Runc { by: OciRuntime::Crun, sub: "create".into() };
            snapshot.processes.rows =
                vec![ProcessRow { kind, latency: Latency::default(), failed, killed: 0 }];
            let seccomp = refused.then_some(SeccompFact { limit: None, spares_root: true });
            snapshot.census.round = Some(CensusFact { seccomp, ..CensusFact::default() });
            rounds.look_for_failed_starts(&snapshot);
            rounds.tries_seccomp()
        };
        assert_eq!([tries(0, false), tries(2, false), tries(2, false)], [false, true, false]);
        assert_eq!([tries(3, false), tries(3, true), tries(3, false)], [true, true, false]);
    }

    /// What is stuck when we come is looked at again soon, then less and less often.
    #[test]
    fn the_first_looks_come_soon() {
        let mut now = Instant::now();
        let mut rounds = Rounds { count: 1, ..Rounds::default() };
        assert_eq!(pauses(&mut rounds, 8, false, &mut now), [8, 21, 30, 30, 60, 60, 120, 120]);
        let mut rounds = Rounds { count: 1, ..Rounds::default() };
        assert_eq!(
            pauses(&mut rounds, 4, true, &mut now),
            [30, 30, 60, 60],
            "ages need looks that lie apart"
        );
    }

    /// A node that is suspicious now and then does not make us hasty each time.
    #[test]
    fn haste_is_rare() {
        let (mut now, mut rounds) = (Instant::now(), Rounds { count: 7, ..Rounds::default() });
        assert_eq!(pauses(&mut rounds, 3, false, &mut now), [8, 8, 21]);
        (rounds.in_a_row, now) = (0, now + CALM);
        assert_eq!(pauses(&mut rounds, 3, false, &mut now), [30, 30, 30]);
        (rounds.in_a_row, now) = (0, now + HASTE);
        assert_eq!(pauses(&mut rounds, 1, false, &mut now), [8]);
    }

    /// When a daemon stops, the next look comes at once and those after it soon, however long nothing was suspicious; one
    /// that stops again and again does not make us look all the time.
    #[test]
    fn a_stop_is_looked_at_at_once() {
        let now = Instant::now();
        let early = Some(now.checked_sub(Duration::from_secs(5)).unwrap());
        let mut rounds = Rounds { count: 7, hasty_since: early, ended: Some(now), ..Rounds::default() };
        let snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(9 * SECOND_NS));
        let diagnosis = crate::diagnose::diagnose(&snapshot);
        assert_eq!(rounds.due(&snapshot, &diagnosis, false, false), None);
        assert!(rounds.hurry() && !rounds.hurry());
        assert_eq!(rounds.due(&snapshot, &diagnosis, false, false), Some(Depth::Goroutines));
        let mut now = Instant::now();
        assert_eq!(pauses(&mut rounds, 4, false, &mut now), [8, 21, 30, 30]);
    }

    /// A runtime that answers with an error is asked again; one that does not answer is not.
    #[test]
    fn an_error_is_an_answer() {
        let asked = |calls: Vec<OwnCall>| {
            let unanswered =
                Unanswered { pid: 5, comm: "containerd".into(), what: RUNTIME.into(), why: "x".into() };
            let says = Some(RuntimeSays { pid: 5, calls, ..RuntimeSays::default() });
            let round = CensusFact { unanswered: vec![unanswered], says, ..CensusFact::default() };
            let mut snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(9));
            snapshot.census.round = Some(round);
            may_ask(&snapshot)
        };
        let call =
            |error| OwnCall { operation: "ListContainers".into(), began_ns: 1, ended_ns: Some(2), error };
        assert!(asked(vec![call(Some(CallError { code: 8, message: "too large".into() }))]));
        assert!(!asked(vec![OwnCall { ended_ns: None, ..call(None) }]) && !asked(Vec::new()));
    }

    /// A kubelet waits for an answer: a look tells what the runtime does about it.
    #[test]
    fn a_request_without_an_answer_is_looked_at() {
        let looked = |age: u64, long: bool, name: &str, over: bool| {
            let fact = OpenMessageFact {
                socket: 1,
                stream: 3,
                start_ns: 1,
                asker: 5,
                answerer: 6,
                service: name.into(),
                method: name.into(),
                container: String::new(),
                unsent: false,
                over,
                unread: None,
                unread_by_answerer: None,
            };
            let open = OpenMessage { fact, age_ns: age * SECOND_NS, is_long_lived: long };
            let mut snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(9 * SECOND_NS));
            (snapshot.grpc.open, snapshot.census.rounds) = (vec![open], 2);
            let diagnosis = Diagnosis { reasons: Vec::new(), ..diagnose(&snapshot) };
            is_suspicious(&snapshot, &diagnosis)
        };
        assert!(looked(4, false, "RemoveImage", false));
        for nothing in [
            looked(2, false, "RemoveImage", false),
            looked(4, true, "GetContainerEvents", false),
            looked(4, false, "", false),
            looked(4, false, "RemoveImage", true),
        ] {
            assert!(!nothing);
        }
    }

    /// A container that has ended is looked at again, unless the runtime knows of it; what has ended of a command is not.
    #[test]
    fn an_end_that_may_be_unknown_is_looked_at_again() {
        let mut snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(9 * SECOND_NS));
        let init = |exec: Option<&str>| EndedInit {
            id: "c1".to_owned(),
            exec: exec.map(str::to_owned),
            pid: 7,
            zombie: false,
            tracer: None,
            commands: 0,
        };
        let says = RuntimeSays { version: "v1".to_owned(), ..RuntimeSays::default() };
        let mut look = |exec, says| {
            let ended = vec![init(exec)];
            snapshot.census.round = Some(CensusFact { ended, says, ..CensusFact::default() });
            has_ended(&snapshot)
        };
        assert!(look(None, None), "the runtime was not asked");
        assert!(look(None, Some(RuntimeSays::default())), "it did not answer");
        assert!(!look(None, Some(says)), "it knows");
        assert!(!look(Some("e1"), None));
        let park = ParkedThreads {
            threads: 1,
            tid: 8,
            state: 'D',
            syscall: None,
            kernel_stack: Vec::new(),
            user_function: None,
        };
        let fact =
            Unkillable { at_ns: 0, pid: 8, comm: String::new(), started_ns: None, container: None, park };
        snapshot.census.unkillable = vec![UnkillableSeen { fact, since: MonoNs(0) }];
        assert!(has_ended(&snapshot), "it was killed, and is there");
        snapshot.census.unkillable.clear();
        // A look is due when it has lasted: of a container only, because commands end all the time.
        let mut late = |exec: Option<&str>| {
            let since = MonoNs(SECOND_NS);
            snapshot.census.unreported = vec![Unreported { said: None, init: init(exec), since }];
            snapshot.now = MonoNs(20 * SECOND_NS);
            Rounds::default().is_late_since(&snapshot, Duration::from_secs(2), Instant::now())
        };
        assert!(late(None) && !late(Some("e1")));
    }

    /// What has become late since the last look is worth one, once; what was late then, or is not yet, is not.
    #[test]
    fn lateness_is_looked_at_once() {
        let mut snapshot = Correlator::new(Limits::default()).snapshot(MonoNs(100 * SECOND_NS));
        let round = |at: u64| Some(CensusFact { began_ns: at * SECOND_NS, ..CensusFact::default() });
        snapshot.processes.open.push(OpenProcess {
            late_after_ns: Some(5 * SECOND_NS),
            pid: 7,
            kind: ProcessKind::RuncInit { by: OciRuntime::Runc },
            start: Some(MonoNs(94 * SECOND_NS)),
            age_ns: 6 * SECOND_NS,
            at_least: false,
            comm: "runc".to_owned(),
            container: None,
            bundle: None,
            under: None,
            parent: None,
            parents: Vec::new(),
            phases: Vec::new(),
            late: true,
        });
        let (now, rest) = (Instant::now(), Duration::from_secs(2));
        let late = |snapshot: &Snapshot| Rounds::default().is_late_since(snapshot, rest, now);
        snapshot.census.round = round(98);
        assert!(late(&snapshot));
        let mut hasty = Rounds::default();
        assert!(hasty.is_late_since(&snapshot, rest, now) && hasty.is_hasty(), "the next look comes soon");
        let mut rounds = Rounds { crossed: Some(now), ..Rounds::default() };
        assert!(!rounds.is_late_since(&snapshot, rest, now), "one was a moment ago");
        snapshot.census.round = round(99);
        assert!(!late(&snapshot), "that look saw it late");
        snapshot.census.round = round(98);
        snapshot.processes.open[0].start = Some(MonoNs(96 * SECOND_NS));
        assert!(!late(&snapshot), "it is young");
    }
}
