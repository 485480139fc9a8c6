//! U1: runc 1.0.0-rc93 writes its seccomp filter into a pipe that only it reads.

use crate::{
    correlate::thresholds::RUNC_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene},
    input::{Command, Component, FdTarget, ParkedThreads, PipeFact},
    stuck::{Stuck, StuckKind},
    words::of_pod,
};

pub(super) static RULE: Rule = Rule {
    id: "U1",
    title: "runc init waits for itself: it writes its seccomp filter into a pipe that only it reads",
    area: Area::Runc,
    min_age_ns: RUNC_NS,
    proof: Proof::Rebuilt,
    page: Page {
        mechanism: "runc 1.0.0-rc93 exports each seccomp filter into a pipe and reads it only after the export has \
            returned. A filter larger than the pipe never gets that far. Pipes hold 64 KiB, but new ones only a page \
            or two once the user is over pipe-user-pages-soft: that is why it hits some nodes and some pods, dense \
            nodes first.",
        versions: "runc 1.0.0-rc93 only; fixed in rc94. The packaged containerd.io 1.4.4 carried it",
        symptoms: &[
            "runc init processes pile up",
            "loading seccomp filter: invalid argument (once interrupted)",
        ],
        evidence: &[
            "runc init older than 5 s, blocked in write to a pipe whose read end it holds itself",
            "no other process holds that read end",
        ],
        excluded_by: &["another process reads the pipe: that process is slow (U7)"],
        next: &["kill the init: the container fails to start, and is tried again", "install any other runc"],
        trap: "Do not attach strace or gdb: the write then returns early, the hang is gone, and so is the evidence.",
        sources: &[
            "runc PR 2871",
            "runc#2865",
            "runc#2828",
            "containerd#5274",
            "runc commit 7b3e0bcf2 (rc94)",
        ],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    scene.stuck().filter_map(|stuck| finding(stuck, scene)).collect()
}

fn finding(stuck: &Stuck, scene: &Scene<'_>) -> Option<Finding> {
    let StuckKind::Process { command: Command::Runc { sub, .. }, pid, .. } = &stuck.what else { return None };
    let mut own = stuck.parks.iter().filter_map(|park| writes_to_itself(park, *pid)).peekable();
    if sub != "init" || own.peek().is_none() || stuck.since.ns < RULE.min_age_ns {
        return None;
    }
    let pod = of_pod(stuck.container.as_ref());
    let headline = format!("runc init {pid}{pod} waits for itself: it writes into a pipe that only it reads");
    let finding = Finding::of_stuck(&RULE, headline, Component::Runc, stuck, scene);
    let finding = if own.all(|pipe| pipe.incomplete) {
        finding.doubted("not all open files could be read: another process may read that pipe")
    } else {
        finding
    };
    Some(finding.advise([
        "install a runc other than 1.0.0-rc93 (runc --version)".to_owned(),
        format!("`kill -9 {pid}`: this container fails to start, and is tried again"),
    ]))
}

/// The pipe to which a write is blocked, when the only reader of it that was seen is the process itself.
fn writes_to_itself(park: &ParkedThreads, pid: u32) -> Option<&PipeFact> {
    let syscall = park.syscall.as_ref()?;
    let write = matches!(syscall.name.as_deref(), Some("write" | "writev"));
    let FdTarget::Pipe(pipe) = &syscall.fd.as_ref()?.target else { return None };
    let only = !pipe.readers.is_empty() && pipe.readers.iter().all(|reader| reader.pid == pid);
    (write && only).then_some(pipe)
}
