//! R9: containerd does not come to the end of its start: a shim of the one before it does not answer.

use crate::{
    correlate::{ProcessSeen, thresholds::STILL_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        startup::{Awaited, Startup},
        unit::unit,
    },
    input::Component,
    stuck::REACH_RELIST,
    words::{self, human::duration, of_pod},
};

/// Frames from a request to a shim to the function that goes through the bundles, in containerd 1.4 to 2.1.
const ASKING: usize = 5;

pub(super) static RULE: Rule = Rule {
    id: "R9",
    title: "containerd does not finish its start, because an old shim accepts but does not answer",
    area: Area::Runtime,
    min_age_ns: STILL_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "As it starts, containerd asks every shim that an earlier one has left, one after the other, and serves \
            nothing before it is done. It gives each bundle 5 s (io.containerd.timeout.shim.load), and as much again to \
            clean up: a sandbox and its container are two bundles, so a few shims that hang delay it for a minute. From \
            containerd 1.7 on, a shim that has no task any more is asked to delete itself, without any deadline: one \
            that does not answer that holds up the start for ever, and the next one as well.",
        versions: "containerd 1.4 to 2.1: delayed; 2.2.2 and 2.3.1 were seen to hang for ever (a deadline for the deletion \
            is in containerd PR 13852)",
        symptoms: &[
            "containerd.service: activating (start), until systemd gives up and starts it again",
            "cleaning leaked shim process, the last line of its log",
            "connection refused, or no such file or directory, on the socket of the runtime",
            "container runtime is down, PLEG is not healthy",
        ],
        evidence: &[
            "containerd was started more than 10 s ago, or 3 s where a shim is stopped, and does not listen on its socket",
            "a goroutine in its load of shims, which waits for one",
            "a shim older than it with unread requests in its socket, or one that was asked and has not answered, or that waits for \
                a lock of its own (S7)",
        ],
        excluded_by: &[
            "it listens, serves a request, or a relist has got its list since it started",
            "its goroutines do not load shims: it waits for something else, as a database that is locked",
            "containerd is stopped or frozen itself (R14), or does not run (R15)",
        ],
        next: &[
            "resume the shim if it is stopped (`kill -CONT`), or thaw its cgroup: it answers, and containerd goes on",
            "else `kill -9` it: that ends its pod, and the kubelet starts it again",
            "restart containerd if it does not go on by itself",
        ],
        trap: "Do not restart containerd: it meets the same shim again. Deleting its state directory orphans every \
            container, those of healthy shims too.",
        sources: &[
            "containerd#13848",
            "containerd#5597",
            "gvisor#14427",
            "containerd PR 13852",
            "reproduced with containerd 1.4 to 2.1",
        ],
    },
    examine,
};

/// Does the runtime serve nothing because it is still starting?
pub(super) fn explains(scene: &Scene<'_>) -> bool {
    Startup::of(scene).is_some()
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    Startup::of(scene).map(|startup| finding(&startup, scene)).into_iter().collect()
}

fn finding(startup: &Startup<'_>, scene: &Scene<'_>) -> Finding {
    let pid = startup.containerd.fact.pid;
    let whom = match &startup.awaited {
        Awaited::Shim { shim, .. } => name(shim),
        Awaited::OneOfDeaf | Awaited::Unknown => "a shim".to_owned(),
    };
    let headline = format!("{whom} does not answer: containerd {pid} does not finish its start");
    let finding = Finding {
        culprit: Some(culprit(startup)),
        behind: Some(pid),
        since: Some(startup.age),
        victims: vec!["every relist, every exec probe, every container start and stop".to_owned()],
        reach: REACH_RELIST,
        evidence: evidence(startup, scene),
        ..Finding::new(&RULE, headline)
    };
    doubts(startup).into_iter().fold(finding, Finding::doubted).advise(advice(startup, scene))
}

/// `shim 4711 of default/p1`.
fn name(shim: &ProcessSeen) -> String {
    format!("shim {}{}", shim.fact.pid, of_pod(shim.fact.container.as_ref()))
}

fn culprit(startup: &Startup<'_>) -> Culprit {
    let (pid, container, words) = match &startup.awaited {
        Awaited::Shim { shim, .. } => (Some(shim.fact.pid), shim.fact.container.clone(), name(shim)),
        Awaited::OneOfDeaf => {
            let all: Vec<String> = startup.deaf.iter().map(|shim| name(shim)).collect();
            (None, None, format!("one of {}", all.join(", ")))
        }
        Awaited::Unknown => (None, None, "a shim that was not found".to_owned()),
    };
    Culprit { component: Component::Shim, pid, container, words }
}

