//! R17: the kubelet waits for an image of which nothing comes any more.

use crate::{
    correlate::{
        Age, PullWait, PullWaitsFor, Quiet,
        thresholds::{PULL_NS, PULL_SILENT_NS},
    },
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source, unit::unit},
    input::{Component, GoroutinesFact},
    stuck::{Pull, silent_pulls},
    words::{
        self,
        human::{duration, plural},
    },
};

/// Connections that are named.
const NAMED: usize = 3;

pub(super) static RULE: Rule = Rule {
    id: "R17",
    title: "a pull of an image gets no byte any more",
    area: Area::Runtime,
    min_age_ns: PULL_SILENT_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "PullImage has no deadline in the kubelet. A registry, or the proxy before it, that accepts the connection and \
            then sends nothing holds the pull up; so does a runtime that has lost its own slots for downloads, or waits for \
            somebody to take its report of progress. With serializeImagePulls, which is the default, every other pod of the \
            node that needs an image waits behind it. Its age tells nothing: an image may take an hour. That no byte comes does.",
        versions: "every kubelet. containerd 1.7 and later give up after five minutes without a byte (image_pull_progress_timeout), unless \
            it is 0; older ones and CRI-O never. Lost slots: containerd 2.1.0 (PR 12126); the report of progress: 2.x with a \
            timeout of 0 (PR 14161)",
        symptoms: &[
            "ContainerCreating, PodInitializing",
            "Pulling image \"…\", and nothing after it",
            "cancel pulling image … because of no progress in 5m0s, in containerd's log",
            "while lists come and the node stays Ready",
        ],
        evidence: &[
            "PullImage of the kubelet is open",
            "nothing was sent or received for 60 s on any TCP connection that the runtime has opened, by the kernel's clock",
            "two looks at least 10 s apart found a goroutine of the pull at the same place: it waits for the registry, for a slot, or for \
                who takes its report",
        ],
        excluded_by: &[
            "a byte has come on any of these connections, or one has gone or is new",
            "a goroutine of a pull is at work: to unpack a layer, or to write it to the disk, needs no byte",
            "not all goroutines of the runtime were read, or its connections are in another network namespace: then this cannot be told",
            "whoever waits is not the kubelet: crictl pull",
        ],
        next: &[
            "look at the registry, and at the proxy on the way to it: `curl -v https://REGISTRY/v2/` from this node",
            "to let the other pods go on: restart the runtime, which ends the pull; the kubelet tries again",
        ],
        trap: "A restart brings back the same silence as long as the registry is silent. Killing the pod does not end its pull.",
        sources: &[
            "containerd#14158",
            "containerd#11864",
            "containerd PR 7822",
            "kubernetes#83471",
            "kubernetes#109673",
        ],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    silent_pulls(scene.snapshot).filter_map(|(pull, quiet)| finding(pull, quiet, scene)).collect()
}

fn finding(pull: Pull, quiet: &Quiet, scene: &Scene<'_>) -> Option<Finding> {
    let waits = quiet.waits.as_ref()?.iter();
    let stays = |wait: &&PullWait| quiet.fact.at_ns.saturating_sub(wait.since.0) >= PULL_NS;
    // One that waits for a slot may wait for another one that waits for the registry.
    let wait = waits.filter(stays).min_by_key(|wait| (wait.on != PullWaitsFor::Registry, wait.goid))?;
    let unread = quiet.fact.connections.iter().any(|one| one.unread > 0);
    let at_registry = wait.on == PullWaitsFor::Registry;
    if quiet.looked_ns() < PULL_NS || at_registry && (unread || quiet.fact.connections.is_empty()) {
        return None;
    }
    let silent_ns = quiet.silent_ns()?;
    let component = scene.snapshot.census.goroutines.iter().find(|read| read.pid == pull.pid)?.component;
    let (name, pid, silence) = (component.name(), pull.pid, duration(silent_ns));
    let peers = peers(quiet);
    let (headline, culprit) = match wait.on {
        PullWaitsFor::Registry => {
            let culprit = Culprit {
                component: Component::Helper,
                pid: None,
                container: None,
                words: format!("the registry behind {peers}, or the way to it"),
            };
            (
                format!(
                    "{name} has got no byte from {peers} for {silence}, and the kubelet waits for an image"
                ),
                culprit,
            )
        }
        PullWaitsFor::Slot | PullWaitsFor::Progress => {
            let on = own(wait.on);
            let words = format!("{name} {pid}: its own download waits for {on}");
            let culprit = Culprit { component, pid: Some(pid), container: None, words };
            (
                format!(
                    "{name} pulls no image any more: its download waits for {on}, and no byte has come for {silence}"
                ),
                culprit,
            )
        }
    };
    let finding = Finding {
        culprit: Some(culprit),
        since: Some(Age { ns: silent_ns, at_least: quiet.fact.connections.is_empty() }),
        victims: victims(scene),
        reach: 2,
        evidence: evidence(pull, quiet, wait, scene),
        ..Finding::new(&RULE, headline)
    };
    let restart =
        format!("`systemctl restart {}`: running containers are not touched", unit(component, scene));
    Some(if at_registry {
        finding.advise([RULE.page.next[0].to_owned(), format!("to let the other pods go on: {restart}")])
    } else {
        finding
            .advise([restart])
            .doubted("that a runtime waits for itself has never been tested on the real programs")
    })
}

