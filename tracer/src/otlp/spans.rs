//! A timeline → export requests of bounded size.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};

use super::{
    Request,
    attributes::{attributes, has_failed, kind, name, number, status, text},
    ids::Ids,
};
use crate::{
    correlate::{Snapshot, thresholds::SECOND_NS},
    input::Component,
    render::escape,
    timeline::{Slice, Timeline, What},
};

/// Receivers of gRPC refuse messages of more than 4 MiB unless told otherwise; a span with a stack has a few KiB.
const SPANS: usize = 500;

/// The traces of a snapshot, each request with at most five hundred spans; none when there is nothing to send.
#[must_use]
pub fn requests(snapshot: &Snapshot) -> Vec<Request> {
    let timeline = Timeline::of(snapshot);
    let roots = roots(&timeline);
    let is_wanted = |root: usize| is_worth_it(&timeline.slices[root]);
    let wanted: Vec<usize> = (0..roots.len()).filter(|slice| is_wanted(roots[*slice])).collect();
    wanted.chunks(SPANS).map(|slices| request(slices, &roots, &timeline, snapshot)).collect()
}

/// Of each slice the relist or request that it belongs to. Slices come after those they lie in.
fn roots(timeline: &Timeline<'_>) -> Vec<usize> {
    let mut roots = Vec::with_capacity(timeline.slices.len());
    for (number, slice) in timeline.slices.iter().enumerate() {
        roots.push(slice.parent.map_or(number, |parent| roots[parent]));
    }
    roots
}

/// Is it open, has it failed, or did it take long?
fn is_worth_it(root: &Slice<'_>) -> bool {
    let failed = matches!(&root.what, What::Span(span) if has_failed(span));
    root.open || failed || root.end.since(root.start) >= SECOND_NS
}

/// Spans go by the process that they are of.
fn request(slices: &[usize], roots: &[usize], timeline: &Timeline<'_>, snapshot: &Snapshot) -> Request {
    let ids = Ids::of(snapshot);
    let mut processes: BTreeMap<(Component, u32), Vec<Span>> = BTreeMap::new();
    for &number in slices {
        let track = &timeline.tracks[timeline.slices[number].track];
        let span = span(number, roots[number], timeline, snapshot, ids);
        processes.entry((track.component, track.pid)).or_default().push(span);
    }
    let of_process = |((component, pid), spans): ((Component, u32), Vec<Span>)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![
                text("service.name", component.name()),
                text("host.name", escape::text(&snapshot.start.node)),
                number("process.pid", u64::from(pid)),
            ],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    Request { resource_spans: processes.into_iter().map(of_process).collect() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "plegtrace".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn span(number: usize, root: usize, timeline: &Timeline<'_>, snapshot: &Snapshot, ids: Ids<'_>) -> Span {
    let slice = &timeline.slices[number];
    let wall = |at| u64::try_from(snapshot.wall_ns(at)).unwrap_or_default();
    Span {
        trace_id: ids.trace(timeline, root),
        span_id: ids.span(timeline, number),
        parent_span_id: slice.parent.map(|parent| ids.span(timeline, parent)).unwrap_or_default(),
        name: name(slice),
        kind: kind(slice).into(),
        start_time_unix_nano: wall(slice.start),
        end_time_unix_nano: wall(slice.end),
        attributes: attributes(slice),
        status: status(slice),
        ..Span::default()
    }
}