fn evidence(startup: &Startup<'_>, scene: &Scene<'_>) -> Vec<Evidence> {
    let (pid, age) = (startup.containerd.fact.pid, duration(startup.age.ns));
    let socket = startup.socket.map_or_else(|| "any socket".to_owned(), |path| words::cut(path, words::LONG));
    let started = format!("containerd {pid} was started {age} ago, and does not listen on {socket}");
    let mut all = vec![Evidence::new(Source::Census, started)];
    if let Some(load) = startup.load {
        let stack = words::go_stack(asking(&load.frames), true);
        all.push(Evidence::new(
            Source::Goroutines,
            format!("{}: {}: {stack}", words::requests(load), words::waits_for(load)),
        ));
    }
    let shims = match &startup.awaited {
        Awaited::Shim { shim, request, .. } => {
            all.extend(request.map(|open| {
                let (method, age) = (words::cut(&open.fact.method, 40), duration(open.age_ns));
                Evidence::new(Source::Wire, format!("{method}, asked of {}: no answer for {age}", name(shim)))
            }));
            std::slice::from_ref(shim)
        }
        Awaited::OneOfDeaf => startup.deaf.as_slice(),
        Awaited::Unknown => &[],
    };
    all.extend(shims.iter().flat_map(|shim| of_shim(shim, startup, scene)));
    all
}

/// The frames in which a shim is asked about a bundle, from the request on.
fn asking(frames: &[String]) -> &[String] {
    let asks = frames.iter().rposition(|frame| frame.contains("ttrpc.(*Client).")).unwrap_or(0);
    &frames[asks..frames.len().min(asks + ASKING)]
}

/// How much older it is, and what of it does not move.
fn of_shim(shim: &ProcessSeen, startup: &Startup<'_>, scene: &Scene<'_>) -> Vec<Evidence> {
    let of = |text| Evidence::new(Source::Census, text);
    let before = startup.containerd.fact.started_ns.zip(shim.fact.started_ns);
    let before = before.map(|(its, shim)| duration(its.saturating_sub(shim))).unwrap_or_default();
    let mut all = vec![of(format!("{} was started {before} before containerd", name(shim)))];
    let stuck = scene.stuck().find(|stuck| stuck.what.pid() == shim.fact.pid);
    all.extend(stuck.map(|stuck| of(words::what(stuck))));
    let frames = stuck.map(|stuck| stuck.frames.as_slice()).filter(|frames| !frames.is_empty());
    all.extend(frames.map(|frames| {
        let text = format!("a goroutine of the shim: {}", words::go_stack(frames, true));
        Evidence::new(Source::Goroutines, text)
    }));
    let unread = shim.fact.sockets.iter().filter(|socket| socket.unread > 0);
    all.extend(unread.take(2).map(|socket| of(words::socket_line(socket))));
    all
}

fn doubts(startup: &Startup<'_>) -> Vec<&'static str> {
    let mut all = Vec::new();
    if startup.load.is_none() && !startup.is_unanswered() {
        all.push("what containerd waits for was not seen: its goroutines could not be read");
    }
    match &startup.awaited {
        Awaited::Shim { .. } if startup.is_locked_out => {}
        Awaited::Shim { shim, .. } if !startup.is_deaf(shim) && !startup.is_unanswered() => {
            all.push("containerd may have gone on to this shim only just now");
        }
        Awaited::Shim { .. } => {}
        Awaited::OneOfDeaf => all.push("cannot tell which of these shims containerd waits for"),
        Awaited::Unknown => all.push("cannot tell which shim containerd waits for"),
    }
    all
}

fn advice(startup: &Startup<'_>, scene: &Scene<'_>) -> Vec<String> {
    let pid = startup.containerd.fact.pid;
    let awaited = match &startup.awaited {
        Awaited::Shim { shim, .. } => Some(*shim),
        Awaited::OneOfDeaf | Awaited::Unknown => None,
    };
    let others = startup.deaf.iter().filter(|deaf| awaited.is_none_or(|shim| shim.fact.pid != deaf.fact.pid));
    let mut all: Vec<String> = awaited.iter().chain(others).map(|shim| release(shim)).collect();
    if all.is_empty() {
        all.push(format!(
            "`kill -USR1 {pid}` writes the goroutines of containerd to a file that its log names: in loadShim it waits for one"
        ));
    }
    all.push(format!(
        "if containerd does not go on by itself: `systemctl restart {}`",
        unit(Component::Containerd, scene)
    ));
    all
}

/// What lets a shim answer, or ends it.
fn release(shim: &ProcessSeen) -> String {
    let pid = shim.fact.pid;
    match &shim.fact.freezer {
        Some(freezer) => super::u4_container_left_frozen::thaw(freezer),
        None if shim.still_since.is_some() => {
            format!("`kill -CONT {pid}`: it answers, and containerd goes on")
        }
        None => format!("`kill -9 {pid}`: this ends its pod, and the kubelet starts it again"),
    }
}
