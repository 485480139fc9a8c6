//! The binary as an operator or a script meets it: messages, exit codes, streams. Needs no kubelet and no runtime.
//!
//! The binary is `$PLEGTRACE_BIN`, else the younger of `target/{release,debug}/plegtrace`.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use plegtrace_common::ABI_VERSION;
use plegtrace_tests::program;
use serde_json::Value;
use tempfile::TempDir;

/// No call here takes longer, even on a busy machine under emulation.
const DEADLINE: Duration = Duration::from_secs(240);
/// User and group `nobody`, by number: every distribution has them so.
const NOBODY: u32 = 65534;

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("PLEGTRACE_BIN") {
        return path.into();
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let age = |path: &PathBuf| fs::metadata(path).and_then(|m| m.modified()).ok();
    let built = ["release", "debug"].map(|profile| target.join(profile).join("plegtrace"));
    let youngest = built.into_iter().filter(|path| path.exists()).max_by_key(age);
    youngest.expect("there is no plegtrace to test: run `cargo xtask build`, or set PLEGTRACE_BIN")
}

/// How a call ended and what it said.
#[derive(Debug)]
struct Said {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Said {
    fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed by a signal: {self:?}"))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs a command to its end. Both streams are read while it runs, so that it never waits for us.
fn run(command: &mut Command) -> Said {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let out = child.stdout.take().map(collect).expect("piped");
    let err = child.stderr.take().map(collect).expect("piped");
    let status = end_of(&mut child);
    Said { status, stdout: out.join().expect("reads"), stderr: err.join().expect("reads") }
}

fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).expect("a pipe can be read");
        String::from_utf8(text).expect("plegtrace writes UTF-8")
    })
}

/// Waits for the end, but not for ever.
fn end_of(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        if Instant::now() >= deadline {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            panic!("no end within {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn plegtrace(words: &[&str]) -> Said {
    run(Command::new(binary()).args(words).env_remove("NO_COLOR"))
}

/// A directory that everybody may enter.
fn open_dir() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}

fn is_root() -> bool {
    // SAFETY: cannot fail and touches nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Runs plegtrace as a user without privileges, from a place where that user may.
fn unprivileged(words: &[&str]) -> Said {
    let dir = open_dir();
    let program = dir.path().join("plegtrace");
    program::copy(&binary(), &program).expect("a copy");
    let mut command = Command::new(&program);
    command.args(words).current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    run(&mut command)
}

/// Are the eBPF programs in the binary under test?
fn is_whole() -> bool {
    let doc = plegtrace(&["doctor", "-o", "json", "-q"]).json();
    check(&doc, "object")["state"] == "ok"
}

fn check<'a>(doc: &'a Value, id: &str) -> &'a Value {
    let checks = doc["checks"].as_array().expect("checks are a list");
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no check {id}: {doc}"))
}

/// Is this test in a container with a pid namespace of its own? (PROC_PID_INIT_INO, Linux include/linux/proc_ns.h)
fn in_container() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link != Path::new("pid:[4026531836]"))
}

/// Exactly an error and a hint, and nothing that a script could take for a report.
fn assert_refused(said: &Said, code: i32) -> &str {
    assert_eq!(said.code(), code, "{said:?}");
    assert_eq!(said.stdout, "", "nothing on stdout: {said:?}");
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("plegtrace: "), "{said:?}");
    lines[1].strip_prefix("hint: ").unwrap_or_else(|| panic!("{said:?}"))
}

/// Help begins with what the program is for and has examples, every exit code, and every command.
#[test]
fn help() {
    let said = plegtrace(&["--help"]);
    assert_eq!((said.code(), said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("PLEG is not healthy"));
    assert!(said.stdout.contains("Examples:\n  sudo plegtrace "));
    // Where lines break depends on the terminal.
    let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, codes) = words.split_once("Exit codes:").expect("exit codes are listed");
    for code in [
        "0 healthy",
        "1 stall, failing or slow",
        "2 usage",
        "3 cannot run here",
        "4 nothing to trace",
        "5 cannot",
        "70 bug",
    ] {
        assert!(codes.contains(code), "{code}: {codes}");
    }
    for command in ["doctor", "goroutines", "record", "report"] {
        assert!(said.stdout.contains(&format!("\n  {command} ")), "{command}: {said:?}");
    }
}

/// `-h` fits a terminal, for what most people want, and has the exit codes.
#[test]
fn short_help() {
    let said = plegtrace(&["-h"]);
    assert_eq!((said.code(), said.stderr.as_str()), (0, ""));
    let lines = said.stdout.lines().count();
    assert!(lines <= 24 && said.stdout.lines().all(|line| line.chars().count() <= 80), "{lines}\n{said:?}");
    for word in ["--show", "-v", "-o", "explain", "Exit codes: 0 healthy", "5 cannot tell"] {
        assert!(said.stdout.contains(word), "{word}: {}", said.stdout);
    }
}

