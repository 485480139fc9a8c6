//! U11: the kernel has no memory left for compiled seccomp filters.

use crate::{
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, SeccompFact},
    words::human,
};

pub(super) static RULE: Rule = Rule {
    id: "U11",
    title: "the kernel has no memory left for compiled seccomp filters: starts fail at once",
    area: Area::Runc,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "seccomp filters and eBPF programs are compiled to machine code, for which net.core.bpf_jit_limit sets aside so \
            much memory. Once it is used up, the kernel refuses the filter of whoever has neither CAP_BPF nor CAP_SYS_ADMIN \
            with errno 524. runc create fails within a second for each container whose process may get no new privileges \
            (allowPrivilegeEscalation: false), because runc gives up its capabilities before it loads that filter. What \
            runs goes on, and the kubelet tries again and again.",
        versions: "kernels that always compile (CONFIG_BPF_JIT_ALWAYS_ON), and some that need not (seen on 6.1 of Debian 12); others \
            interpret such a filter. A leak in Linux 5.10 as of 2023",
        symptoms: &[
            "error loading seccomp filter into kernel: error loading seccomp filter: errno 524",
            "unable to init seccomp",
        ],
        evidence: &[
            "a seccomp filter that plegtrace has tried to load without privileges was refused with errno 524",
            "with privileges it was taken: so it is the limit that refuses it",
        ],
        excluded_by: &["such a filter is taken"],
        next: &[
            "raise the limit: `sysctl -w net.core.bpf_jit_limit=1000000000`, and the same in /etc/sysctl.d",
            "find out who loads so many: bpftool prog; `grep -l '^Seccomp:.2' /proc/[0-9]*/status | wc -l`",
            "if the number of processes with a filter does not explain it, the kernel leaks: install a newer one",
        ],
        trap: "Do not take the container's profile away (Unconfined): it runs then, which hides the cause and lifts its \
            protection.",
        sources: &["eks-ami#1179", "eks-ami#1219", "moby#45498"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let round = scene.snapshot.census.round.as_ref();
    round.and_then(|round| round.seccomp.as_ref()).map(|fact| finding(fact, scene)).into_iter().collect()
}

fn finding(fact: &SeccompFact, scene: &Scene<'_>) -> Finding {
    let limit = fact.limit.map(|limit| format!(" of {}", human::size(limit))).unwrap_or_default();
    let why = if fact.spares_root {
        format!("net.core.bpf_jit_limit{limit} is used up")
    } else {
        "it has no memory for machine code".to_owned()
    };
    let headline = format!(
        "the kernel refuses seccomp filters with errno 524, because {why}: containers that load one do not start"
    );
    let mut finding = Finding::new(&RULE, headline).seen(Evidence::new(
        Source::Census,
        "a filter that plegtrace tried to load without privileges was refused with errno 524",
    ));
    finding = if fact.spares_root {
        finding.seen(Evidence::new(
            Source::Census,
            "with privileges, which the limit does not bind, it was taken",
        ))
    } else {
        finding.doubted("with privileges it was refused as well, so it may not be the limit")
    };
    finding = match scene.ended("create").filter(|row| row.failed > 0) {
        None => finding.doubted("no container failed to be created while plegtrace observed"),
        Some(row) => {
            let text = format!("{} has failed {}", row.kind, human::plural(row.failed, "time"));
            finding.seen(Evidence::new(Source::Processes, text))
        }
    };
    let words = format!("compiled BPF programs and seccomp filters, of which there are too many: {why}");
    finding.culprit = Some(Culprit { component: Component::Runc, pid: None, container: None, words });
    // What fails does not hang.
    finding.into_notice().advise(RULE.page.next.iter().copied())
}