fn own(on: PullWaitsFor) -> &'static str {
    match on {
        PullWaitsFor::Registry => "the registry",
        PullWaitsFor::Slot => "one of its own slots",
        PullWaitsFor::Progress => "whoever takes its report of progress",
    }
}

/// `192.0.2.7:443`; the addresses at which the runtime has connections, each once.
fn peers(quiet: &Quiet) -> String {
    let mut peers: Vec<_> = quiet.fact.connections.iter().map(|one| one.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let named: Vec<String> = peers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = peers.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// The pull itself, and who waits behind it.
fn victims(scene: &Scene<'_>) -> Vec<String> {
    let mut victims = vec!["the pod that needs the image".to_owned()];
    let kubelets =
        scene.snapshot.census.goroutines.iter().filter(|read| read.component == Component::Kubelet);
    victims.extend(kubelets.filter_map(behind));
    victims
}

/// How many of a kubelet that pulls one image at a time wait for their turn: all that need one, but for whom it pulls.
fn behind(kubelet: &GoroutinesFact) -> Option<String> {
    let with = |part: &str| {
        let groups = kubelet.groups.iter();
        groups
            .filter(|group| group.frames.iter().any(|frame| frame.ends_with(part)))
            .map(|group| group.count)
            .sum::<u32>()
    };
    let serial = with("serialImagePuller).processImagePullRequests") > 0;
    let waiting = with("imageManager).EnsureImageExists").saturating_sub(1);
    let words =
        || format!("{} behind it: the kubelet pulls one image at a time", plural(u64::from(waiting), "pull"));
    (serial && waiting > 0).then(words)
}

fn evidence(pull: Pull, quiet: &Quiet, wait: &PullWait, scene: &Scene<'_>) -> Vec<Evidence> {
    let at_least = if pull.age.at_least { "at least " } else { "" };
    let pulled = format!("PullImage is open in {} for {at_least}{}", pull.pid, duration(pull.age.ns));
    let stack = words::go_stack(&wait.frames, true);
    let waits = format!("goroutine {} of it waits for {}: {stack}", wait.goid, own(wait.on));
    let connections = quiet.fact.connections.iter().take(NAMED).map(|one| {
        let (quiet, sent) = (u64::from(one.quiet_ms) * 1_000_000, u64::from(one.sent_ms) * 1_000_000);
        let unread = if one.unread > 0 {
            format!(", {} unread", words::human::size(one.unread.into()))
        } else {
            String::new()
        };
        format!(
            "TCP connection to {}: {} received, the last of it {} ago; last sent to {} ago{unread}",
            one.peer,
            words::human::size(one.received),
            duration(quiet),
            duration(sent),
        )
    });
    let looked = format!("nothing has changed there for {} of looking", duration(quiet.looked_ns()));
    let census = connections.chain([looked]).map(|text| Evidence::new(Source::Census, text));
    let own = [Evidence::new(Source::Uprobes, pulled), Evidence::new(Source::Goroutines, waits)];
    let lists = scene.relists_end().then(|| Evidence::new(Source::Uprobes, "relists go on"));
    own.into_iter().chain(census).chain(lists).collect()
}
