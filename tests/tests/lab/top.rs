//! `plegtrace top` on a terminal, as a person uses it: it shows a stall, freezes, saves a recording, and ends, also with its terminal.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, process};
use plegtrace_tests::program;

const LIMIT: Duration = Duration::from_secs(90);

/// One that runs on a terminal of its own; it goes with this, also after a panic.
struct Top {
    /// script(1), which gives it the terminal.
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Top {
    fn start(node: &Node, dir: &Path) -> Top {
        let (kubelet, runtime) = (node.kubelet().pid(), node.containerd().pid());
        let about = format!("top --kubelet-pid {kubelet} --runtime-pid {runtime}");
        let shell = format!("stty rows 24 cols 100; exec {} {about}", program::path().unwrap().display());
        let mut script = Command::new("script")
            .args(["-qec", &shell, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut out) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Top { script, keys, screen }
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits for words that are drawn in one go: of what was there before only the difference is drawn.
    fn shows(&self, words: &str) {
        process::wait_for(words, LIMIT, || Ok(self.screen().contains(words).then_some(())))
            .unwrap_or_else(|error| panic!("{error:#}: {}", self.screen()));
    }

    fn press(&mut self, key: &[u8]) {
        self.keys.write_all(key).unwrap();
    }

    /// plegtrace itself.
    fn pid(&self) -> u32 {
        let is_ours =
            |pid: &u32| process::parent(*pid) == Some(self.script.id()) && process::name(*pid) == "plegtrace";
        process::all().into_iter().find(is_ours).expect("it runs below script(1)")
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // It may have ended; with its terminal plegtrace ends, too.
        drop(self.script.kill());
        drop(self.script.wait());
    }
}

#[test]
fn a_person_at_a_terminal() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut top = Top::start(&node, dir.path());
    top.shows("HEALTHY");
    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    top.shows("STALL");
    top.shows("UpdateContainerResources");
    top.press(b"f");
    top.shows("FROZEN");
    top.press(b"s");
    top.shows("plegtrace-2");
    let saved = || -> Option<PathBuf> { Some(fs::read_dir(&dir).ok()?.next()?.ok()?.path()) };
    let saved = process::wait_for("a recording", LIMIT, || Ok(saved())).unwrap();
    top.press(b"q");
    let ended = process::wait_for("the end", LIMIT, || Ok(top.script.try_wait()?)).unwrap();
    fault.heal().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", top.screen());
    // The terminal is as it was: the other screen is left.
    top.shows("\u{1b}[?1049l");
    let report = Command::new(program::path().unwrap()).arg("report").arg(&saved).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.code() == Some(1) && text.contains("\nSTALL R1  "), "{text}");
}

/// A connection that breaks leaves nothing running on the node.
#[test]
fn a_terminal_that_goes() {
    host::require_root().unwrap();
    let node = Node::start(&Knobs { pods: 1, ..Knobs::default() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let top = Top::start(&node, dir.path());
    top.shows("HEALTHY");
    let pid = top.pid();
    drop(top);
    let is_gone = || Ok((!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    process::wait_for("the end of plegtrace", LIMIT, is_gone).unwrap();
}
