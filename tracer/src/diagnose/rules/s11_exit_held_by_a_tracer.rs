//! S11: a debugger keeps the exit of a process from its shim.

use crate::{
    correlate::thresholds::UNREPORTED_NS,
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, exits::Lost},
    input::{Component, Holder},
    words::{holders, of_pod},
};

pub(super) static RULE: Rule = Rule {
    id: "S11",
    title: "a tracer (ptrace) holds back the exit of a container's process from its shim",
    area: Area::Shim,
    min_age_ns: UNREPORTED_NS,
    proof: Proof::Real,
    page: Page {
        mechanism: "When a traced process ends, the kernel tells its tracer first, and its parent only when the tracer has \
            asked for the exit or has detached. A debugger, strace or security agent that is suspended or hangs does \
            neither: the process stays a zombie, the shim does not hear of the end, and the runtime believes that the \
            container runs. StopContainer waits forever, and the pod stays Terminating.",
        versions: "all",
        symptoms: &[
            "cannot exec in a stopped container",
            "StopContainer: DeadlineExceeded, again every 2 min",
            "a defunct process below a shim",
        ],
        evidence: &[
            "the first process of the container (or of a command in it) is a zombie, and TracerPid in its status is not 0",
            "the runtime still reports the container as running, or its ExecSync waits on",
            "both for 10 s, found by every look",
            "its shim runs",
        ],
        excluded_by: &["the shim is stopped or frozen (S10)", "nobody traces the process"],
        next: &[
            "let the tracer go on (fg, `kill -CONT`), or end it: the kernel then tells the shim at once",
            "find out why it did not: a shell job that was suspended, an agent that hangs",
        ],
        trap: "Do not kill the shim: that ends the other containers of its pod as well. The zombie cannot be killed: it \
            has exited.",
        sources: &["ptrace(2)", "kernel/exit.c (wait_consider_task), kernel/ptrace.c (__ptrace_detach)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let held = Lost::all(scene).filter_map(|lost| Some((lost, lost.tracer.filter(|_| lost.zombie)?)));
    held.map(|(lost, tracer)| finding(&lost, tracer, scene)).collect()
}

fn finding(lost: &Lost<'_>, tracer: &Holder, scene: &Scene<'_>) -> Finding {
    let who = holders(std::slice::from_ref(tracer));
    let (pid, pod) = (lost.pid, of_pod(lost.stuck.container.as_ref()));
    let what = if lost.is_command { "a command in a container" } else { "a container" };
    let belief = lost.belief(scene);
    let headline = format!(
        "{who} traces process {pid} of {what}{pod}, which has ended, and holds its exit back: {belief}"
    );
    let words = format!("{who}, the tracer of process {pid}, which has ended");
    let finding = lost.finding(&RULE, headline, (Component::Helper, tracer.pid, words), scene);
    let finding = finding.advise([
        format!(
            "`kill -CONT {0}`, or `kill {0}` if it does not go on: the shim then learns of the exit at once",
            tracer.pid
        ),
        "find out why the tracer hangs: a shell job that was suspended, an agent that waits for something"
            .to_owned(),
    ]);
    if lost.stuck.waiters.is_empty() {
        return finding
            .into_notice()
            .doubted("a person may be debugging: nobody was seen waiting for the exit");
    }
    finding
}
