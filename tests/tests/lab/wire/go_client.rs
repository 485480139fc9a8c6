//! Kubernetes' own client of a runtime, in the place of a kubelet: each of its calls is counted, by its own book, also lists as
//! streams, which containerd 2.1 does not serve.

use std::collections::{BTreeMap, BTreeSet};

use plegtrace::decode::RequestEnd;
use plegtrace_lab::go_client::GoClient;
use plegtrace_lab::{Generation, host, packages, process};
use plegtrace_tests::watching::Watching;
use plegtrace_tests::wire::record::UNIMPLEMENTED;

use super::requests::start;
use super::{LIMIT, assert_nothing_is_lost};

/// Times that everything is asked on each connection.
const ROUNDS: usize = 10;

/// Every call by its method, on connections of which it had seen the beginning.
#[test]
fn calls_of_kubernetes_own_client_are_exact() {
    let containerd = start(Generation::V2_1);
    let mut client = match GoClient::start(containerd.socket()) {
        Ok(client) => client,
        Err(error) if packages::Error::is_gone(&error) => {
            return host::declare_skip("the client with Kubernetes' own library", &error);
        }
        Err(error) => panic!("{error:#}"),
    };
    let (asker, runtime) = (client.pid().to_string(), containerd.pid().to_string());
    let about = ["--kubelet-pid", &asker, "--runtime-pid", &runtime, "--sources", "wire"];
    let watching = Watching::start(&[&["-d", "600"], &about[..]].concat()).unwrap();
    watching.wait_until_armed().unwrap();
    for connection in ["connect", "connect traced", "connect streaming", "connect streaming traced"] {
        client.ask(connection).unwrap();
        for operation in ["pods", "containers", "images", "status", "container nothing"] {
            (0..ROUNDS).for_each(|_| client.ask(operation).unwrap());
        }
    }
    // A list as a stream is the first one of its connection: containerd does not know it, and is not asked so again.
    client.ask("connect streaming").unwrap();
    client.ask("containers").unwrap();
    let book = client.book().unwrap();
    let all: u64 = book.iter().map(|asked| asked.count).sum();
    process::wait_for("all ends", LIMIT, || Ok((watching.seen().requests.len() as u64 >= all).then_some(())))
        .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();

    assert_nothing_is_lost(&snapshot);
    let mut asked: BTreeMap<String, u64> = BTreeMap::new();
    book.iter().for_each(|entry| *asked.entry(entry.method.clone()).or_default() += entry.count);
    let named: BTreeMap<String, u64> = (snapshot.grpc.rows.iter())
        .map(|row| {
            assert_eq!((row.unanswered, row.open), (0, 0), "{row:?}");
            (format!("/{}/{}", row.service, row.method), row.latency.count())
        })
        .collect();
    assert_eq!(named, asked, "what was seen, and what the client says");
    let unserved: u64 =
        book.iter().filter(|entry| entry.code == UNIMPLEMENTED).map(|entry| entry.count).sum();
    let streams: Vec<_> =
        seen.requests.iter().filter(|request| request.message.method.starts_with("Stream")).collect();
    let kinds: BTreeSet<&str> = streams.iter().map(|request| request.message.method.as_str()).collect();
    assert_eq!(streams.len() as u64, unserved, "{book:?}");
    assert_eq!(kinds, BTreeSet::from(["StreamContainers", "StreamImages", "StreamPodSandboxes"]));
    for request in streams {
        // Answered by a status alone.
        assert_eq!((request.end, request.answer_bytes), (RequestEnd::Answered, 0), "{request:?}");
    }
}
