//! The reports of four stories, as text with and without colour and as JSON, are what the golden files say.

use plegtrace::{
    correlate::Snapshot,
    diagnose::diagnose,
    input::{
        Command, Component, ContainerFact, FdFact, FdTarget, Holder, ParkedThreads, PipeFact, ProcessFact,
        SocketFact, SyscallFact,
    },
    render::{
        escape::is_treacherous,
        json,
        text::{self, TextOptions},
    },
};
use plegtrace_common::{
    reason::Reason,
    rec::{PROCESS_EXECED, PROCESS_INIT},
    role::Role,
};
use plegtrace_tests::{
    found::{self, process, stopped},
    golden,
    life::Life as _,
    story::{CONTAINERD, MS, S, Story},
};

fn text_of(snapshot: &Snapshot, options: TextOptions) -> String {
    let mut out = Vec::new();
    text::report(snapshot, &diagnose(snapshot), &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json_of(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    json::report(snapshot, &diagnose(snapshot), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn check(name: &str, snapshot: &Snapshot) {
    let plain = TextOptions { verbose: true, ..TextOptions::default() };
    golden::check(&format!("render/{name}.txt"), &text_of(snapshot, plain));
    golden::check(
        &format!("render/{name}.colour.txt"),
        &text_of(snapshot, TextOptions { colour: true, ..plain }),
    );
    golden::check(&format!("render/{name}.json"), &json_of(snapshot));
}

fn healthy() -> Snapshot {
    let mut story = Story::node();
    for n in 0..12 {
        story.relist(n * 1010 * MS, u64::from(n == 5) * 3);
        story.rpc("ExecSync", 900 + n, n * S + 300 * MS, n * S + 340 * MS);
    }
    story.read_open(12_500 * MS).cost(12_500 * MS);
    story.snapshot(12_600 * MS)
}

fn hanging() -> Snapshot {
    let mut story = Story::node();
    story.relist(0, 0).relist(1010 * MS, 2).relist_hangs(2020 * MS).list_times_out(122 * S);
    story.relist_hangs(123 * S).read_open(154 * S).cost(154 * S);
    story.snapshot(154_400 * MS)
}

fn processes() -> Snapshot {
    const ID: &str = "51f2e49b8310aa0b51f2e49b8310aa0b51f2e49b8310aa0b51f2e49b8310aa0b";
    let runc = |sub: &str| Command::Runc { sub: sub.into(), container: Some(ID.into()), bundle: None };
    let mut story = Story::node();
    story.found(CONTAINERD, Role::Containerd).found(900, Role::Shim);
    for n in 0..40 {
        let (pid, ns) = (1000 + n, u64::from(n) * 200 * MS);
        story.fork(900, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns + MS).told(pid, &runc("exec"));
        story.exit(ns + (20 + u64::from(n)) * MS, pid, if n == 7 { 9 } else { u32::from(n == 9) << 8 });
    }
    let bridge = Command::Cni {
        plugin: "br\u{202e}idge".into(),
        action: Some("ADD".into()),
        container: Some(ID.into()),
    };
    story.fork(CONTAINERD, 2000, 3 * S).exec(2000, Role::Helper, PROCESS_EXECED, 3 * S).told(2000, &bridge);
    story.fork(900, 2001, 4 * S).exec(2001, Role::Runc, PROCESS_EXECED, 4 * S).told(2001, &runc("create"));
    let init = PROCESS_EXECED | PROCESS_INIT;
    story.fork(2001, 2002, 5 * S).exec(2002, Role::Runc, init, 5 * S).fork(2002, 2003, 5 * S);
    story.enter(2001, "start", 500, 4 * S + 2 * MS).enter(2001, "parseSync", 900, 4 * S + 9 * MS);
    story.enter(2003, "PatchAndLoad", 700, 5 * S + 9 * MS);
    story.relist(14 * S, 0).relist(15 * S, 0).read_open(16 * S).read_processes(16 * S);
    story.snapshot(16 * S)
}

fn lossy() -> Snapshot {
    let mut story = Story::node();
    story.relist(0, 0).relist(1010 * MS, 0).relist(2020 * MS, 0);
    story.counted(3 * S, Reason::RingFull, 1234).counted(3 * S, Reason::StartRepeated, 2).read_open(3 * S);
    story.snapshot(3_200 * MS)
}

/// Both ends of a pipe in one process, as the genuine rc93 hang has them.
fn own_pipe(pid: u32) -> ParkedThreads {
    let end = |fd| vec![Holder { pid, comm: "runc:[2:INIT]".into(), fd, orphan: false }];
    let pipe = PipeFact { inode: 4_242, readers: end(8), writers: end(9), ..PipeFact::default() };
    ParkedThreads {
        threads: 1,
        tid: pid,
        state: 'S',
        syscall: Some(SyscallFact {
            nr: 1,
            name: Some("write".into()),
            args: [9, 0xc000_0000, 4096, 0, 0, 0],
            fd: Some(FdFact { fd: 9, target: FdTarget::Pipe(pipe) }),
            path: None,
            lock_holder: None,
            watched: Vec::new(),
        }),
        kernel_stack: ["anon_pipe_write", "vfs_write", "ksys_write"].map(str::to_owned).to_vec(),
        user_function: None,
    }
}

/// A lock hostage and a runc that hangs, both from before we came.
fn stuck() -> Snapshot {
    let container = ContainerFact {
        id: "51f2e49b8310aa".into(),
        name: Some("c".into()),
        pod: Some("p3".into()),
        namespace: Some("default".into()),
        source: "bundle".into(),
        ..ContainerFact::default()
    };
    let socket = SocketFact { inode: 5, path: Some("/run/s/1".into()), unread: 214, ..SocketFact::default() };
    let shim = ProcessFact {
        sockets: vec![socket],
        container: Some(container),
        ..stopped(process(Component::Shim, 24_141, 1, 0))
    };
    let init = Command::Runc { sub: "init".into(), container: None, bundle: None };
    let init = ProcessFact {
        command: Some(init),
        comm: "runc:[2:INIT]".into(),
        parked: vec![own_pipe(24_201)],
        ..process(Component::Runc, 24_201, 24_200, 0)
    };
    let runc = Command::Runc { sub: "create".into(), container: Some("c9".into()), bundle: None };
    let runc = ProcessFact { command: Some(runc), ..process(Component::Runc, 24_200, 24_142, 0) };
    let processes = [shim, init, runc, process(Component::Shim, 24_142, 1, 0)];
    let mut story = Story::node();
    for round in [1, 5, 10] {
        let containerd = [found::update(), found::lists()];
        story.census(round * S, &processes, &containerd, &[found::relist()]).read_open(round * S);
    }
    story.snapshot(10 * S)
}

/// What does not move comes first, with its chain; a lower bound of an age is written as one.
#[test]
fn golden_stuck() {
    check("stuck", &stuck());
}

/// A healthy node is called so, with the window that was seen.
#[test]
fn golden_healthy() {
    check("healthy", &healthy());
}

/// A hanging list is named first, with what the kubelet gave up before.
#[test]
fn golden_hanging() {
    check("hanging", &hanging());
}

/// With losses there is no verdict, and the losses are listed.
#[test]
fn golden_lossy() {
    check("lossy", &lossy());
}

/// Processes that hang have a reason, an age, a container and a chain of parents; those that ended have figures.
#[test]
fn golden_processes() {
    check("processes", &processes());
}

/// Colour changes nothing but colour, and every line fits.
#[test]
fn colour_and_width() {
    for snapshot in [healthy(), hanging(), lossy(), stuck(), processes()] {
        for width in [80, 100, 120] {
            let options = TextOptions { verbose: true, width, ..TextOptions::default() };
            let plain = text_of(&snapshot, options);
            let coloured = text_of(&snapshot, TextOptions { colour: true, ..options });
            assert_ne!(plain, coloured);
            assert_eq!(plain, strip(&coloured));
            for line in plain.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }
}

/// Removes colour sequences.
fn strip(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('\x1b') {
        out.push_str(&rest[..start]);
        let end = rest[start..].find('m').expect("a colour sequence ends in m");
        rest = &rest[start + end + 1..];
    }
    out + rest
}

/// The JSON document has the version and the figures of the text.
#[test]
fn json_is_one_document() {
    let document: serde_json::Value = serde_json::from_str(&json_of(&hanging())).unwrap();
    assert_eq!(document["schema_version"], 2);
    assert_eq!(document["diagnosis"]["verdict"], "stall");
    assert_eq!(document["last_successful_list"]["start_at"]["time"], "2026-01-01T14:00:01.010000000Z");
    assert_eq!(document["relists"].as_array().unwrap().len(), 4);
}

/// Text of the node cannot drive the terminal, in either form.
#[test]
fn hostile_text_is_tamed() {
    let mut story = Story::node();
    let hostile = "1.2\x1b]0;owned\x07\u{202e}\n\u{9b}31m";
    story.target(Component::Containerd, 99, hostile).relist(0, 0).read_open(S);
    story.gone(2 * S, Component::Containerd, 99, hostile);
    let snapshot = story.snapshot(3 * S);
    for output in
        [text_of(&snapshot, TextOptions { verbose: true, ..TextOptions::default() }), json_of(&snapshot)]
    {
        assert!(output.chars().all(|c| c == '\n' || !is_treacherous(c)), "{output}");
        assert!(output.contains("owned"), "it is still shown");
    }
}
