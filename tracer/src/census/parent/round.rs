//! [`Census`]: one round, from the parent's side: what is asked, in which order, and what is better not asked.

use std::{
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{
    conversation::converse,
    merge::Merged,
    request::{Limits, Request},
};
use crate::{
    census::{
        clock, instance,
        protocol::{Job, RUNTIME, Runtime},
        seccomp,
    },
    input::{Command, Component, Fact, GoroutineGroup, GoroutinesFact, ProcessFact, SocketFact, Unanswered},
    target::CommandLines,
};

/// A runc does its work in less.
const OLD_RUNC_NS: u64 = 1_000_000_000;
/// Processes of runc whose goroutines are read in one round.
const MAX_RUNCS: usize = 8;
/// The handlers of what the runtime is asked.
const LISTS: [&str; 2] =
    ["._RuntimeService_ListPodSandbox_Handler", "._RuntimeService_ListContainers_Handler"];

/// A round that runs in a thread of its own.
#[derive(Debug)]
pub struct Census {
    thread: JoinHandle<Vec<Fact>>,
}

impl Census {
    /// Starts a round.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn start(request: Request) -> std::io::Result<Self> {
        let thread = thread::Builder::new().name("census".to_owned()).spawn(move || round(&request))?;
        Ok(Self { thread })
    }

    /// Is it over? Then [`Self::finish`] does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Its facts, in order: processes, goroutines, and the round itself. Waits for them.
    #[must_use]
    pub fn finish(self) -> Vec<Fact> {
        self.thread.join().unwrap_or_default()
    }
}

/// The oldest processes of runc: what they wait for, unless it is a system call, only their goroutines tell. crun has none.
fn old_runcs<'a>(
    processes: impl Iterator<Item = &'a ProcessFact>,
    now_ns: u64,
) -> impl Iterator<Item = (u32, Component)> {
    let is_runc = |fact: &&ProcessFact| match &fact.command {
        Some(Command::Runc { sub, .. }) => {
            fact.component == Component::Runc && fact.comm == "runc" && sub != "init"
        }
        _ => false,
    };
    let old = |fact: &ProcessFact| {
        let started = fact.started_ns.filter(|start| now_ns.saturating_sub(*start) >= OLD_RUNC_NS)?;
        Some((started, fact.pid))
    };
    let mut found: Vec<(u64, u32)> = processes.filter(is_runc).filter_map(old).collect();
    found.sort_unstable();
    found.into_iter().take(MAX_RUNCS).map(|(_, pid)| (pid, Component::Runc))
}

/// One round: facts of processes, of goroutines, and of the round itself. Blocks for as long as the limits say.
#[must_use]
pub fn round(request: &Request) -> Vec<Fact> {
    let began_ns = clock::now_ns();
    let mut merged = Merged::default();
    let until = Instant::now() + request.limits.round;
    merged.cut = !converse(request, &Job::Processes, request.limits.target, until, &mut merged);
    let wanted = request.goroutines.iter().filter_map(|pid| {
        let fact = merged.processes.get(pid)?;
        Some((*pid, fact.component))
    });
    let mut wanted: Vec<(u32, Component)> = wanted.collect();
    if !wanted.is_empty() {
        wanted.extend(old_runcs(merged.processes.values(), began_ns));
    }
    if !wanted.is_empty() {
        let until = Instant::now() + request.limits.all_goroutines;
        converse(request, &Job::Goroutines(wanted), request.limits.goroutines, until, &mut merged);
    }
    if request.versions {
        let until = Instant::now() + request.limits.all_goroutines;
        let wanted = Job::Versions(programs(merged.processes.values()));
        converse(request, &wanted, request.limits.goroutines, until, &mut merged);
    }
    if let Some(runtime) = &request.ask {
        ask(request, runtime, &mut merged);
    }
    if let Some(inotify) = merged.scarce.as_mut().and_then(|scarce| scarce.inotify.as_mut()) {
        inotify.refused = instance::is_refused();
    }
    if request.tries_seccomp {
        merged.seccomp = seccomp::refused();
    }
    merged.facts(began_ns, clock::now_ns())
}

/// One process of each program whose version matters.
fn programs<'a>(processes: impl Iterator<Item = &'a ProcessFact>) -> Vec<(u32, Component)> {
    let mut wanted: Vec<(u32, Component)> = Vec::new();
    for fact in processes {
        let component = fact.component;
        let matters = component.role().is_runtime()
            || matches!(component, Component::Kubelet | Component::Shim | Component::Runc);
        if matters && wanted.iter().all(|(_, known)| *known != component) {
            wanted.push((fact.pid, component));
        }
    }
    wanted
}

