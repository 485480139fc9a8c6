//! R12: `CreateContainer` hangs in `stat` of a host path whose file system does not answer.

use crate::{
    correlate::{Request, thresholds::CALL_OPEN_NS},
    cri::Method,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        scene::{parked_in, parks_of},
    },
    input::{Component, ContainerFact, Holder, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::{self, cut, holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "R12",
    title: "CreateContainer hangs in stat of a host path on a file system that does not answer",
    area: Area::Runtime,
    min_age_ns: CALL_OPEN_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "The runtime looks at each host path that is mounted into a container (os.Stat). When the path is on a \
            network file system whose server is gone, or on FUSE whose program hangs, that call does not return, and \
            neither does CreateContainer. The name of the container stays reserved, so each new try fails at once.",
        versions: "all; the stat can be cancelled since August 2026",
        symptoms: &[
            "failed to reserve container name … is reserved for",
            "failed to stat",
            "ContainerCreating",
        ],
        evidence: &[
            "a CreateContainer older than 10 s whose goroutine is in os.Stat",
            "a thread of the runtime in that system call, with fuse, nfs, cifs, ceph or 9p in its kernel stack",
        ],
        excluded_by: &["the thread waits for a local disk (X2, X4)"],
        next: &[
            "FUSE: restart its program, or abort the connection (/sys/fs/fuse/connections/N/abort)",
            "network: restore the server, or unmount lazily (`umount -l`) and delete the pod",
        ],
        trap: "Do not restart the runtime: that leaves the mount as it is, and the next CreateContainer hangs again.",
        sources: &["containerd#10828", "containerd#13867", "containerd#1722"],
    },
    examine,
};

/// What asks for a path's attributes.
const STATS: [&str; 4] = ["newfstatat", "stat", "lstat", "statx"];

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Request(request) = &stuck.what else { return None };
    if !is_meant(stuck) {
        return None;
    }
    let park = parked_in(parks_of(stuck, scene)?, |park| stats(park) && park.waits_for_server().is_some())?;
    let kind = park.waits_for_server()?;
    let path = park.syscall.as_ref().and_then(|call| call.path.as_deref());
    let place = path.map_or_else(|| "a host path".to_owned(), |path| cut(path, 80));
    let pod = of_pod(stuck.container.as_ref());
    let headline =
        format!("the file system ({kind}) of {place} does not answer: CreateContainer{pod} hangs in stat");
    let finding = Finding::of_stuck(&RULE, headline, request.component, stuck, scene)
        .seen(Evidence::new(Source::Census, words::park_line(park, false)));
    let finding = if kind == "FUSE" {
        served(finding, &place, stuck.container.as_ref(), stuck.what.pid(), scene)
    } else {
        finding
    };
    let finding = if path.is_some() { finding } else { finding.doubted("the path was not seen") };
    Some(finding.advise(RULE.page.next.iter().copied()))
}

/// Is it a `CreateContainer` that looks at a host path?
pub(super) fn is_meant(stuck: &Stuck) -> bool {
    matches!(&stuck.what, StuckKind::Request(request)
        if request.method() == Some(Method::CreateContainer) && is_in_stat(request))
}

/// With the program that serves the file system, when there is only one that can be it.
pub(super) fn served(
    finding: Finding,
    place: &str,
    container: Option<&ContainerFact>,
    waits: u32,
    scene: &Scene<'_>,
) -> Finding {
    let answerers = scene.answerers();
    let servers: &[Holder] = answerers.map_or(&[], |found| &found.fuse);
    let all = answerers.is_some_and(|found| !found.incomplete);
    match servers {
        [server] if all => {
            let who = holders(servers);
            let culprit = Culprit {
                component: Component::Helper,
                pid: Some(server.pid),
                container: container.cloned(),
                words: format!("{who}, which serves FUSE"),
            };
            let seen =
                Evidence::new(Source::Census, format!("{who} is the only program that serves FUSE here"));
            let finding = Finding { culprit: Some(culprit), behind: Some(waits), ..finding };
            finding.seen(seen).advise([format!("restart {who}: it does not answer for {place}")])
        }
        [] => finding.doubted("the program that serves the file system was not found"),
        _ => finding.doubted(format!("which of {} serves the file system is not known", holders(servers))),
    }
}

/// Go's `os.Stat` and what it calls, before anything of the runtime.
fn is_in_stat(request: &Request) -> bool {
    request
        .frames
        .iter()
        .take(8)
        .any(|frame| matches!(frame.as_str(), "os.Stat" | "os.Lstat" | "os.statNolog"))
}

fn stats(park: &ParkedThreads) -> bool {
    let name = park.syscall.as_ref().and_then(|call| call.name.as_deref());
    name.is_some_and(|name| STATS.contains(&name))
}
