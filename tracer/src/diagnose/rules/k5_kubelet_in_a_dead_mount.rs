//! K5: the kubelet hangs in a call to a file system that does not answer.

use super::r12_create_stats_a_dead_mount as r12;
use crate::{
    correlate::{Age, BlockedThread, FileCall, ProcessSeen, thresholds::FILE_CALL_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        kubelet_work::{Work, goroutine, relists_go_on},
    },
    input::{Component, ParkedThreads},
    words::{self, cut},
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
            "the thread waits for a local disk (X2), a frozen file system (X4), or an agent that must permit the access (X11)",
            "the goroutine only gathers statistics: that is a notice",
        ],
        next: &[
            "FUSE: restart its program, or abort the connection (/sys/fs/fuse/connections/N/abort)",
            "network: restore the server, or unmount by force (`umount -f -l PATH`)",
            "mount such volumes soft, so that calls fail instead of waiting",
        ],
        trap: "Do not restart the kubelet: it hangs at the same path again, or does not even end.",
        sources: &["k8s#101622", "k8s#100178", "k8s#122318", "k8s#122491"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let all = scene.snapshot.census.processes.iter();
    all.filter(|seen| seen.fact.component == Component::Kubelet)
        .filter_map(|seen| finding(seen, scene))
        .collect()
}

fn finding(seen: &ProcessSeen, scene: &Scene<'_>) -> Option<Finding> {
    let (thread, park) = oldest(seen)?;
    let age = Age { ns: seen.fact.at_ns.saturating_sub(thread.since.0), at_least: true };
    if age.ns < RULE.min_age_ns {
        return None;
    }
    let (work, call) = Work::worst(seen, scene);
    let ((who, victims), place) = (work.words(), place(park));
    let kind = park.waits_for_server()?;
    let name = park.syscall.as_ref().and_then(|call| call.name.as_deref()).unwrap_or("a system call");
    let headline = format!("the file system ({kind}) of {place} does not answer: {who} hangs in {name}");
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
    let finding = match work.doubt() {
        Some(doubt) => finding.doubted(doubt),
        None => finding,
    };
    Some(if work.holds_up() { finding } else { finding.into_notice() })
}

/// The thread that has waited longest.
fn oldest(seen: &ProcessSeen) -> Option<(BlockedThread, &ParkedThreads)> {
    seen.waits_for_server().min_by_key(|(thread, _)| thread.since)
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
    all.extend(call.map(goroutine));
    all.extend(relists_go_on(scene));
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
