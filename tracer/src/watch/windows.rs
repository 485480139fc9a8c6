//! [`Watch`]: takes what an observation sees each second, and makes windows of it.

use std::{
    io,
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    DirError, Metrics, OnVerdict, Plan,
    dir::Dir,
    flight::Flight,
    history::{Entry, Quantiles},
    latencies::Latencies,
    state::{self, Moment, State},
    story::{Event, Stories},
    voice::{Said, Voice},
    writer::{Job, Writer},
};
use serde::Serialize;

use crate::{
    correlate::Snapshot,
    decode::MonoNs,
    diagnose::Diagnosis,
    engine::{Pipeline, Tap, Watcher},
    flame::Flame,
    otlp::{self, Exporter},
    render::{
        escape,
        flame::{self, Caption, Per},
        human, json, perfetto, text,
    },
    timeline::Timeline,
};

/// An observation of months.
pub(crate) struct Watch {
    plan: Plan,
    writer: Writer,
    voice: Voice,
    flight: Arc<Mutex<Flight>>,
    flame: Flame,
    latencies: Latencies,
    stories: Stories,
    /// For Prometheus, when it is asked for.
    metrics: Option<Metrics>,
    /// The command of `--on-verdict`.
    on_verdict: Option<OnVerdict>,
    /// Sends traces, when somebody wants them.
    exporter: Option<Exporter>,
    /// When this window began; `None` before the first.
    began_ns: Option<u64>,
    before: Sums,
    /// The last state was of this verdict and id.
    told: Option<(String, Option<String>)>,
}

/// Sums since the start, of which a window tells the growth.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    cpu_ns: u64,
    lost: u64,
}

/// What the command of `--on-verdict` reads: the state, and the event that has changed it.
#[derive(Serialize)]
struct Told<'a> {
    event: &'a Event,
    #[serde(flatten)]
    state: &'a State,
}

impl Watch {
    /// Takes the directory.
    ///
    /// # Errors
    ///
    /// It cannot be written to, or belongs to another one.
    pub(crate) fn new(
        plan: Plan,
        metrics: Option<Metrics>,
        on_verdict: Option<OnVerdict>,
        exporter: Option<Exporter>,
    ) -> Result<Self, DirError> {
        let failed = |source| DirError::Write { path: plan.dir.clone(), source };
        let dir = Dir::take(&plan.dir)?;
        let writer = Writer::start(dir, &plan).map_err(failed)?;
        let voice = Voice::start().map_err(failed)?;
        Ok(Self {
            flight: Arc::new(Mutex::new(Flight::new(plan.flight_bytes))),
            plan,
            writer,
            voice,
            flame: Flame::default(),
            latencies: Latencies::default(),
            stories: Stories::default(),
            metrics,
            on_verdict,
            exporter,
            began_ns: None,
            before: Sums::default(),
            told: None,
        })
    }

    fn window_ns(&self) -> u64 {
        u64::try_from(self.plan.window.as_nanos()).unwrap_or(u64::MAX)
    }

    fn put_state(&mut self, state: &State) {
        let state = State { on_verdict: self.on_verdict.as_ref().map(OnVerdict::runs), ..state.clone() };
        match serde_json::to_vec_pretty(&state) {
            Ok(bytes) => self.writer.write(Job::Files(vec![(state::FILE, bytes)])),
            Err(error) => tracing::warn!("cannot write the state: {error}"),
        }
    }

    fn window(&mut self, snapshot: &Snapshot, diagnosis: &Diagnosis, state: &State, now: Moment) {
        let entry = self.entry(snapshot, state, now);
        let mut flame = take(&mut self.flame);
        flame.add_open(snapshot);
        self.latencies = Latencies::default();
        self.began_ns = Some(now.mono_ns);
        match files(snapshot, diagnosis, &flame, &entry) {
            Ok(files) => self.writer.write(Job::Files(files)),
            Err(error) => tracing::warn!("cannot draw the window: {error}"),
        }
        self.export(snapshot);
        self.put_state(state);
        self.writer.write(Job::Entry(Box::new(entry)));
    }

    fn entry(&mut self, snapshot: &Snapshot, state: &State, now: Moment) -> Entry {
        let cost = snapshot.cost.unwrap_or_default();
        let lost: u64 = snapshot.real_losses().map(|loss| loss.count).sum();
        let sums = Sums { cpu_ns: cost.cpu_ns, lost: lost.saturating_add(self.writer.losses()) };
        let before = std::mem::replace(&mut self.before, sums);
        let [client, server] = self.latencies.quantiles();
        let relists = snapshot.relists.iter().filter(|relist| relist.root().is_open()).count();
        let requests = snapshot.requests.iter().filter(|request| request.root().is_open()).count();
        Entry {
            at_unix_ns: now.unix_ns,
            at: human::rfc3339(now.unix_ns),
            window_ns: self.began_ns.map_or(0, |began| now.mono_ns.saturating_sub(began)),
            verdict: state.verdict.clone(),
            id: state.id.clone(),
            component: state.component.clone(),
            relists: Quantiles::of(&self.latencies.relists),
            open: (relists + requests) as u64,
            client,
            server,
            // After a restart of the observation sums begin anew.
            cpu_ns: sums.cpu_ns.checked_sub(before.cpu_ns).unwrap_or(sums.cpu_ns),
            rss_bytes: cost.rss_bytes,
            lost: sums.lost.checked_sub(before.lost).unwrap_or(sums.lost),
            complete: self.flame.is_complete(),
        }
    }

