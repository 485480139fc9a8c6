//! `plegtrace top` on a terminal, as a person uses it: it shows a stall, freezes, saves a recording, and ends.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, process};
use plegtrace_tests::program;

const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn a_person_at_a_terminal() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (kubelet, runtime) = (node.kubelet().pid(), node.containerd().pid());
    let program = program::path().unwrap();
    let about = format!("top --kubelet-pid {kubelet} --runtime-pid {runtime}");
    // script(1) gives it a terminal.
    let shell = format!("stty rows 24 cols 100; exec {} {about}", program.display());
    let mut top = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut out) = (top.stdin.take().unwrap(), top.stdout.take().unwrap());
    let screen = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&screen);
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut bytes) {
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    let shows = |words: &str| {
        process::wait_for(words, LIMIT, || Ok(screen.lock().unwrap().contains(words).then_some(())))
            .unwrap_or_else(|error| panic!("{error:#}: {}", screen.lock().unwrap()));
    };
    shows("HEALTHY");
    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    shows("STALL");
    shows("UpdateContainerResources");
    keys.write_all(b"f").unwrap();
    shows("FROZEN");
    keys.write_all(b"s").unwrap();
    let saved = || -> Option<PathBuf> { Some(fs::read_dir(&dir).ok()?.next()?.ok()?.path()) };
    let saved = process::wait_for("a recording", LIMIT, || Ok(saved())).unwrap();
    shows("saved");
    keys.write_all(b"q").unwrap();
    let ended = process::wait_for("the end", LIMIT, || Ok(top.try_wait()?)).unwrap();
    reader.join().unwrap();
    fault.heal().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", screen.lock().unwrap());
    // The terminal is as it was: the other screen is left.
    assert!(screen.lock().unwrap().contains("\u{1b}[?1049l"));
    let report = Command::new(program).arg("report").arg(&saved).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.code() == Some(1) && text.contains("\nSTALL R1  "), "{text}");
}