/// Without an id every cause is listed, one per line.
#[test]
fn explain_lists() {
    let (said, list) = (plegtrace(&["explain"]), plegtrace(&["explain", "--list"]));
    assert_eq!((said.code(), &said.stdout), (0, &list.stdout));
    assert!(said.stdout.lines().count() > 60 && said.stdout.lines().any(|line| line.starts_with("R1 ")));
}

/// The version is the package's, in one line for scripts; the long form distinguishes it from others of that version.
#[test]
fn version() {
    let line = concat!("plegtrace ", env!("CARGO_PKG_VERSION"), "\n");
    let short = plegtrace(&["-V"]);
    assert_eq!((short.code(), short.stdout.as_str()), (0, line));
    let long = plegtrace(&["--version"]);
    let rest = long.stdout.strip_prefix(line).unwrap_or_else(|| panic!("{long:?}"));
    let fields: Vec<(&str, &str)> = rest.lines().map(|line| line.split_at(13)).collect();
    let [("commit       ", commit), ("eBPF object  ", object), ("ABI version  ", abi)] = fields[..] else {
        panic!("{long:?}")
    };
    let commit = commit.strip_suffix('+').unwrap_or(commit);
    assert!(commit == "unknown" || commit.len() >= 40, "{commit}");
    assert_eq!(object.starts_with("sha256:"), is_whole(), "{object}");
    assert_eq!(abi, ABI_VERSION.to_string());
}

/// What cannot be understood is exit code 2, said on stderr with the words that were typed.
#[test]
fn usage_errors() {
    let wrong: [(&[&str], &str); 8] = [
        (&["--no-such-flag"], "--no-such-flag"),
        (&["no-such-command"], "no-such-command"),
        (&["-d", "soon"], "soon"),
        (&["-d", "0"], "--duration"),
        (&["--duration=-5"], "--duration"),
        (&["-d", "1e99"], "--duration"),
        (&["-o", "xml"], "xml"),
        (&["-q", "-v"], "--quiet"),
    ];
    for (words, named) in wrong {
        let said = plegtrace(words);
        assert_eq!((said.code(), said.stdout.as_str()), (2, ""), "{words:?}: {said:?}");
        assert!(said.stderr.contains(named), "{words:?}: {said:?}");
    }
}

/// A command that could not be run at the first stall is a mistake of the command line; what follows it is not ours to read.
#[test]
fn a_command_on_verdict() {
    let wrong = plegtrace(&["watch", "--on-verdict", "/no/such/command", "--no-such-flag", "-q"]);
    assert_eq!((wrong.code(), wrong.stdout.as_str()), (2, ""), "{wrong:?}");
    assert!(wrong.stderr.starts_with("plegtrace: --on-verdict: no executable /no/such/command"), "{wrong:?}");
    let right = unprivileged(&["watch", "--on-verdict", "sh", "-c", "exit 7", "--no-such-flag"]);
    assert_refused(&right, 3);
    let help = plegtrace(&["watch", "--help"]).stdout;
    assert!(help.contains("--on-verdict <CMD>...") && help.contains("--on-verdict sh -c '"), "{help}");
}

/// Without privileges: one sentence, the way to get them, exit code 3. Nobody is told about ring buffers.
#[test]
fn ordinary_user() {
    let said = unprivileged(&["-d", "1"]);
    let hint = assert_refused(&said, 3);
    let expected = match (is_whole(), in_container()) {
        (false, _) => "cargo xtask build",
        (true, true) => "hostPID: true",
        (true, false) => "run: sudo plegtrace",
    };
    assert!(hint.contains(expected), "{said:?}");
    assert!(!said.stderr.contains("ring buffer"), "{said:?}");
}

/// doctor works without privileges: it says what is missing, and leaves open what it could not ask.
#[test]
fn doctor_for_ordinary_users() {
    let said = unprivileged(&["doctor", "-o", "json"]);
    assert_eq!(said.code(), 3, "{said:?}");
    let doc = said.json();
    assert_eq!(doc["verdict"], "cannot_run");
    let privileges = check(&doc, "privileges");
    assert_eq!(privileges["state"], "fail");
    assert!(privileges["detail"].as_str().is_some_and(|text| text.contains("CAP_SYS_ADMIN")));
    assert_eq!(check(&doc, "ring_buffer")["state"], "unknown");
    let text = unprivileged(&["doctor"]);
    assert_eq!(text.code(), 3);
    assert!(text.stdout.contains("CANNOT RUN HERE") && text.stdout.contains("privileges"), "{text:?}");
}

