//! What is said of a span: names of OpenTelemetry's conventions where there is one.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Status, span::SpanKind, status::StatusCode},
};

use crate::{
    cri::{Method, Service},
    decode::CallResult,
    input::Layer,
    render::escape,
    span::Span,
    timeline::{Slice, What},
    words::short_function,
};

/// Functions of a stack that are sent.
const FRAMES: usize = 24;

pub(super) fn text(key: &'static str, value: impl Into<String>) -> KeyValue {
    of(key, Value::StringValue(value.into()))
}

pub(super) fn number(key: &'static str, value: u64) -> KeyValue {
    of(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn flag(key: &'static str) -> KeyValue {
    of(key, Value::BoolValue(true))
}

fn of(key: &'static str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// `runtime.v1.RuntimeService/ListContainers`; `None` when it is no method of the CRI.
fn rpc_method(operation: &str) -> Option<String> {
    let method = Method::from_name(operation)?;
    let service = match method.facts().service {
        Service::Runtime => "runtime.v1.RuntimeService",
        Service::Image => "runtime.v1.ImageService",
    };
    Some(format!("{service}/{}", method.name()))
}

/// What a slice is called.
pub(super) fn name(slice: &Slice<'_>) -> String {
    let call = |operation: &str| rpc_method(operation).unwrap_or_else(|| escape::text(operation));
    match &slice.what {
        What::Span(span) if span.is_any_relist() => span.root_name().to_owned(),
        What::Span(span) => call(span.operation()),
        What::Waits(park) => {
            let own = park.stack.iter().find(|name| !name.starts_with("runtime."));
            let place =
                own.or(park.stack.first()).map_or_else(|| "?".to_owned(), |name| short_function(name));
            format!("waits in {}", escape::text(&place))
        }
        What::Transport => "between client and handler".to_owned(),
        What::Early(operation, _) => call(operation),
    }
}

pub(super) fn kind(slice: &Slice<'_>) -> SpanKind {
    match &slice.what {
        What::Span(span) => match span.layer() {
            Layer::KubeletCall | Layer::KubeletClient => SpanKind::Client,
            Layer::Handler => SpanKind::Server,
            _ => SpanKind::Internal,
        },
        What::Early(..) => SpanKind::Server,
        What::Waits(_) | What::Transport => SpanKind::Internal,
    }
}

/// Only a failure is an error; what is open has no outcome.
pub(super) fn status(slice: &Slice<'_>) -> Option<Status> {
    let failed = matches!(&slice.what, What::Span(span) if has_failed(span));
    failed.then(|| Status { code: StatusCode::Error.into(), message: String::new() })
}

pub(super) fn has_failed(span: &Span) -> bool {
    !span.is_open() && span.result == CallResult::Failed
}

pub(super) fn attributes(slice: &Slice<'_>) -> Vec<KeyValue> {
    let mut list = Vec::new();
    let mut call = |operation: &str| {
        if let Some(method) = rpc_method(operation) {
            list.extend([text("rpc.system.name", "grpc"), text("rpc.method", method)]);
        }
    };
    match &slice.what {
        What::Span(span) => {
            call(span.operation());
            if has_failed(span) {
                list.push(text("error.type", "_OTHER"));
            }
        }
        What::Waits(park) => list.push(stack(&park.stack)),
        What::Early(operation, frames) => {
            call(operation);
            // It began before the probes: it is older than this span.
            list.extend([flag("plegtrace.at_least"), stack(frames)]);
        }
        What::Transport => {}
    }
    if slice.open {
        list.push(flag("plegtrace.open"));
    }
    if slice.goroutine != 0 {
        list.push(number("plegtrace.goroutine", slice.goroutine));
    }
    list
}

/// Innermost first, a function on each line.
fn stack(functions: &[String]) -> KeyValue {
    let functions: Vec<String> = functions.iter().take(FRAMES).map(|name| escape::text(name)).collect();
    text("code.stacktrace", functions.join("\n"))
}
