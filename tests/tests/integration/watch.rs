//! What `watch` leaves behind, as `check`, `history` and `report` read it: anybody could have written it. Needs no root.

use std::{fs, path::Path, process::Command};

use plegtrace::{
    clock,
    watch::{Entry, Quantiles, State, Status},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{program, recordings};
use serde_json::Value;
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn plegtrace(arguments: &[&str]) -> Said {
    let out = Command::new(program::path().unwrap()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: out.status.code(), stdout: text(out.stdout), stderr: text(out.stderr) }
}

fn in_dir(dir: &TempDir, arguments: &[&str]) -> Said {
    plegtrace(&[arguments, &["--dir", dir.path().to_str().unwrap()]].concat())
}

/// A stall of just now.
fn state() -> State {
    let mono_ns = clock::monotonic_ns();
    let unix_ns = i64::try_from(mono_ns).unwrap() + clock::realtime_offset_ns();
    State {
        schema_version: 1,
        tool_version: "0.1.0".into(),
        written_unix_ns: unix_ns,
        written: String::new(),
        written_mono_ns: mono_ns,
        window_ns: 60_000_000_000,
        status: Status::Problem,
        verdict: "stall".into(),
        id: Some("R1".into()),
        component: Some("shim".into()),
        age_ns: Some(200_000_000_000),
        at_least: false,
        text: "the shim of container c1 does not answer, which holds the lock that every list needs".into(),
        on_verdict: None,
    }
}

fn put(dir: &Path, state: &State) {
    fs::write(dir.join("state.json"), serde_json::to_vec(state).unwrap()).unwrap();
}

/// One line, 80 bytes, component and age first, and the exit codes of node-problem-detector.
#[test]
fn check_says_it_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let none = in_dir(&dir, &["check"]);
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (Some(2), "unknown: no state; is plegtrace watch running?\n")
    );
    put(dir.path(), &state());
    let stall = in_dir(&dir, &["check"]);
    assert!(
        stall.code == Some(1) && stall.stdout.starts_with("shim 3 min 20 s: R1 the shim of"),
        "{}",
        stall.stdout
    );
    assert!(stall.stdout.len() <= 81 && stall.stdout.lines().count() == 1);
    put(dir.path(), &State { status: Status::Ok, text: "58 relists".into(), ..state() });
    let ok = in_dir(&dir, &["check"]);
    assert_eq!((ok.code, ok.stdout.as_str(), ok.stderr.as_str()), (Some(0), "ok: 58 relists\n", ""));
    let old = State { written_mono_ns: 0, window_ns: 1, ..state() };
    put(dir.path(), &old);
    assert_eq!(in_dir(&dir, &["check"]).code, Some(2));
    for damaged in [&b"{"[..], b"", b"\xff\xff", b"{\"schema_version\": 1}"] {
        fs::write(dir.path().join("state.json"), damaged).unwrap();
        let said = in_dir(&dir, &["check"]);
        assert!(
            said.code == Some(2) && said.stdout.starts_with("unknown: the state cannot"),
            "{}",
            said.stdout
        );
    }
}

/// Texts of a state have no power over terminals.
#[test]
fn check_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "\u{1b}[2J\n\u{202e}".repeat(30);
    put(
        dir.path(),
        &State { component: Some(hostile.clone()), id: Some(hostile.clone()), text: hostile, ..state() },
    );
    let said = in_dir(&dir, &["check"]);
    assert!(said.stdout.lines().count() == 1 && said.stdout.len() <= 81, "{:?}", said.stdout);
    assert!(!said.stdout.contains('\u{1b}') && !said.stdout.contains('\u{202e}'), "{:?}", said.stdout);
}

/// The table, its JSON, and only the last of it; a line that a kill has cut is left out.
#[test]
fn the_history() {
    let dir = tempfile::tempdir().unwrap();
    let none = in_dir(&dir, &["history"]);
    assert!(none.code == Some(2) && none.stderr.contains("--dir"), "{}", none.stderr);
    let now = state().written_unix_ns;
    let entry = |ago: i64, verdict: &str| Entry {
        at_unix_ns: now - ago * 1_000_000_000,
        window_ns: 60_000_000_000,
        verdict: verdict.into(),
        relists: Quantiles { count: 58, p50_ns: 4_000_000, p99_ns: 9_000_000, max_ns: 9_000_000 },
        ..Entry::default()
    };
    let lines = [entry(7200, "healthy"), entry(30, "stall")].map(|it| serde_json::to_string(&it).unwrap());
    fs::write(dir.path().join("history.jsonl"), format!("{}\n{}\n{{\"at_unix", lines[0], lines[1])).unwrap();
    let all = in_dir(&dir, &["history"]);
    assert_eq!((all.code, all.stdout.matches("9.0 ms").count()), (Some(0), 3), "{}", all.stdout);
    let last: Value =
        serde_json::from_str(&in_dir(&dir, &["history", "--since", "1h", "-o", "json"]).stdout).unwrap();
    assert_eq!((last.as_array().unwrap().len(), &last[0]["verdict"]), (1, &"stall".into()));
}

/// Pictures of a recording, compared with one that was kept; and what has no picture says so.
#[test]
fn pictures_of_a_recording() {
    let file = |kind| recordings::folder().join(recordings::file(kind)).to_str().unwrap().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let healthy = plegtrace(&["report", &file(Kind::Cni), "-o", "folded"]);
    let kept = dir.path().join("healthy.folded");
    fs::write(&kept, &healthy.stdout).unwrap();
    let against = ["--against", kept.to_str().unwrap()];
    let stall = file(Kind::ContainerdStopped);
    let svg = plegtrace(&["report", &stall, "-o", "svg"]);
    assert_eq!((svg.code, svg.stderr.as_str()), (Some(1), ""));
    assert!(svg.stdout.contains("<title>ListContainers, open ("), "{}", svg.stdout);
    let change = plegtrace(&[&["report", &stall, "-o", "svg"][..], &against].concat());
    assert!(change.stdout.contains("red has grown"), "{}", change.stderr);
    let mean = plegtrace(&["report", &file(Kind::Cni), "-o", "folded", "--per-relist"]);
    fs::write(&kept, &mean.stdout).unwrap();
    let refused = plegtrace(&[&["report", &stall, "-o", "svg"][..], &against].concat());
    assert!(refused.code == Some(2) && refused.stderr.contains("--per-relist"), "{}", refused.stderr);
    fs::write(&kept, "a;b 7\n").unwrap();
    let foreign = plegtrace(&[&["report", &stall, "-o", "svg"][..], &against].concat());
    assert!(foreign.code == Some(2) && foreign.stderr.contains("-o folded"), "{}", foreign.stderr);
    for command in
        [&["doctor"][..], &["explain", "R1"], &["goroutines", "1"], &["check"], &["history"], &["--dry-run"]]
    {
        let said = plegtrace(&[command, &["-o", "svg"]].concat());
        assert!(said.code == Some(2) && said.stderr.contains("takes text or json"), "{}", said.stderr);
    }
    assert_eq!(plegtrace(&["report", &stall, "--per-relist"]).code, Some(2));
    let endless = plegtrace(&["watch", "-d", "60"]);
    assert!(
        endless.code == Some(2) && endless.stderr.contains("go on until Ctrl-C or SIGTERM"),
        "{}",
        endless.stderr
    );
}
