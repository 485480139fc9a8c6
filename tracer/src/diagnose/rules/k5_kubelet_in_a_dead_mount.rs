//! K5: the kubelet hangs in a call to a file system that does not answer.

use super::r12_create_stats_a_dead_mount as r12;
use crate::{
    correlate::{Age, BlockedThread, FileCall, ProcessSeen, thresholds::FILE_CALL_NS},
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, ParkedThreads},
    words::{self, cut, go_stack},
};

pub(super) static RULE: Rule = Rule {
    id: "K5",
    title: "the kubelet hangs in a call to a file system that does not answer",
    area: Area::Kubelet,
    min_age_ns: FILE_CALL_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "The kubelet looks at the volumes of pods (os.Stat, statfs), also at those of pods that are gone, before it \
            removes their directories. When the server of such a file system does not answer, the call does not return. In \
            the sync loop it holds up every pod of the node: none is started, changed or removed, while relists go on and \
            the node stays Ready; in the work for one pod or one volume it holds up only that.",
        versions: "all; seen from Kubernetes 1.20 to 1.30",
        symptoms: &[
            "new pods stay Pending or ContainerCreating on a node that is Ready, and deleted ones Terminating",
            "orphaned pod … found, but volume paths are still present on disk",
            "/healthz of the kubelet: syncloop failed (after minutes)",
        ],
        evidence: &[
            "a thread of the kubelet in one and the same system call for 5 s or more, with fuse, nfs, cifs, ceph or 9p in its \
                kernel stack",
            "a goroutine of the kubelet that two looks find in os.Stat or another call to a file system, and whose work it does",
        ],
        excluded_by: &[
            "the thread waits for a local disk (X2, X4)",
            "the goroutine only gathers statistics: that is a notice",
        ],
        next: &[
            "FUSE: restart its program, or abort the connection (/sys/fs/fuse/connections/N/abort)",
            "network: restore the server, or unmount by force (umount -f -l PATH)",
            "mount such volumes soft, so that calls fail instead of waiting",
        ],
        trap: "Restarting the kubelet does not help: it hangs at the same path again, or does not even end.",
        sources: &["k8s#101622", "k8s#100178", "k8s#122318", "k8s#122491"],
    },
    examine,
};

/// What of the kubelet hangs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    SyncLoop,
    Volumes,
    Start,
    Pod,
    Volume,
    /// The goroutines could not be read.
    Unread,
    Statistics,
    Unknown,
}

/// Functions by which it is recognised.
const FUNCTIONS: [(Work, &[&str]); 6] = [
    (Work::SyncLoop, &["kubelet.(*Kubelet).syncLoop"]),
    (Work::Volumes, &["reconciler.(*reconciler).", "populator.(*desiredStateOfWorldPopulator)."]),
    (Work::Start, &["cmd/kubelet/app.run", "(*Kubelet).initialize"]),
    (Work::Pod, &["kubelet.(*podWorkers)."]),
    (Work::Volume, &["operationexecutor.(*operationGenerator)."]),
    (Work::Statistics, &["/kubelet/server/stats.", "/kubelet/stats.", "/kubelet/eviction.", "/cadvisor/"]),
];

impl Work {
    fn of(frames: &[String]) -> Self {
        let is = |parts: &[&str]| frames.iter().any(|frame| parts.iter().any(|part| frame.contains(part)));
        FUNCTIONS.iter().find(|(_, parts)| is(parts)).map_or(Self::Unknown, |(work, _)| *work)
    }

    /// Who hangs, and who is held up by it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::SyncLoop => (
                "the sync loop of the kubelet",
                "every change to the pods of this node: none is started, changed or removed",
            ),
            Self::Volumes => {
                ("the volume manager of the kubelet", "every pod that needs a volume mounted or unmounted")
            }
            Self::Start => {
                ("the start of the kubelet", "all pods of this node: the kubelet does not run yet")
            }
            Self::Pod => {
                ("the work of the kubelet for one pod", "the pod of that volume, or one that uses it")
            }
            Self::Volume => ("the kubelet's mount or unmount of a volume", "the pod of that volume"),
            Self::Statistics => ("the kubelet's statistics", "metrics, and evictions that depend on them"),
            Self::Unread => ("a thread of the kubelet", "whatever that thread does, perhaps for all pods"),
            Self::Unknown => ("a thread of the kubelet", "what that thread does is not known"),
        }
    }

    fn reach(self) -> u8 {
        match self {
            Self::SyncLoop | Self::Volumes | Self::Start => 2,
            Self::Pod | Self::Volume | Self::Unread => 1,
            Self::Statistics | Self::Unknown => 0,
        }
    }
}

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let all = scene.snapshot.census.processes.iter();
    all.filter(|seen| seen.fact.component == Component::Kubelet)
        .filter_map(|seen| finding(seen, scene))
        .collect()
}

