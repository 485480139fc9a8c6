//! Traces as a collector of OpenTelemetry gets them: a real gRPC server, and plegtrace as its users run it on a recording.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use plegtrace::input::Layer;
use plegtrace_common::rec::{CALL_FAILED, CALL_OK};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{
    faults::{Observer, kept},
    packed, program,
    story::{MS, S, Story},
};
use tokio::{net::TcpListener, sync::oneshot};
use tonic::{Request, Response, Status, transport::Server};

/// What came.
type Inbox = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

struct Receiver {
    inbox: Inbox,
    /// So many spans of each request it does not take.
    rejects: i64,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.inbox.lock().unwrap().push(request.into_inner());
        let part = ExportTracePartialSuccess {
            rejected_spans: self.rejects,
            ..ExportTracePartialSuccess::default()
        };
        Ok(Response::new(ExportTraceServiceResponse { partial_success: Some(part) }))
    }
}

/// A collector; it ends when it is dropped.
struct Collector {
    address: SocketAddr,
    inbox: Inbox,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Collector {
    fn start(rejects: i64) -> Self {
        let (end, ended) = oneshot::channel();
        let inbox = Inbox::default();
        let service = TraceServiceServer::new(Receiver { inbox: Arc::clone(&inbox), rejects });
        let (address, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                address.send(listener.local_addr().unwrap()).unwrap();
                let incoming = tonic::transport::server::TcpIncoming::from(listener);
                let server = Server::builder().add_service(service);
                server.serve_with_incoming_shutdown(incoming, async { drop(ended.await) }).await.unwrap();
            });
        });
        Self { address: told.recv().unwrap(), inbox, end: Some(end), thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Each span, with the attributes of its resource.
    fn spans(&self) -> Vec<(BTreeMap<String, String>, Span)> {
        let inbox = self.inbox.lock().unwrap();
        let processes = inbox.iter().flat_map(|request| &request.resource_spans);
        let of_process = |process: &opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
            let about = attributes(&process.resource.clone().unwrap().attributes);
            let spans = process.scope_spans.clone().into_iter().flat_map(|scope| scope.spans);
            spans.map(|span| (about.clone(), span)).collect::<Vec<_>>()
        };
        processes.flat_map(of_process).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &KeyValue| match value.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    list.iter().map(|value| (value.key.clone(), text(value))).collect()
}

fn report(kind: Kind, observer: Observer, arguments: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.plegtrace");
    fs::write(&file, packed::recording(&kept::file(kind, observer)).unwrap()).unwrap();
    Command::new(program::path().unwrap()).arg("report").arg(&file).args(arguments).output().unwrap()
}

/// The lock hostage: the relist that hangs is the root, below it the list of containers in the kubelet, and below that its handler in
/// containerd: all open, in one trace, each by the name and the attributes that the conventions give it.
#[test]
fn a_stall_is_a_trace_with_open_spans() {
    let collector = Collector::start(0);
    let ended = report(Kind::LockHostage, Observer::Early, &["--otlp", &collector.url()]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("STALL R1"));

    let spans = collector.spans();
    assert!(stderr.contains(&format!("sent {} spans to the collector", spans.len())), "{stderr}");
    let is_open = |span: &Span| attributes(&span.attributes).contains_key("plegtrace.open");
    let (kubelet, relist) = spans
        .iter()
        .find(|(_, span)| span.name == "relist" && is_open(span))
        .unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!((kubelet["service.name"].as_str(), relist.parent_span_id.len()), ("kubelet", 0));
    let below = |parent: &Span, kind: SpanKind| {
        let is_it = |span: &Span| span.parent_span_id == parent.span_id && span.kind == i32::from(kind);
        let found = spans.iter().find(|(_, span)| is_it(span) && is_open(span));
        found.unwrap_or_else(|| panic!("{kind:?} below {parent:#?} in {spans:#?}"))
    };
    // The kubelet asks through two layers of its own, of which both are clients.
    let mut call: &Span = &below(relist, SpanKind::Internal).1;
    while call.kind != i32::from(SpanKind::Client) {
        call = spans
            .iter()
            .map(|(_, span)| span)
            .find(|span| span.parent_span_id == call.span_id && is_open(span))
            .unwrap_or_else(|| panic!("no call below {call:#?}"));
    }
    let client = &below(call, SpanKind::Client).1;
    let (containerd, handler) = below(client, SpanKind::Server);
    assert_eq!(containerd["service.name"], "containerd");
    assert_ne!(containerd["process.pid"], kubelet["process.pid"]);
    for span in [call, client, handler] {
        let about = attributes(&span.attributes);
        assert_eq!(span.name, "runtime.v1.RuntimeService/ListContainers");
        assert_eq!((about["rpc.system.name"].as_str(), &about["rpc.method"]), ("grpc", &span.name));
        assert_eq!((&span.trace_id, &span.status), (&relist.trace_id, &None), "{span:#?}");
        assert!(span.start_time_unix_nano >= relist.start_time_unix_nano);
        assert_eq!(span.end_time_unix_nano, relist.end_time_unix_nano, "open to the moment of the report");
    }
}