/// The document of doctor: a version, checks with unique ids and known states, and an exit code that agrees.
#[test]
fn doctor_for_programs() {
    let said = plegtrace(&["doctor", "-o", "json"]);
    let doc = said.json();
    assert_eq!(doc["schema_version"], 1);
    let checks = doc["checks"].as_array().expect("checks are a list");
    let ids: HashSet<_> = checks.iter().map(|check| check["id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), checks.len());
    assert!(ids.contains("kernel") && ids.contains("btf") && ids.contains("attach"), "{ids:?}");
    for check in checks {
        assert!(["ok", "warn", "fail", "unknown"].contains(&check["state"].as_str().expect("a state")));
    }
    let failed = checks.iter().any(|check| check["state"] == "fail");
    assert_eq!(doc["verdict"] == "cannot_run", failed);
    assert_eq!(said.code(), if failed { 3 } else { 0 }, "{said:?}");
}

/// A binary without its eBPF programs says how to build one that has them; one with them does not.
#[test]
fn stub_says_how_to_build() {
    if is_whole() {
        return assert!(!plegtrace(&["doctor"]).stdout.contains("xtask build"));
    }
    let said = plegtrace(&["-d", "1"]);
    assert!(assert_refused(&said, 3).contains("cargo xtask build"));
    assert!(said.stderr.contains("without its eBPF programs"));
}

/// Whatever is wrong with the reader of stdout, it is no news: no message, no panic, no signal.
#[test]
fn broken_pipe_is_quiet() {
    for words in [&["doctor"][..], &["doctor", "-o", "json"], &["--help"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut child = Command::new(binary())
            .args(words)
            .arg("-q")
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let err = child.stderr.take().map(collect).expect("piped");
        let status = end_of(&mut child);
        assert_eq!(err.join().expect("reads"), "", "{words:?}");
        assert!(matches!(status.code(), Some(0 | 3)), "{words:?}: {status}");
    }
}

/// Colours are for terminals, unless they are asked for.
#[test]
fn colours() {
    assert!(!plegtrace(&["doctor"]).stdout.contains('\x1b'));
    assert!(plegtrace(&["doctor", "--color", "always"]).stdout.contains('\x1b'));
    assert!(!plegtrace(&["doctor", "--color", "never"]).stdout.contains('\x1b'));
    assert!(!plegtrace(&["--help"]).stdout.contains('\x1b'));
}

/// A process that looks like a component and is none. Ends with the test.
struct Impostor(Child);

impl Impostor {
    fn named(dir: &Path, name: &str) -> Self {
        let program = dir.join(name);
        program::copy(Path::new("/bin/sleep"), &program).expect("a copy");
        let child = Command::new(&program).arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self(child.expect("it starts"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Can the binary under test observe here? If not, the test is declared as not done.
fn can_observe(test: &str) -> bool {
    let doc = plegtrace(&["doctor", "-o", "json", "-q"]).json();
    let blocked = &doc["blocked"]["sentence"];
    if !blocked.is_null() {
        plegtrace_lab::host::declare_skip(test, &anyhow::anyhow!("{blocked}"));
    }
    blocked.is_null()
}

/// Programs that are not Go are refused with that reason; the report is whole, and says that it cannot tell.
#[test]
fn not_a_go_binary() {
    if !can_observe("not_a_go_binary") {
        return;
    }
    let dir = open_dir();
    let (kubelet, runtime) =
        (Impostor::named(dir.path(), "kubelet"), Impostor::named(dir.path(), "containerd"));
    let pids = ["--kubelet-pid", &kubelet.pid(), "--runtime-pid", &runtime.pid()].map(str::to_owned);
    let words = |more: &[&'static str]| {
        let pids = pids.iter().map(String::as_str);
        run(Command::new(binary()).args(pids).args(["-d", "1", "-q"]).args(more))
    };
    let said = words(&["-o", "json"]);
    assert_eq!((said.code(), said.stderr.as_str()), (5, ""), "{said:?}");
    let doc = said.json();
    assert_eq!(
        (&doc["schema_version"], &doc["diagnosis"]["verdict"]),
        (&Value::from(2), &Value::from("cannot_tell"))
    );
    let refused = doc["refused"].as_array().expect("refusals are a list");
    for component in ["kubelet", "containerd"] {
        let why = |r: &Value| r["component"] == component && r["why"] == "not a Go binary";
        assert!(refused.iter().any(why), "{component}: {refused:#?}");
    }
    let said = words(&[]);
    assert_eq!(said.code(), 5);
    assert!(
        said.stdout.contains("\nCANNOT TELL  ")
            && said.stdout.contains("plegtrace doctor")
            && !said.stdout.contains('\x1b'),
        "{said:?}"
    );
}

/// A process that does not exist is a wrong command line.
#[test]
fn no_such_process() {
    if !can_observe("no_such_process") {
        return;
    }
    // Linux has no process ids beyond 2^22.
    let said = plegtrace(&["--kubelet-pid", "4194305", "-q"]);
    assert_eq!((said.code(), said.stdout.as_str()), (2, ""), "{said:?}");
    assert!(said.stderr.contains("kubelet") && said.stderr.contains("4194305"), "{said:?}");
}
