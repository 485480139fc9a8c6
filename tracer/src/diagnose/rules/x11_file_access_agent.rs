//! X11: a program that must permit each access to a file does not answer.

use crate::{
    correlate::thresholds::HOOK_NS,
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        kernel_victims::{self, Victim},
        kernel_wait::access,
        scene::{parked_in, parks_of},
    },
    input::{Component, ContainerFact, ParkedThreads},
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
            hangs, is stopped or waits for one of its own victims, runc, hooks, network plugins, the runtime, shims, the kubelet and \
            whatever it starts hang in open or execve.",
        versions: "all agents that use permission events (virus scanners and the like)",
        symptoms: &[
            "hung task in fanotify_handle_event",
            "ContainerCreating",
            "commands hang at their start",
        ],
        evidence: &[
            "something of the node does not move, and waits in fanotify_handle_event; or a thread of the kubelet or of a shim, or a program \
             that the kubelet has started, has been in one call there for 5 s",
            "a process that holds a fanotify descriptor whose group may refuse accesses",
        ],
        excluded_by: &["nothing that waits there is older than its threshold"],
        next: &[
            "stop or restart the agent: the kernel then permits what waits",
            "exclude the directories of the container runtime and of the kubelet in its configuration",
        ],
        trap: "Do not kill what waits: the next open waits as well.",
        sources: &["hotsos#594", "AgentBaker PR 9089", "fanotify(7)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let stuck = scene.stuck().filter_map(|stuck| of_stuck(stuck, scene));
    let victims = kernel_victims::find(scene, ParkedThreads::waits_for_permission);
    stuck.chain(victims.iter().map(|victim| of_victim(victim, scene))).collect()
}

fn of_stuck(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let park = parked_in(parks_of(stuck, scene)?, ParkedThreads::waits_for_permission)?;
    if stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let waits = match &stuck.what {
        StuckKind::Process { command, comm, pid, .. } => {
            format!("{} (pid {pid})", words::command_words(command, comm))
        }
        StuckKind::Request(request) => words::requests(request),
        _ => words::what(stuck),
    };
    let finding = Finding::of_stuck(&RULE, String::new(), Component::Helper, stuck, scene);
    Some(told(finding, &waits, park, (stuck.what.pid(), stuck.container.as_ref()), scene))
}

fn of_victim(victim: &Victim<'_>, scene: &Scene<'_>) -> Finding {
    let finding = victim.finding(&RULE, String::new(), String::new());
    told(finding, &victim.who, victim.park, (victim.pid, victim.container()), scene)
}

/// With the agent to blame.
fn told(
    finding: Finding,
    waits: &str,
    park: &ParkedThreads,
    (pid, container): (u32, Option<&ContainerFact>),
    scene: &Scene<'_>,
) -> Finding {
    let answerers = scene.answerers();
    let agents = answerers.map_or(&[][..], |found| &found.permission);
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
    let headline =
        format!("{who} does not permit {}: {waits}{} waits for it", access(park), of_pod(container));
    let culprit = Culprit {
        component: Component::Helper,
        pid: if let [agent] = agents { Some(agent.pid) } else { Some(pid) },
        container: container.cloned(),
        words: format!("{who}, which permits accesses to files (fanotify)"),
    };
    let finding = Finding { headline, culprit: Some(culprit), behind: Some(pid), ..finding };
    let finding = match agents {
        [_] if answerers.is_some_and(|found| !found.incomplete) => finding.seen(Evidence::new(
            Source::Census,
            format!("{who} holds a fanotify descriptor that may refuse accesses"),
        )),
        [_] => finding.doubted("not all processes could be looked at: there may be other agents"),
        [] => finding.doubted("who must permit it was not found"),
        _ => finding.doubted("several agents permit accesses: which one was asked is not known"),
    };
    finding.advise([advice, "exclude the directories of runtime and kubelet in its configuration".to_owned()])
}