    /// Tells an event to the journal, and to the command.
    fn tell(&mut self, event: &Event, state: &State) {
        if let Ok(line) = serde_json::to_string(event) {
            self.voice.say(Said::Line(line));
        }
        if let Some(command) = &self.on_verdict
            && let Ok(mut document) = serde_json::to_vec(&Told { event, state })
        {
            document.push(b'\n');
            command.tell(document);
        }
    }

    fn export(&mut self, snapshot: &Snapshot) {
        if let Some(exporter) = &mut self.exporter {
            exporter.send(otlp::requests(snapshot));
        }
    }

    fn keep(&mut self, id: &str, snapshot: &Snapshot, diagnosis: &Diagnosis, now: Moment) {
        self.export(snapshot);
        let flown = lock(&self.flight).copy();
        let moment = human::rfc3339(now.unix_ns).replace([':', '-'], "");
        let moment = moment.split('.').next().unwrap_or_default();
        let report = report(snapshot, diagnosis).unwrap_or_default();
        self.writer.write(Job::Evidence(format!("{moment}Z-{id}"), flown, report));
    }
}

impl Watcher for Watch {
    fn tap(&mut self) -> Tap {
        lock(&self.flight).clear();
        let flight = Arc::clone(&self.flight);
        Box::new(move |frame| lock(&flight).push(frame))
    }

    fn waits(&mut self, why: &str) {
        let why = escape::line(why);
        self.voice.say(Said::Ready(why.clone()));
        let now = Moment::now();
        (self.began_ns, self.told) = (None, None);
        self.put_state(&State::blank(now, self.window_ns(), "waiting", &why));
    }

    fn second(&mut self, pipeline: &mut Pipeline, now_ns: u64, last: bool) {
        if self.began_ns.is_none() {
            self.began_ns = Some(now_ns);
            self.voice.say(Said::Ready("watching".to_owned()));
        }
        self.voice.say(Said::Alive);
        let (latencies, metrics) = (&mut self.latencies, self.metrics.as_ref());
        pipeline.collect_and_see(&mut self.flame, last, &mut |finished| {
            latencies.add(finished);
            metrics.into_iter().for_each(|metrics| metrics.ended(finished));
        });
        if let Some(metrics) = metrics {
            metrics.in_flight(pipeline.in_flight(), pipeline.pulse(now_ns).last_list, MonoNs(now_ns));
        }
        let mut flight = lock(&self.flight);
        if flight.is_due(now_ns) {
            flight.cut(now_ns, &pipeline.preamble(now_ns));
        }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.began_ns.is_some_and(|began| now_ns.saturating_sub(began) >= self.window_ns())
    }

    fn judged(&mut self, snapshot: &Snapshot, diagnosis: &Diagnosis, last: bool) {
        let now = Moment::now();
        let state = State::of(snapshot, diagnosis, now, self.window_ns());
        if let Some(metrics) = &self.metrics {
            metrics.judged(snapshot, diagnosis);
        }
        let news = self.stories.judged(&state, diagnosis.is_settled(snapshot), now);
        if let Some(event) = &news.event {
            self.tell(event, &state);
        }
        if let Some(id) = &news.keep {
            self.keep(id, snapshot, diagnosis, now);
        }
        let told = Some((state.verdict.clone(), state.id.clone()));
        if last {
            self.window(snapshot, diagnosis, &state, now);
            let ended = State::blank(now, self.window_ns(), "ended", "plegtrace watch has ended");
            self.put_state(&ended);
        } else if self.is_due(now.mono_ns) {
            self.window(snapshot, diagnosis, &state, now);
        } else if self.told != told || news.event.is_some() {
            self.put_state(&state);
        }
        self.told = told;
        if last {
            self.voice.end();
        }
    }

    fn pause(&self) -> Duration {
        self.plan.window.min(Duration::from_secs(5))
    }
}

fn lock(flight: &Mutex<Flight>) -> MutexGuard<'_, Flight> {
    flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files of a window.
fn files(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    flame: &Flame,
    entry: &Entry,
) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let (mut folded, mut svg, mut document) = (Vec::new(), Vec::new(), Vec::new());
    flame::folded(flame, Per::Whole, None, &mut folded)?;
    let until = entry.at.split('.').next().unwrap_or_default();
    let about = format!("node {}, {} until {until}Z", snapshot.start.node, human::duration(entry.window_ns));
    flame::svg(flame, Per::Whole, None, &Caption { about }, &mut svg)?;
    json::report(snapshot, diagnosis, &mut document)?;
    let mut trace = Vec::new();
    perfetto::trace(snapshot, &Timeline::of(snapshot), &mut trace)?;
    let report = report(snapshot, diagnosis)?;
    Ok(vec![
        ("flame.folded", folded),
        ("flame.svg", svg),
        ("trace.json", trace),
        ("report.txt", report),
        ("report.json", document),
    ])
}

fn report(snapshot: &Snapshot, diagnosis: &Diagnosis) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    text::report(snapshot, diagnosis, &text::TextOptions::default(), &mut out)?;
    Ok(out)
}
