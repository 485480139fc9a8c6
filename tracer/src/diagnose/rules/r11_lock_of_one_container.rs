//! R11: dockerd keeps the lock of one container, and whoever asks for that container waits.

use crate::{
    correlate::{
        Age, OpenMessage,
        thresholds::{CALL_OPEN_NS, RELIST_OPEN_NS},
    },
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, docker_lock::DockerLock},
    input::{Component, ContainerFact},
    stuck::{REACH_RELIST, Stuck, StuckKind},
    words::{self, human},
};

/// What is asked of one container, and takes its lock for no longer than it takes to copy a structure.
const INSPECT: &str = "GET /containers/{id}/json";
/// What is asked of all.
const LIST: &str = "GET /containers/json";

pub(super) static RULE: Rule = Rule {
    id: "R11",
    title: "dockerd holds the lock of one container while it waits, and every status of that container waits for it",
    area: Area::Runtime,
    min_age_ns: CALL_OPEN_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "dockerd holds the lock of a container while it starts, kills or stops it, and asks containerd meanwhile. \
            When the shim or runc of that container does not answer, the lock is held for as long. `docker ps` does not take \
            it; `docker inspect` does, and so does PodSandboxStatus and ContainerStatus of dockershim and cri-dockerd: \
            the relist waits until their timeout, and asks again.",
        versions: "Docker before 24 with dockershim or cri-dockerd",
        symptoms: &[
            "docker inspect of one container hangs, docker ps works",
            "operation timeout: context deadline exceeded",
            "PLEG is not healthy every two to four minutes",
        ],
        evidence: &[
            "requests to inspect one container that have no answer for more than 10 s, on the socket of dockerd",
            "requests to list all containers are answered",
            "a process of that container that does not move, or a request that starts, kills or stops it and has no answer either",
        ],
        excluded_by: &[
            "lists of containers have no answer either: dockerd as a whole does not answer",
            "dockerd is stopped or frozen (R14)",
        ],
        next: &[
            "kill what the container waits for: its runc, or its shim",
            "if nothing of it hangs, restart dockerd: with live-restore, containers keep running",
            "move away from dockershim: containerd's CRI does not take this lock",
        ],
        trap: "docker ps answers, so dockerd looks healthy. Removing the pod takes the same lock and hangs as well.",
        sources: &["moby#36010", "moby#40817", "moby#44300", "k8s#94829", "k8s#45419"],
    },
    examine,
};

/// A lock that is not let go, however it was seen.
struct Lock<'a> {
    /// The container; `None` when that is not known.
    id: Option<&'a str>,
    dockerd: u32,
    since: Age,
    victims: Vec<String>,
    evidence: Vec<Evidence>,
    /// It was seen who has it.
    is_held: bool,
    /// Lists of containers are answered: it was seen, or the relist has had its list and come to the status.
    lists: bool,
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let halted = scene.stuck().any(|stuck| match &stuck.what {
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => {
            *component == Component::Dockerd
        }
        _ => false,
    });
    if halted || unanswered(LIST, scene).next().is_some() {
        return Vec::new();
    }
    let mut locks = by_wire(scene);
    if locks.is_empty() {
        locks.extend(by_goroutines(scene));
    }
    locks.into_iter().map(|lock| finding(lock, scene)).collect()
}

/// Requests of this method that have had no answer for long, oldest first.
fn unanswered<'a>(method: &'static str, scene: &Scene<'a>) -> impl Iterator<Item = &'a OpenMessage> {
    let old = |open: &&OpenMessage| !open.fact.over && open.age_ns > RULE.min_age_ns;
    scene.snapshot.docker.open.iter().filter(old).filter(move |open| open.fact.method == method)
}

