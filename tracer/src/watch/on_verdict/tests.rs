//! Real commands, with short limits. Their files say what they have done.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::*;

/// Nothing here takes so long, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);
const QUICK: Limits = Limits { run: LONG, pause: Duration::ZERO, grace: LONG };

fn words(script: &str, dir: &Path) -> Vec<OsString> {
    let name = dir.join("hook");
    let text = format!("#!/bin/sh\npwd > '{0}/pwd'\ncd '{0}' || exit 9\n{script}\n", dir.display());
    crate::tests::write_script(&name, &text);
    [name.into_os_string(), "two words".into(), "$HOME;`id`".into()].into()
}

fn hook(script: &str, dir: &Path, limits: Limits) -> OnVerdict {
    OnVerdict::with(CommandLine::find(&words(script, dir)).unwrap(), limits).unwrap()
}

fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < DEADLINE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn text(file: &PathBuf) -> Option<String> {
    fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'))
}

fn idle(hook: &OnVerdict, begun: u64) -> Runs {
    until("it ends", || Some(hook.runs()).filter(|runs| runs.begun == begun && !runs.running))
}

/// Is there still a process whose command line has this word?
fn lives(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|it| it == word.as_bytes()))
}

/// It gets the document and its arguments as they are, from no shell, and neither our environment nor our capabilities.
#[test]
fn what_it_gets() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cat > stdin; printf '%s|' \"$#\" \"$1\" \"$2\" > arguments; env > env
        grep -e CapPrm -e CapEff -e CapInh /proc/self/status > capabilities";
    let hook = hook(script, dir.path(), QUICK);
    // More than a pipe takes.
    let document = [&[b'x'; 100_000][..], b"\n"].concat();
    hook.tell(document.clone());
    assert_eq!(idle(&hook, 1), Runs { begun: 1, ..Runs::default() });
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(read("stdin").as_bytes() == document);
    assert_eq!((read("arguments").as_str(), read("pwd").as_str()), ("2|two words|$HOME;`id`|", "/\n"));
    let env = read("env");
    assert!(env.lines().any(|line| line == format!("PATH={}", command::PATH)), "{env}");
    // A shell sets PWD, OLDPWD, SHLVL and _ by itself.
    let own = ["PATH=", "PWD=", "OLDPWD=", "SHLVL=", "_="];
    assert!(env.lines().all(|line| own.iter().any(|name| line.starts_with(name))), "{env}");
    let capabilities = read("capabilities");
    assert_eq!(capabilities.lines().count(), 3);
    assert!(capabilities.lines().all(|line| line.ends_with("\t0000000000000000")), "{capabilities}");
}

/// One at a time; of what comes meanwhile only the last is left, and the rest is counted.
#[test]
fn only_the_latest_waits() {
    let dir = tempfile::tempdir().unwrap();
    let hook = hook("cat >> seen; while [ ! -e go ]; do sleep 0.01; done", dir.path(), QUICK);
    let seen = dir.path().join("seen");
    hook.tell(b"1\n".to_vec());
    until("the first runs", || text(&seen));
    (2..=100).for_each(|n| hook.tell(format!("{n}\n").into_bytes()));
    assert_eq!(hook.runs(), Runs { begun: 1, running: true, replaced: 98, ..Runs::default() });
    fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(idle(&hook, 2), Runs { begun: 2, replaced: 98, ..Runs::default() });
    assert_eq!(text(&seen).unwrap(), "1\n100\n");
}

/// One that does not end is killed with everything that it has started; so is what a command leaves behind that has ended.
#[test]
fn nothing_is_left_running() {
    let dir = tempfile::tempdir().unwrap();
    let mark = |n: u32| format!("3{}{n}", std::process::id());
    let script =
        |n: u32, end: &str| format!("sleep {} & sleep {} & echo > begun; {end}", mark(n), mark(n + 1));
    let limits = Limits { run: Duration::from_millis(300), ..QUICK };
    let late = hook(&script(0, "wait"), dir.path(), limits);
    late.tell(Vec::new());
    let runs = idle(&late, 1);
    assert_eq!(runs.failed, 1);
    let error = runs.last_error.unwrap();
    assert!(error.starts_with("killed after "), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let quick = hook(&script(2, "exit 0"), dir.path(), QUICK);
    quick.tell(Vec::new());
    assert_eq!(idle(&quick, 1).failed, 0);
    assert!(dir.path().join("begun").exists());
    for n in 0..4 {
        until("it is killed", || (!lives(&mark(n))).then_some(()));
    }
}

/// A failure is counted, with the beginning of what it said; however much it says holds up nothing, and is harmless.
#[test]
fn failures_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let script = "printf 'no \\033[2Jroute\\n' >&2
        i=0; while [ $i -lt 300 ]; do printf '%01024d' 0 >&2; i=$((i + 1)); done; exit 3";
    let hook = hook(script, dir.path(), QUICK);
    hook.tell(Vec::new());
    let runs = idle(&hook, 1);
    assert_eq!((runs.begun, runs.failed), (1, 1));
    let error = runs.last_error.unwrap();
    assert!(
        error.starts_with("exit status: 3: no \\x1b[2Jroute\\x0a0000") && error.ends_with("0…"),
        "{error}"
    );
    assert!(error.chars().count() < 2 * ERROR, "{error}");
    // It is gone by the next time.
    fs::remove_file(dir.path().join("hook")).unwrap();
    hook.tell(Vec::new());
    let runs = idle(&hook, 2);
    assert!(runs.failed == 2 && runs.last_error.unwrap().starts_with("cannot be started: "));
}

/// The next one waits for its time; the end does not, but runs the command for the last event first.
#[test]
fn pauses_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let hook = hook("cat >> seen", dir.path(), Limits { pause: LONG, ..QUICK });
    hook.tell(b"begin\n".to_vec());
    idle(&hook, 1);
    hook.tell(b"end\n".to_vec());
    // Long enough for one that does not wait.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(hook.shared.lock().next.as_deref(), Some(&b"end\n"[..]), "it is not its time");
    drop(hook);
    assert_eq!(text(&dir.path().join("seen")).unwrap(), "begin\nend\n");
}

/// A command that runs holds up the end for no longer than a moment, and ends too.
#[test]
fn the_end_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("37{}", std::process::id());
    let hook =
        hook(&format!("sleep {mark}"), dir.path(), Limits { grace: Duration::from_millis(300), ..QUICK });
    hook.tell(Vec::new());
    until("it runs", || lives(&mark).then_some(()));
    hook.tell(Vec::new());
    drop(hook);
    until("it is killed", || (!lives(&mark)).then_some(()));
}

/// A path is taken as it is, a name is looked for; what cannot run is an error at once.
#[test]
fn the_program_is_found_at_once() {
    let find = |word: &str| CommandLine::find(&[word.into(), "-c".into()]);
    let shell = find("sh").unwrap();
    assert!(shell.program.is_absolute() && shell.program.ends_with("sh"));
    assert_eq!(shell.arguments, ["-c"]);
    assert_eq!(find("/bin/sh").unwrap().program, Path::new("/bin/sh"));
    for wrong in ["", "/", "/etc/passwd", "/no/such", "./no-such", "no-such-program-anywhere"] {
        let error = find(wrong).unwrap_err();
        assert!(error.to_string().starts_with("--on-verdict: no executable"), "{wrong}: {error}");
    }
    assert!(CommandLine::find(&[]).is_err());
}
