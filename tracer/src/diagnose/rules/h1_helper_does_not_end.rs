//! H1: a program that the kubelet or the runtime runs does not end.

use crate::{
    correlate::helpers::HELPER_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, kernel_wait::access},
    input::{Command, Component, ParkedThreads},
    stuck::{Stuck, StuckKind, runner_of},
    words::cut,
};

pub(super) static RULE: Rule = Rule {
    id: "H1",
    title: "a helper of the kubelet or the runtime does not end",
    area: Area::Kernel,
    min_age_ns: HELPER_NS,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "The kubelet runs programs and waits for each: mount, drivers of FlexVolumes, credential providers. So does the \
            runtime: mount, dmsetup, apparmor_parser. None of them has a deadline that ends it in time. A mount whose server does not \
            answer, or a driver that waits for its agent, holds up the volumes of its pod; a credential provider holds up the pull.",
        versions: "all; drivers of CSI run in pods and are no children of the kubelet",
        symptoms: &[
            "ContainerCreating",
            "Unable to attach or mount volumes: … timed out waiting for the condition",
            "while lists come and the node stays Ready",
        ],
        evidence: &[
            "a process older than 30 s, run by the kubelet or the runtime, that is no runc, shim, hook or network plugin",
            "it is none of the programs that work through a disk or an image (mkfs, fsck, du, unpigz …), or each look for 30 s found it in \
             the same call, in which the kernel waits",
        ],
        excluded_by: &[
            "it has left the session of who started it: a daemon",
            "it waits until an agent permits an access to a file (X11), or for a FUSE server (X6)",
        ],
        next: &[
            "look at what it is blocked on: the server of the volume, or the agent of the driver",
            "kill it: who waits for it reports the error and tries again",
        ],
        trap: "Do not restart the kubelet: that leaves the helper running, and starts a second one next to it. In state \
            D it cannot be killed before the server or the disk answers.",
        sources: &["csi-driver-nfs#1271", "csi-driver-nfs#649"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Process { command: Command::Other { program }, comm, pid, .. } = &stuck.what else {
        return None;
    };
    let (runner, runner_pid) = runner_of(stuck)?;
    if stuck.since.ns < RULE.min_age_ns || stuck.parks.iter().any(ParkedThreads::waits_for_answerer) {
        return None;
    }
    let name = name(program, comm, *pid);
    let at = stuck.parks.iter().find(|park| park.syscall.is_some());
    let blocked = at.map(|park| format!(", in {}", access(park))).unwrap_or_default();
    let headline = format!("{name} has not ended{blocked}; {} {runner_pid} waits for it", runner.name());
    let finding = Finding::of_stuck(&RULE, headline, Component::Helper, stuck, scene);
    let finding = if at.is_some() {
        finding
    } else {
        finding.doubted("what it is blocked on was not seen: it may be at work")
    };
    Some(finding.advise([
        "check what it is blocked on: the server of the volume, or the agent of the driver".to_owned(),
        format!("`kill {pid}`: {} reports the error and tries again", runner.name()),
    ]))
}

/// `mount.nfs (pid 7)`; of a script, which has the file of its shell, the kernel's name too.
fn name(program: &str, comm: &str, pid: u32) -> String {
    let (file, own) = (cut(program, 40), cut(comm, 40));
    // The kernel cuts names at 15 bytes.
    if program.is_empty() || program.starts_with(comm) {
        format!("{} (pid {pid})", if program.is_empty() { own } else { file })
    } else {
        format!("{own} ({file}, pid {pid})")
    }
}