/// A lock for each container of which an inspect has no answer.
fn by_wire<'a>(scene: &Scene<'a>) -> Vec<Lock<'a>> {
    let mut inspects: Vec<Vec<&OpenMessage>> = Vec::new();
    for open in unanswered(INSPECT, scene).filter(|open| !open.fact.container.is_empty()) {
        match inspects.iter_mut().find(|same| same[0].fact.container == open.fact.container) {
            Some(same) => same.push(open),
            None => inspects.push(vec![open]),
        }
    }
    let rows = &scene.snapshot.docker.rows;
    let listed = rows.iter().find(|row| row.method == LIST).map_or(0, |row| row.latency.count());
    let lock = |inspects: Vec<&'a OpenMessage>| {
        let oldest = *inspects.first()?;
        let id = oldest.fact.container.as_str();
        let holder = holder(id, scene);
        let ns = holder.map_or(oldest.age_ns, |it| it.age_ns.max(oldest.age_ns));
        Some(Lock {
            id: Some(id),
            dockerd: oldest.fact.answerer,
            since: Age { ns, at_least: true },
            victims: victims(&inspects, scene),
            evidence: evidence(&inspects, holder, listed, scene),
            is_held: holder.is_some(),
            lists: listed > 0,
        })
    };
    inspects.into_iter().filter_map(lock).collect()
}

/// The lock for which the relist waits, when its request is older than plegtrace.
fn by_goroutines<'a>(scene: &Scene<'a>) -> Option<Lock<'a>> {
    let lock = DockerLock::of(scene)?;
    // The stack does not tell which container it is; what is stuck does, if it is only one.
    let mut stuck = scene.stuck().filter_map(|stuck| stuck.container.as_ref());
    let only = stuck.next().filter(|first| stuck.all(|other| other.id == first.id));
    let age = human::duration(lock.since.ns);
    Some(Lock {
        id: only.map(|container| container.id.as_str()),
        dockerd: lock.dockerd,
        since: lock.since,
        victims: vec![format!("the relist of kubelet {}, ≥ {age}", lock.relist.pid)],
        evidence: lock.evidence(),
        is_held: lock.is_held(),
        lists: true,
    })
}

fn finding(lock: Lock<'_>, scene: &Scene<'_>) -> Finding {
    let of_container =
        |stuck: &&Stuck| lock.id.is_some() && stuck.container.as_ref().map(|of| of.id.as_str()) == lock.id;
    let stuck = scene.stuck().find(of_container);
    let named = stuck.and_then(|stuck| stuck.container.clone()).or_else(|| named(lock.id?, scene));
    let container = match lock.id {
        Some(id) => format!("container {}{}", words::short_id(id), pod(named.as_ref())),
        None => "a container".to_owned(),
    };
    let headline = match stuck {
        Some(stuck) => format!("dockerd holds the lock of {container}: {}", words::what(stuck)),
        None => format!("dockerd holds the lock of {container}: no status of it can be read"),
    };
    let blame = |stuck: &Stuck| (component_of(&stuck.what), stuck.what.pid(), words::what(stuck));
    let (component, pid, culprit) = stuck.map_or_else(
        || (Component::Dockerd, lock.dockerd, format!("dockerd {}: its lock of {container}", lock.dockerd)),
        blame,
    );
    let of_stuck = stuck.map(|stuck| Evidence::new(Source::Census, words::what(stuck)));
    let has_pod = named.as_ref().is_some_and(|container| container.pod.is_some());
    let ask = lock.id.filter(|_| !has_pod).map(which_pod);
    let mut finding = Finding {
        culprit: Some(Culprit {
            component,
            pid: (pid != 0).then_some(pid),
            container: named,
            words: culprit,
        }),
        since: Some(lock.since),
        reach: if relist_waits(scene) { REACH_RELIST } else { 2 },
        victims: lock.victims,
        evidence: lock.evidence.into_iter().chain(of_stuck).collect(),
        ..Finding::new(&RULE, headline)
    };
    if lock.id.is_none() {
        finding = finding.doubted("which container it is was not seen");
    }
    if !lock.lists {
        finding = finding.doubted("no list of containers was seen to be answered meanwhile");
    }
    if stuck.is_none() && !lock.is_held {
        finding = finding.doubted("who holds the lock is not known");
    }
    finding.advise(ask).advise(advice(stuck, lock.dockerd))
}

/// How to learn whose container it is.
fn which_pod(id: &str) -> String {
    format!("docker ps --filter id={} names its pod; docker inspect would hang", words::short_id(id))
}

fn component_of(what: &StuckKind) -> Component {
    match what {
        StuckKind::Stopped { component, .. } | StuckKind::Frozen { component, .. } => *component,
        StuckKind::Request(request) => request.component,
        StuckKind::Jammed { .. } => Component::Containerd,
        StuckKind::SilentShim { .. } => Component::Shim,
        StuckKind::Bus(stall) => stall.component(),
        StuckKind::Loop(_) => Component::Kubelet,
        StuckKind::Process { .. }
        | StuckKind::Unreaped { .. }
        | StuckKind::OutputHeld { .. }
        | StuckKind::Unreported { .. } => Component::Runc,
    }
}