/// Asks the runtime for its containers, unless it looks as if it would not answer: a request to it would only be one
/// more that waits.
fn ask(request: &Request, runtime: &Runtime, merged: &mut Merged) {
    let Some(fact) = merged.processes.get(&runtime.pid) else { return };
    let comm = fact.comm.clone();
    if let Some(why) = silent(fact, merged.goroutines_of(runtime.pid), runtime) {
        let (what, why) = (RUNTIME.to_owned(), format!("not asked: {why}"));
        return merged.refuse(Unanswered { pid: runtime.pid, comm, what, why });
    }
    let until = Instant::now() + request.limits.runtime;
    let once = Request { limits: Limits { restarts: 0, ..request.limits }, ..request.clone() };
    converse(&once, &Job::Runtime(runtime.clone()), request.limits.runtime, until, merged);
}

/// Why this runtime would not answer a list, as far as can be seen from outside.
fn silent(
    fact: &ProcessFact,
    goroutines: Option<&GoroutinesFact>,
    runtime: &Runtime,
) -> Option<&'static str> {
    let path = runtime.socket.to_string_lossy();
    let queue = |socket: &SocketFact| {
        socket.listening && socket.unread > 0 && socket.path.as_deref() == Some(path.as_ref())
    };
    let list = |group: &GoroutineGroup| {
        let serves = |frame: &String| LISTS.iter().any(|handler| frame.contains(handler));
        let locked = |frame: &String| frame.starts_with("sync.(*") || frame.starts_with("sync.runtime_Sem");
        group.frames.iter().any(serves) && group.frames.iter().any(locked)
    };
    if fact.state == 'Z' || fact.threads > 0 && fact.stopped == fact.threads {
        Some("it is stopped")
    } else if fact.freezer.is_some() {
        Some("it is frozen")
    } else if fact.sockets.iter().any(queue) {
        Some("connections wait on its socket")
    } else if goroutines.is_some_and(|goroutines| goroutines.groups.iter().any(list)) {
        Some("a list waits for a lock")
    } else {
        None
    }
}

/// Command lines of processes, without waiting for those that do not answer, and who that was.
#[must_use]
pub fn command_lines(request: &Request, pids: &[u32]) -> (CommandLines, Vec<Unanswered>) {
    let mut merged = Merged::default();
    if !pids.is_empty() {
        let until = Instant::now() + request.limits.round;
        let what = Job::Arguments(pids.to_vec());
        converse(request, &what, request.limits.target, until, &mut merged);
    }
    (merged.arguments, merged.unanswered)
}

