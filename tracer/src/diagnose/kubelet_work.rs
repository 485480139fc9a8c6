//! [`Work`]: what of the kubelet stands still when one of its threads waits in the kernel, by the goroutine whose work it does.

use super::{Evidence, Scene, Source};
use crate::{
    correlate::{FileCall, ProcessSeen},
    words::go_stack,
};

/// What of the kubelet hangs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    SyncLoop,
    Volumes,
    Start,
    Pod,
    Volume,
    Manifests,
    /// The goroutines could not be read.
    Unread,
    Statistics,
    Unknown,
}

/// Functions by which it is recognised.
const FUNCTIONS: [(Work, &[&str]); 7] = [
    (Work::SyncLoop, &["kubelet.(*Kubelet).syncLoop"]),
    (Work::Volumes, &["reconciler.(*reconciler).", "populator.(*desiredStateOfWorldPopulator)."]),
    (Work::Start, &["cmd/kubelet/app.run", "(*Kubelet).initialize"]),
    (Work::Pod, &["kubelet.(*podWorkers)."]),
    (Work::Volume, &["operationexecutor.(*operationGenerator)."]),
    (Work::Manifests, &["kubelet/config.(*sourceFile)."]),
    (Work::Statistics, &["/kubelet/server/stats.", "/kubelet/stats.", "/kubelet/eviction.", "/cadvisor/"]),
];

impl Work {
    fn of(frames: &[String]) -> Self {
        let is = |parts: &[&str]| frames.iter().any(|frame| parts.iter().any(|part| frame.contains(part)));
        FUNCTIONS.iter().find(|(_, parts)| is(parts)).map_or(Self::Unknown, |(work, _)| *work)
    }

    /// The worst that two looks in a row found in the same call to a file system, and its goroutine.
    pub(super) fn worst<'a>(seen: &ProcessSeen, scene: &Scene<'a>) -> (Self, Option<&'a FileCall>) {
        let census = &scene.snapshot.census;
        let stays = |call: &&FileCall| call.pid == seen.fact.pid && call.stays;
        let calls = census.file_calls.iter().filter(stays);
        let call = calls.min_by_key(|call| (Self::of(&call.frames), call.goid));
        let read = census.goroutines.iter().any(|fact| fact.pid == seen.fact.pid);
        let unseen = if read { Self::Unknown } else { Self::Unread };
        (call.map_or(unseen, |call| Self::of(&call.frames)), call)
    }

    /// Who hangs, and who is held up by it.
    pub(super) fn words(self) -> (&'static str, &'static str) {
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
                ("the work of the kubelet for one pod", "that pod, or one that uses the same volume")
            }
            Self::Volume => ("the kubelet's mount or unmount of a volume", "the pod of that volume"),
            Self::Manifests => {
                ("the kubelet's reading of manifests", "every change to the static pods of this node")
            }
            Self::Statistics => ("the kubelet's statistics", "metrics, and evictions that depend on them"),
            Self::Unread => ("a thread of the kubelet", "whatever that thread does, perhaps for all pods"),
            Self::Unknown => ("a thread of the kubelet", "what that thread does is not known"),
        }
    }

    pub(super) fn reach(self) -> u8 {
        match self {
            Self::SyncLoop | Self::Volumes | Self::Start => 2,
            Self::Pod | Self::Volume | Self::Manifests | Self::Unread => 1,
            Self::Statistics | Self::Unknown => 0,
        }
    }

    /// Does a pod wait for it, as far as is known?
    pub(super) fn holds_up(self) -> bool {
        !matches!(self, Self::Statistics | Self::Unknown)
    }

    /// Why less is known of it than might be.
    pub(super) fn doubt(self) -> Option<&'static str> {
        match self {
            Self::Unread => {
                Some("the goroutines of the kubelet could not be read: whether pods wait is not known")
            }
            Self::Unknown => Some("which work of the kubelet waits there was not seen"),
            _ => None,
        }
    }
}

/// The goroutine, from its call to the file system out to the kubelet.
pub(super) fn goroutine(call: &FileCall) -> Evidence {
    let kubelet = call.frames.iter().position(|frame| frame.contains("kubelet.")).unwrap_or(0);
    let stack = go_stack(&call.frames[kubelet..], false);
    Evidence::new(Source::Goroutines, format!("goroutine {} of the kubelet: {stack}", call.goid))
}

/// Relists do not wait for it.
pub(super) fn relists_go_on(scene: &Scene<'_>) -> Option<Evidence> {
    let text = "relists go on: neither the runtime nor PLEG is held up";
    scene.relists_end().then(|| Evidence::new(Source::Uprobes, text))
}
