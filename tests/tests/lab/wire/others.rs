//! Clients of a real containerd that are not traced: counted exactly, by their names, on connections old and new; and what nobody
//! answers them is open. This process is such a client.

use std::collections::BTreeMap;
use std::fs;

use plegtrace::decode::RequestEnd;
use plegtrace_lab::cri::Call;
use plegtrace_lab::{fault, process};
use plegtrace_tests::recordings::text_of;
use plegtrace_tests::watching::Watching;

use super::requests::{ask, handled, since};
use super::{HANGS, LIMIT, assert_nothing_is_lost, start};

const ROUNDS: u64 = 20;
/// Requests on a connection that is older than the probes.
const OLD: u64 = 5;

/// Of each client its name, its process, and how often it asked what; nothing of that is the kubelet's.
#[test]
fn other_clients_are_named_and_counted() {
    let (containerd, pods) = start(1);
    let old = containerd.client();
    old.list_containers(LIMIT).unwrap();
    let before = handled(&containerd);
    // The census asks the runtime too, and is nobody else.
    let runtime = containerd.pid().to_string();
    let about = ["-d", "600", "--runtime-pid", &runtime, "--sources", "wire,census"];
    let watching = Watching::start(&about).unwrap();
    watching.wait_until_armed().unwrap();
    let client = containerd.client_of(old.api()).unwrap();
    for _ in 0..ROUNDS {
        ask(&client).unwrap();
    }
    for _ in 0..OLD {
        old.list_containers(LIMIT).unwrap();
    }
    let stopped = fault::stop_process(containerd.shim_of(&pods[0].sandbox).unwrap()).unwrap();
    let container = pods[0].container.clone();
    let mut call = Call::start(&containerd.client_of(old.api()).unwrap(), "ExecSync", move |client| {
        client.exec_sync(&container, &["true"], HANGS).map(drop)
    })
    .unwrap();
    let open = process::wait_for("an open request", LIMIT, || {
        let seen = watching.seen();
        let old = |open: &&plegtrace::input::OpenMessageFact| open.method == "ExecSync";
        Ok(seen.open_others.open.iter().find(old).cloned())
    })
    .unwrap();
    assert_eq!((open.asker, open.answerer, open.over), (std::process::id(), containerd.pid(), false));
    drop(stopped);
    call.wait(LIMIT).unwrap().unwrap();
    let each = ["Version", "Status", "ListPodSandbox", "ListImages", "ContainerStatus"];
    let mut asked: BTreeMap<String, u64> = each.map(|method| (method.to_owned(), ROUNDS)).into();
    asked.extend([("ListContainers".to_owned(), OLD), ("ExecSync".to_owned(), 1)]);
    let all: u64 = asked.values().sum();
    process::wait_for("the census to ask", LIMIT, || {
        let counted = since(&before, handled(&containerd));
        Ok((counted.values().sum::<u64>() > all).then_some(()))
    })
    .unwrap();
    process::wait_for("all ends", LIMIT, || {
        Ok((watching.seen().other_requests.len() as u64 >= all).then_some(()))
    })
    .unwrap();
    let (snapshot, seen) = watching.interrupt().unwrap();

    assert_nothing_is_lost(&snapshot);
    assert!(seen.requests.is_empty() && snapshot.grpc.rows.is_empty(), "{:?}", snapshot.grpc.rows);
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let [client] = &snapshot.other_clients[..] else { panic!("{:?}", snapshot.other_clients) };
    assert_eq!((client.name.as_str(), client.pids.len()), (name.trim_end(), 1));
    assert!(client.pids.contains(&std::process::id()), "{:?}", client.pids);
    let rows = client.requests.rows.iter().filter(|row| row.service.starts_with("runtime."));
    let named: BTreeMap<String, u64> = rows
        .map(|row| {
            assert_eq!((row.unanswered, row.open), (0, 0), "{row:?}");
            (row.method.clone(), row.latency.count())
        })
        .collect();
    assert_eq!(named, asked, "what was seen, and what we asked");
    let ended = seen.other_requests.iter().find(|it| it.message.id.start.0 == open.start_ns).unwrap();
    assert_eq!((ended.end, ended.message.method.as_str()), (RequestEnd::Answered, "ExecSync"));
    let page = text_of(&snapshot, true).unwrap();
    let title = format!("{} {}", name.trim_end(), std::process::id());
    assert!(page.contains("Other clients of the runtime") && page.contains(&title), "{page}");
}