/// The directories in which a process looks for programs; none when it does not tell in time.
#[must_use]
pub fn search_path(request: &Request, pid: u32) -> Vec<PathBuf> {
    let mut merged = Merged::default();
    let until = Instant::now() + request.limits.round;
    let once = Request { limits: Limits { restarts: 0, ..request.limits }, ..request.clone() };
    converse(&once, &Job::SearchPath(pid), request.limits.target, until, &mut merged);
    merged.search_path.map(|path| path.split(':').map(PathBuf::from).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Mutex, PoisonError},
        time::Duration,
    };

    use super::{
        super::pool::{Usage, end_idle, usage},
        *,
    };

    /// Children that have nothing to do are kept for all tests, and what they use is counted.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// A child that follows a script for each order, which is in `$order`.
    fn scripted(script: &str) -> (tempfile::TempDir, Request) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("child");
        let hello = r#"{"Hello":"plegtrace census 2"}"#;
        let text = format!("#!/bin/sh\nwhile read -r order; do\necho '{hello}'\n{script}\ndone\n");
        crate::tests::write_script(&program, &text);
        let target = Duration::from_millis(200);
        let limits = Limits { target, round: Duration::from_secs(5), restarts: 2, ..Limits::default() };
        (dir, Request { limits, ..Request::new(program) })
    }

    /// With so many seconds for each answer: for children that give one, however busy the machine is.
    fn patient(request: Request, seconds: u64) -> Request {
        let (target, round) = (Duration::from_secs(seconds), Duration::from_secs(60));
        Request { limits: Limits { target, round, ..request.limits }, ..request }
    }

    const ASK_7: &str = r#"echo '{"Asking":{"pid":7,"comm":"runc","step":"Arguments"}}'"#;

    fn containerd() -> ProcessFact {
        ProcessFact {
            at_ns: 1,
            pid: 7,
            parent: 1,
            started_ns: None,
            component: Component::Containerd,
            comm: "containerd".into(),
            command: None,
            state: 'S',
            threads: 3,
            stopped: 1,
            freezer: None,
            parked: Vec::new(),
            sockets: Vec::new(),
            pipes: Vec::new(),
            container: None,
            by_hand: None,
            detached: false,
            cpu_group: None,
            task_limit: None,
            disk: None,
        }
    }

    /// Whoever does not answer is named; the next child knows whom not to ask, and what is told already.
    #[test]
    fn late_ones_are_skipped() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let told = r#"echo '{"Arguments":{"pid":6,"arguments":["a"]}}'"#;
        let (_dir, request) = scripted(&format!(
            "case $order in\n *'\"finished\":[6],'*'\"late\":[[7,\"Arguments\"]]'*) \
             echo '{{\"Arguments\":{{\"pid\":8,\"arguments\":[\"b\"]}}}}'; echo '\"Done\"' ;;\n \
             *) {told}; {ASK_7}; exec /bin/sleep 600 ;;\nesac\n"
        ));
        let began = Instant::now();
        let (lines, unanswered) = command_lines(&request, &[6, 7, 8]);
        assert!(began.elapsed() < Duration::from_secs(60), "it waited for whoever does not answer");
        assert_eq!(lines.keys().collect::<Vec<_>>(), [&6, &8], "{unanswered:?}");
        let [late] = unanswered.as_slice() else { panic!("{unanswered:?}") };
        assert_eq!((late.pid, late.comm.as_str(), late.what.as_str()), (7, "runc", "command line"));
        assert!(late.why.starts_with("no answer within "), "{late:?}");
    }

    /// One child answers order after order. When it has ended, or does not speak any more, another one takes its place,
    /// and nobody is blamed for that.
    #[test]
    fn one_child_for_many_orders() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_dir, request) = scripted(
            r#"echo '{"Arguments":{"pid":1,"arguments":["'$$'"]}}'; echo '"Done"'
            case $order in *'{"Arguments":[9]}'*) exit ;; esac"#,
        );
        let request = patient(request, 2);
        let answer = |pid| {
            let (lines, unanswered) = command_lines(&request, &[pid]);
            assert_eq!(unanswered, []);
            lines[&1][0].parse::<u32>().unwrap()
        };
        let first = answer(7);
        assert_eq!((answer(8), answer(9)), (first, first));
        wait_until_gone(first);
        let second = answer(7);
        assert_ne!(second, first);
        // SAFETY: plain numbers; the child of this test.
        assert_eq!(unsafe { libc::kill(second.cast_signed(), libc::SIGSTOP) }, 0);
        assert_ne!(answer(7), second);
        wait_until_gone(second);
    }

    /// It is a zombie at most.
    fn wait_until_gone(pid: u32) {
        let until = Instant::now() + Duration::from_secs(20);
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while Instant::now() < until {
            if stat().rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z')) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("{pid} is still there: {}", stat());
    }

    /// What lives counts as well, and the child ends when it is not needed any more.
    #[test]
    fn the_living_are_counted() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_dir, request) = scripted(r#"n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; echo '"Done"'"#);
        let request = patient(request, 20);
        end_idle();
        assert_eq!(usage(), Usage::default());
        let _ = command_lines(&request, &[7]);
        let used = usage();
        assert!(used.cpu_ns > 1_000_000 && used.peak_bytes > 100_000, "{used:?}");
        let _ = command_lines(&request, &[7]);
        assert!(usage().cpu_ns > used.cpu_ns);
        end_idle();
        assert_eq!(usage(), Usage::default());
    }

    /// A crowd of processes of other namespaces that hang whoever asks: a quarter of the patience is theirs, and the node's
    /// own are told of.
    #[test]
    fn others_have_a_share() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let late = |pid: u32| {
            format!(r#"{{"Asking":{{"pid":{pid},"comm":"x","step":"Arguments","elsewhere":true}}}}"#)
        };
        let own = r#"{"Arguments":{"pid":6,"arguments":["a"]}}"#;
        let (_dir, mut request) = scripted(&format!(
            "case $order in\n *'\"others_ms\":0,'*) echo '{own}'; echo '\"Done\"' ;;\n \
             *'[[7,'*) echo '{}'; exec /bin/sleep 60 ;;\n *) echo '{}'; exec /bin/sleep 60 ;;\nesac\n",
            late(8),
            late(7)
        ));
        (request.limits.restarts, request.limits.round) = (8, Duration::from_secs(120));
        // A shell is started for each that is late: on an overloaded machine that alone takes some hundred milliseconds.
        request.limits.target = Duration::from_secs(1);
        let (lines, unanswered) = command_lines(&request, &[6, 7, 8, 9]);
        assert_eq!(lines.keys().collect::<Vec<_>>(), [&6], "{unanswered:?}");
        assert_eq!(unanswered.iter().map(|one| one.pid).collect::<Vec<_>>(), [7, 8]);
        // One is enough when the time is short.
        (request.limits.target, request.limits.round) = (Duration::from_millis(1100), Duration::from_secs(4));
        let (lines, unanswered) = command_lines(&request, &[6, 7, 8, 9]);
        assert_eq!((lines.len(), unanswered.len()), (1, 1), "{unanswered:?}");
    }

    /// A child that dies at a question is no better than a late one; only so many are started.
    #[test]
    fn restarts_are_bounded() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_dir, request) = scripted(&format!("{ASK_7}\nkill -ABRT $$\n"));
        let (_, unanswered) = command_lines(&request, &[7]);
        let why: Vec<&str> = unanswered.iter().map(|one| one.why.as_str()).collect();
        assert_eq!(why, ["the reader was killed by signal 6", "gave up after 3 late answers"]);
    }

    /// A runtime that looks as if it would not answer is not asked.
    #[test]
    fn who_is_not_asked() {
        let runtime = Runtime { pid: 7, socket: PathBuf::from("/run/c.sock") };
        let fine = containerd();
        let group = |frames: &[&str]| GoroutineGroup {
            count: 1,
            goids: vec![1],
            fingerprints: Vec::new(),
            state: "waiting".into(),
            wait_reason: None,
            parked_by_ns: None,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            broken: None,
            subjects: Vec::new(),
        };
        let goroutines = |frames: &[&str]| GoroutinesFact {
            at_ns: 1,
            took_ns: 1,
            pid: 7,
            component: Component::Containerd,
            go_version: String::new(),
            total: 1,
            unread: 0,
            groups: vec![group(frames)],
            groups_left_out: 0,
            last_list_ns: None,
        };
        let lock = "sync.runtime_SemacquireMutex";
        let waits = |handler: &str| goroutines(&[lock, handler]);
        let list = "k8s.io/cri-api/v1._RuntimeService_ListContainers_Handler";
        assert_eq!(silent(&fine, None, &runtime), None);
        assert_eq!(
            silent(&fine, Some(&goroutines(&["internal/poll.runtime_pollWait", list])), &runtime),
            None
        );
        assert_eq!(
            silent(&fine, Some(&waits("v1._RuntimeService_ListContainerStats_Handler")), &runtime),
            None
        );
        assert_eq!(silent(&fine, Some(&waits(list)), &runtime), Some("a list waits for a lock"));
        let stopped = ProcessFact { stopped: 3, ..fine.clone() };
        assert_eq!(silent(&stopped, None, &runtime), Some("it is stopped"));
        let queue = |path: &str| {
            let path = Some(path.to_owned());
            let socket = SocketFact { path, listening: true, unread: 2, ..SocketFact::default() };
            ProcessFact { sockets: vec![socket], ..fine.clone() }
        };
        assert_eq!(silent(&queue("/run/c.sock"), None, &runtime), Some("connections wait on its socket"));
        assert_eq!(silent(&queue("/run/debug.sock"), None, &runtime), None);
    }

    /// Processes of runc that are old, the oldest first; no `runc init`, no young one, and no more than that.
    #[test]
    fn runcs_that_wait() {
        let fact = |pid: u32, sub: &str, started_s: u64| {
            let command = Command::Runc { sub: sub.to_owned(), container: None, bundle: None };
            let started_ns = Some(started_s * 1_000_000_000);
            ProcessFact {
                pid,
                component: Component::Runc,
                comm: "runc".to_owned(),
                command: Some(command),
                started_ns,
                ..containerd()
            }
        };
        let now_ns = 100_000_000_000;
        let seen = |facts: &[ProcessFact]| -> Vec<u32> {
            old_runcs(facts.iter(), now_ns).map(|(pid, _)| pid).collect()
        };
        let all = [fact(1, "create", 99), fact(2, "update", 50), fact(3, "init", 50), fact(4, "create", 100)];
        assert_eq!(seen(&all), [2, 1]);
        let crun = ProcessFact { comm: "crun".to_owned(), ..fact(5, "create", 10) };
        assert_eq!(seen(&[crun]), [0; 0]);
        let many: Vec<ProcessFact> = (0..20).map(|pid| fact(pid, "create", 90 - u64::from(pid))).collect();
        assert_eq!(seen(&many), (12..20).rev().collect::<Vec<_>>());
    }

    /// What makes no sense ends the conversation, and so does silence.
    #[test]
    fn nonsense() {
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_dir, request) = scripted("echo '{\"Gone\":'\n");
        let (_, unanswered) = command_lines(&request, &[7]);
        assert_eq!(unanswered[0].why, "it does not speak our language");
        let (_dir, mut request) = scripted("exec /bin/sleep 60\n");
        request.limits.round = Duration::from_millis(300);
        let (_, unanswered) = command_lines(&request, &[7]);
        assert_eq!(unanswered[0].why, "the census ran out of time");
    }
}