fn finding(seen: &ProcessSeen, scene: &Scene<'_>) -> Option<Finding> {
    let (thread, park) = oldest(seen)?;
    let call = worst(seen, scene);
    let age = Age { ns: seen.fact.at_ns.saturating_sub(thread.since.0), at_least: true };
    if age.ns < RULE.min_age_ns {
        return None;
    }
    let mut read = scene.snapshot.census.goroutines.iter();
    let unseen = if read.any(|fact| fact.pid == seen.fact.pid) { Work::Unknown } else { Work::Unread };
    let work = call.map_or(unseen, |call| Work::of(&call.frames));
    let ((who, victims), place) = (work.words(), place(park));
    let kind = park.waits_for_server()?;
    let name = park.syscall.as_ref().and_then(|call| call.name.as_deref()).unwrap_or("a system call");
    let headline = format!("{who} hangs in {name} of {place}: the file system ({kind}) does not answer");
    let finding = Finding {
        since: Some(age),
        culprit: Some(culprit(seen.fact.pid, thread.tid)),
        victims: vec![victims.to_owned()],
        reach: work.reach(),
        evidence: evidence(seen, call, scene),
        ..Finding::new(&RULE, headline)
    };
    let finding = match kind {
        "FUSE" => r12::served(finding, &place, None, seen.fact.pid, scene).advise([RULE.page.next[0]]),
        _ => finding.advise([RULE.page.next[1]]),
    };
    let finding = finding.advise(["the kubelet then goes on by itself: leave it alone"]);
    Some(match work {
        Work::Statistics => finding.into_notice(),
        Work::Unread => {
            finding.doubted("the goroutines of the kubelet could not be read: whether pods wait is not known")
        }
        Work::Unknown => finding.doubted("which work of the kubelet waits there was not seen").into_notice(),
        _ => finding,
    })
}

/// The thread that has waited longest.
fn oldest(seen: &ProcessSeen) -> Option<(BlockedThread, &ParkedThreads)> {
    seen.waits_for_server().min_by_key(|(thread, _)| thread.since)
}

/// Of the goroutines that two looks in a row found in the same call to a file system, the one that holds up most.
fn worst<'a>(seen: &ProcessSeen, scene: &Scene<'a>) -> Option<&'a FileCall> {
    let stays = |call: &&FileCall| call.pid == seen.fact.pid && call.stays;
    let calls = scene.snapshot.census.file_calls.iter().filter(stays);
    calls.min_by_key(|call| (Work::of(&call.frames), call.goid))
}

fn culprit(kubelet: u32, thread: u32) -> Culprit {
    Culprit {
        component: Component::Kubelet,
        pid: Some(kubelet),
        container: None,
        words: format!("the file system; thread {thread} of kubelet {kubelet} waits for it in the kernel"),
    }
}

fn evidence(seen: &ProcessSeen, call: Option<&FileCall>, scene: &Scene<'_>) -> Vec<Evidence> {
    let is_blocked = |park: &&ParkedThreads| park.waits_for_server().is_some();
    let parks = seen.fact.parked.iter().filter(is_blocked).take(2);
    let mut all: Vec<Evidence> =
        parks.map(|park| Evidence::new(Source::Census, words::park_line(park, false))).collect();
    all.extend(call.map(|call| {
        let kubelet = call.frames.iter().position(|frame| frame.contains("kubelet.")).unwrap_or(0);
        let stack = go_stack(&call.frames[kubelet..], false);
        Evidence::new(Source::Goroutines, format!("goroutine {} of the kubelet: {stack}", call.goid))
    }));
    if scene.relists_end() {
        all.push(Evidence::new(Source::Uprobes, "relists go on: neither the runtime nor PLEG is held up"));
    }
    all
}

/// `volume data (kubernetes.io~nfs) of pod UID`, or the path.
fn place(park: &ParkedThreads) -> String {
    let Some(path) = park.syscall.as_ref().and_then(|call| call.path.as_deref()) else {
        return "a path that was not seen".to_owned();
    };
    volume(path).unwrap_or_else(|| cut(path, 80))
}

/// `…/pods/UID/volumes/PLUGIN/NAME`.
fn volume(path: &str) -> Option<String> {
    let (_, rest) = path.rsplit_once("/pods/")?;
    let mut parts = rest.split('/');
    let (uid, plugin) = (parts.next()?, parts.nth(1).filter(|_| rest.contains("/volumes/"))?);
    let name = parts.next()?;
    Some(format!("volume {} ({}) of pod {}", cut(name, 40), cut(plugin, 40), cut(uid, 40)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the path of a volume names one.
    #[test]
    fn volumes_of_pods() {
        let path = "/var/lib/kubelet/pods/8e1f/volumes/kubernetes.io~nfs/data/sub";
        assert_eq!(volume(path).unwrap(), "volume data (kubernetes.io~nfs) of pod 8e1f");
        for path in ["/mnt/data", "/var/lib/kubelet/pods/8e1f/etc-hosts", "/pods/8e1f/volumes/x"] {
            assert_eq!(volume(path), None, "{path}");
        }
    }
}