/// All that comes is well formed, whatever the recording; what one recording sends twice has the same ids.
#[test]
fn spans_are_well_formed() {
    let collector = Collector::start(0);
    let of = || {
        let files = kept::all().unwrap().into_iter().step_by(4);
        files.map(|(_, file)| plegtrace::otlp::requests(&packed::stream(&file).unwrap().end()))
    };
    let mut spans = 0;
    for (requests, again) in of().zip(of()) {
        assert_eq!(requests, again);
        collector.inbox.lock().unwrap().clear();
        let sent = plegtrace::otlp::send(&collector.url().parse().unwrap(), requests).unwrap();
        let came = collector.spans();
        assert_eq!((came.len() as u64, sent.rejected), (sent.spans, 0));
        let known: BTreeMap<_, _> = came.iter().map(|(_, span)| (&span.span_id, span)).collect();
        assert_eq!(known.len(), came.len(), "each span has an id of its own");
        for (_, span) in &came {
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
            if !span.parent_span_id.is_empty() {
                let parent =
                    known.get(&span.parent_span_id).unwrap_or_else(|| panic!("no parent: {span:#?}"));
                assert_eq!(parent.trace_id, span.trace_id);
            }
        }
        spans += came.len();
    }
    assert!(spans > 100, "{spans}");
}

/// A call that failed is an error; one that is quick is not sent.
#[test]
fn what_is_sent() {
    let mut story = Story::node();
    let call = |story: &mut Story, operation, goid, from, to, flags| {
        story.call(Layer::KubeletClient, operation, (goid, 900), from, to, flags);
    };
    call(&mut story, "ListContainers", 5, S, S + 9 * MS, CALL_OK);
    call(&mut story, "RunPodSandbox", 6, 2 * S, 2 * S + 9 * MS, CALL_FAILED);
    call(&mut story, "UpdateContainerResources", 7, 3 * S, 4 * S + 500 * MS, CALL_OK);
    let requests = plegtrace::otlp::requests(&story.snapshot(6 * S));
    let spans: Vec<Span> = requests
        .into_iter()
        .flat_map(|request| request.resource_spans)
        .flat_map(|process| process.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect();
    let of = |name: &str| spans.iter().find(|span| span.name.ends_with(name));
    assert!(of("/ListContainers").is_none(), "{spans:#?}");
    let failed = of("/RunPodSandbox").unwrap();
    assert_eq!(failed.status.clone().unwrap().code, i32::from(StatusCode::Error));
    assert_eq!(attributes(&failed.attributes)["error.type"], "_OTHER");
    assert_eq!(of("/UpdateContainerResources").unwrap().status, None);
}

/// The verdict stands, whoever takes the traces: nobody, one who rejects some, and one who is asked for nothing.
#[test]
fn a_collector_changes_no_verdict() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let ended = report(Kind::LockHostage, Observer::Early, &["--otlp", &nobody]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("no collector at {nobody}")), "{stderr}");

    let collector = Collector::start(2);
    let ended = report(Kind::LockHostage, Observer::Early, &["-q", "--otlp", &collector.url()]);
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("the collector rejected 2 of "), "{stderr}");
    assert_eq!(ended.status.code(), Some(1));

    for (arguments, words) in [
        (&["doctor", "--otlp", "http://127.0.0.1:1"][..], "not with doctor"),
        (&["--dry-run", "--otlp", "http://127.0.0.1:1"], "not with --dry-run"),
        (&["--otlp", "https://x:4317"], "there is no TLS"),
        (&["--otlp", "127.0.0.1:4317"], "it takes the gRPC address"),
    ] {
        let ended = Command::new(program::path().unwrap()).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}