/// The oldest request that changes this container and has no answer.
fn holder<'a>(id: &str, scene: &Scene<'a>) -> Option<&'a OpenMessage> {
    let changes = |open: &&OpenMessage| {
        open.fact.container == id && !open.fact.over && !open.fact.method.starts_with("GET ")
    };
    scene.snapshot.docker.open.iter().find(changes)
}

/// ` of default/p3`, when that is known.
fn pod(container: Option<&ContainerFact>) -> String {
    let container = container.filter(|container| container.pod.is_some());
    container.map_or_else(String::new, |container| words::of_pod(Some(container)))
}

/// What the census knows of a container with this id.
fn named(id: &str, scene: &Scene<'_>) -> Option<ContainerFact> {
    let all = scene.snapshot.census.processes.iter().filter_map(|seen| seen.fact.container.as_ref());
    all.filter(|container| container.id == id).max_by_key(|container| container.pod.is_some()).cloned()
}

fn relist_waits(scene: &Scene<'_>) -> bool {
    let late = |ns: u64| ns > RELIST_OPEN_NS;
    scene.open_relist().is_some_and(|relist| late(relist.root().duration_ns(scene.snapshot.now)))
        || DockerLock::of(scene).is_some_and(|lock| late(lock.since.ns))
}

fn victims(inspects: &[&OpenMessage], scene: &Scene<'_>) -> Vec<String> {
    let late = |ns: u64| ns > RELIST_OPEN_NS;
    let open = scene.open_relist().filter(|relist| late(relist.root().duration_ns(scene.snapshot.now)));
    let relist = open.map(|relist| {
        let age = human::duration(relist.root().duration_ns(scene.snapshot.now));
        format!("the relist of kubelet {}, {age}", relist.root().id.tgid)
    });
    let asks = inspects
        .first()
        .map(|first| format!("{} {INSPECT}, sent by {}", inspects.len(), who(first.fact.asker, scene)));
    relist.into_iter().chain(asks).collect()
}

/// `kubelet 812`; its number alone when it is not traced.
fn who(pid: u32, scene: &Scene<'_>) -> String {
    let target = scene.snapshot.targets.iter().find(|target| target.fact.pid == pid);
    target.map_or_else(|| pid.to_string(), |target| format!("{} {pid}", target.fact.component.name()))
}

fn evidence(
    inspects: &[&OpenMessage],
    holder: Option<&OpenMessage>,
    listed: u64,
    scene: &Scene<'_>,
) -> Vec<Evidence> {
    let unanswered = |open: &OpenMessage| {
        format!(
            "{} of container {}, sent by {}: no answer for {}",
            open.fact.method,
            words::short_id(&open.fact.container),
            who(open.fact.asker, scene),
            human::duration(open.age_ns)
        )
    };
    let mut all: Vec<Evidence> =
        inspects.iter().take(2).map(|open| Evidence::new(Source::Wire, unanswered(open))).collect();
    all.extend(holder.map(|open| Evidence::new(Source::Wire, unanswered(open))));
    if listed > 0 {
        let times = human::plural(listed, "time");
        all.push(Evidence::new(Source::Wire, format!("dockerd still answers {LIST}: {times}")));
    }
    all
}

fn advice(stuck: Option<&Stuck>, dockerd: u32) -> Vec<String> {
    match stuck.map(|stuck| &stuck.what) {
        Some(StuckKind::Stopped { pid, .. }) => {
            vec![format!("`kill -CONT {pid}`"), "then find out who stopped it".to_owned()]
        }
        Some(StuckKind::Frozen { freezer, .. }) => {
            vec![super::u4_container_left_frozen::thaw(freezer), "then find out who froze it".to_owned()]
        }
        Some(what) => vec![format!("`kill -9 {}`: what dockerd waits for fails, and the lock is free", what.pid())],
        None => vec![
            format!("`kill -USR1 {dockerd}` writes the goroutines of dockerd to a file that its log names: who holds the lock?"),
            "restart dockerd; its containers stop with it, unless `docker info` says Live Restore Enabled: true".to_owned(),
        ],
    }
}
