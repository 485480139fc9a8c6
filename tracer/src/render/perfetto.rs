//! A [`Timeline`] in the Trace Event Format (JSON), which the Perfetto UI (ui.perfetto.dev) and `chrome://tracing` open.
//!
//! One event per line: names of processes and lanes, slices (`X`), and the two ends of flows (`s`, `f`), each right behind
//! its slice, to which readers bind it. Times are microseconds since the start of the first slice; `otherData` says when that
//! was. In `args` of a slice: `ms`, `pid`, `goroutine`, `component`, `layer`, `result`, and as they apply `root` (a relist or
//! request as a whole), `open` (it has not ended), `at_least` (it is older than the probes) and `stack`, innermost first.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::{Map, Value, json};

use super::{
    escape, human,
    json::{component, layer},
};
use crate::{
    correlate::Snapshot,
    decode::{CallResult, MonoNs},
    span::Span,
    timeline::{Slice, Timeline, Track, What},
    words::short_function,
};

/// Functions of a stack that are shown.
const FRAMES: usize = 24;

/// Writes the trace.
///
/// # Errors
///
/// `out` cannot be written to.
pub fn trace(snapshot: &Snapshot, timeline: &Timeline<'_>, out: &mut dyn Write) -> io::Result<()> {
    let from = timeline.slices.iter().map(|slice| slice.start).min().unwrap_or(snapshot.now);
    let mut lines = Lines { out, first: true };
    lines.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
    serde_json::to_writer(&mut *lines.out, &about(snapshot, timeline, from))?;
    lines.out.write_all(b",\"traceEvents\":[")?;
    for (number, track) in timeline.tracks.iter().enumerate() {
        names(number, track, timeline, &mut lines)?;
    }
    let mut leaving: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut coming: BTreeMap<usize, usize> = BTreeMap::new();
    for (id, (source, target)) in timeline.flows.iter().enumerate() {
        leaving.entry(*source).or_default().push(id);
        coming.insert(*target, id);
    }
    for (number, slice) in timeline.slices.iter().enumerate() {
        lines.event(&slice_event(slice, timeline, from))?;
        let end = |phase: &str, id: usize| {
            let mut event = place(slice.track, timeline);
            event.extend(fields(json!({
                "ph": phase, "id": id + 1, "cat": "for", "name": "for", "ts": micros(slice.start.since(from)),
            })));
            if phase == "f" {
                event.insert("bp".to_owned(), "e".into());
            }
            event
        };
        if let Some(id) = coming.get(&number) {
            lines.event(&end("f", *id))?;
        }
        for id in leaving.get(&number).into_iter().flatten() {
            lines.event(&end("s", *id))?;
        }
    }
    lines.out.write_all(b"\n]}\n")
}

/// Events, one per line.
struct Lines<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Lines<'_> {
    fn event(&mut self, event: &Map<String, Value>) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }
}

fn about(snapshot: &Snapshot, timeline: &Timeline<'_>, from: MonoNs) -> Value {
    json!({
        "tool": format!("plegtrace {}", env!("CARGO_PKG_VERSION")),
        "node": escape::text(&snapshot.start.node),
        "began": human::rfc3339(snapshot.wall_ns(from)),
        "taken": human::rfc3339(snapshot.wall_ns(snapshot.now)),
        "left_out": timeline.left_out,
    })
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Process and thread of a track. Threads of the format are lanes here, numbered over all processes.
fn place(track: usize, timeline: &Timeline<'_>) -> Map<String, Value> {
    fields(json!({ "pid": timeline.tracks[track].pid, "tid": track + 1 }))
}

fn names(number: usize, track: &Track, timeline: &Timeline<'_>, lines: &mut Lines<'_>) -> io::Result<()> {
    let mut name = |what: &str, args: Value| {
        let mut event = place(number, timeline);
        event.extend(fields(json!({ "ph": "M", "name": what, "args": args })));
        lines.event(&event)
    };
    let component = component(track.component);
    if track.lane == 1 {
        name("process_name", json!({ "name": component }))?;
        name("process_sort_index", json!({ "sort_index": track.component as u32 }))?;
    }
    name("thread_name", json!({ "name": format!("{component} lane {}", track.lane) }))
}

fn slice_event(slice: &Slice<'_>, timeline: &Timeline<'_>, from: MonoNs) -> Map<String, Value> {
    let track = &timeline.tracks[slice.track];
    let ns = slice.end.since(slice.start);
    let mut args = fields(json!({ "ms": millis(ns), "pid": track.pid }));
    let mut put = |name: &str, value: Value| _ = args.insert(name.to_owned(), value);
    put("component", component(track.component).into());
    if slice.goroutine != 0 {
        put("goroutine", slice.goroutine.into());
    }
    match &slice.what {
        What::Span(span) => {
            put("layer", layer(span.layer()).into());
            put("result", result(span).into());
        }
        What::Waits(park) => put("stack", functions(&park.stack)),
        What::Early(_, stack) => {
            put("at_least", true.into());
            put("stack", functions(stack));
        }
        What::Transport => {}
    }
    for (name, is_it) in [("root", slice.is_root()), ("open", slice.open)] {
        if is_it {
            put(name, true.into());
        }
    }
    let mut event = place(slice.track, timeline);
    event.extend(fields(json!({
        "ph": "X", "name": name(slice), "cat": category(slice), "ts": micros(slice.start.since(from)), "dur": micros(ns),
    })));
    event.insert("args".to_owned(), args.into());
    event
}

fn name(slice: &Slice<'_>) -> String {
    let open = if slice.open { ", open" } else { "" };
    match &slice.what {
        What::Span(_) if slice.is_relist() => format!("relist{open}"),
        What::Span(span) => format!("{}{open}", escape::text(span.root_name())),
        What::Waits(park) => format!("waits in {}{open}", place_of(&park.stack)),
        What::Transport => "between client and handler".to_owned(),
        What::Early(operation, _) => format!("{}, open since before the probes", escape::text(operation)),
    }
}

/// The innermost function that is not of the Go runtime.
fn place_of(stack: &[String]) -> String {
    let own = stack.iter().find(|name| !name.starts_with("runtime."));
    own.or(stack.first()).map_or_else(|| "?".to_owned(), |name| escape::text(&short_function(name)))
}

fn category(slice: &Slice<'_>) -> &'static str {
    match &slice.what {
        What::Span(span) => layer(span.layer()),
        What::Waits(_) => "waits",
        What::Transport => "transport",
        What::Early(..) => "early",
    }
}

fn result(span: &Span) -> &'static str {
    match span.result {
        CallResult::Ok => "ok",
        CallResult::Failed => "failed",
        CallResult::Unknown => "unknown",
    }
}

fn functions(stack: &[String]) -> Value {
    stack.iter().take(FRAMES).map(|name| Value::from(escape::text(name))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "what is shown is seconds to hours long")]
fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Microseconds. Exact to the nanosecond for a hundred days.
#[expect(clippy::cast_precision_loss, reason = "what is shown is seconds to hours long")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
