//! X11: a program that must permit each access to a file does not answer.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        kernel_wait::access,
        scene::{parked_in, parks_of},
    },
    input::{Component, ParkedThreads},
    stuck::{Stuck, StuckKind},
    words::{self, holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "X11",
    title: "a program that must permit each file access (fanotify) does not answer",
    area: Area::Kernel,
    min_age_ns: HOOK_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "Virus scanners and security agents ask the kernel (fanotify) to let them permit each open or execve. \
            Whoever opens such a file waits in the kernel until the agent answers, without a deadline. When the agent \
            hangs, is stopped or waits for one of its own victims, runc, hooks, network plugins and the runtime itself \
            hang in open or execve.",
        versions: "all agents that use permission events (virus scanners and the like)",
        symptoms: &[
            "hung task in fanotify_handle_event",
            "ContainerCreating",
            "commands hang at their start",
        ],
        evidence: &[
            "something of the node does not move, and waits in fanotify_handle_event",
            "a process that holds a fanotify descriptor whose group may refuse accesses",
        ],
        excluded_by: &["nothing that waits there is older than its threshold"],
        next: &[
            "stop or restart the agent: the kernel then permits what waits",
            "exclude the directories of the container runtime in its configuration",
        ],
        trap: "Killing what waits does not help: the next open waits as well.",
        sources: &["hotsos#594", "fanotify(7)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let park = parked_in(parks_of(stuck, scene)?, ParkedThreads::waits_for_permission)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let answerers = scene.answerers();
    let agents = answerers.map_or(&[][..], |found| &found.permission);
    let (what, pod) = (access(park), of_pod(stuck.container.as_ref()));
    let (who, advice) = match agents {
        [] => (
            "an agent that was not found".to_owned(),
            "find the agent: it holds a descriptor of fanotify".to_owned(),
        ),
        [agent] => (
            holders(agents),
            format!("stop or restart {} ({}): the kernel then permits what waits", agent.comm, agent.pid),
        ),
        _ => (
            format!("one of {}", holders(agents)),
            format!("restart one after the other of {}", holders(agents)),
        ),
    };
    let waits = match &stuck.what {
        StuckKind::Process { command, comm, pid, .. } => {
            format!("{} (pid {pid})", words::command_words(command, comm))
        }
        StuckKind::Request(request) => words::requests(request),
        _ => words::what(stuck),
    };
    let headline = format!("{waits}{pod} waits until {who} permits {what}");
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let culprit = Culprit {
        component: Component::Helper,
        pid: if let [agent] = agents { Some(agent.pid) } else { Some(stuck.what.pid()) },
        container: stuck.container.clone(),
        words: format!("{who}, which permits accesses to files (fanotify)"),
    };
    let finding = Finding { culprit: Some(culprit), behind: Some(stuck.what.pid()), ..finding };
    let finding = match agents {
        [_] if answerers.is_some_and(|found| !found.incomplete) => finding.seen(Evidence::new(
            Source::Census,
            format!("{who} holds a fanotify descriptor that may refuse accesses"),
        )),
        [_] => finding.doubted("not all processes could be looked at: there may be other agents"),
        [] => finding.doubted("who must permit it was not found"),
        _ => finding.doubted("several agents permit accesses: which one was asked is not known"),
    };
    Some(finding.advise([advice, "exclude the runtime's directories in its configuration".to_owned()]))
}
