//! O3: memory is so short that programs are read from disk again and again.

use crate::{
    correlate::{Age, ProcessSeen, thresholds::SECOND_NS},
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Severity, Source, excluded::percent,
    },
    input::{Component, ParkedThreads},
    words,
};

/// All that wanted to run waited for memory, for more than this share of the last ten seconds, hundredths of a percent.
const FULL: u32 = 1000;
/// So much of it, it can be the cause of a stall.
const STALLS: u32 = 5000;
/// What the kernel's figure is about.
const WINDOW_NS: u64 = 10 * SECOND_NS;
/// Functions of the kernel that get pages back from disk, or free some first.
const PAGES: [&str; 7] = [
    "filemap_fault",
    "do_swap_page",
    "folio_wait_bit_common",
    "try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "shrink_node",
    "psi_memstall_enter",
];

pub(super) static RULE: Rule = Rule {
    id: "O3",
    title: "the node thrashes: memory is so short that programs are read from disk again and again",
    area: Area::Overload,
    min_age_ns: WINDOW_NS,
    proof: Proof::Story,
    page: Page {
        mechanism: "When memory is nearly used up, the kernel drops the pages of programs first, because they can be read \
            again. kubelet and runtime then wait for the disk at each step, without any call that hangs, and long before \
            anything is killed for want of memory.",
        versions: "all; most without swap and with low eviction thresholds",
        symptoms: &["everything is slow, and nothing is killed", "reads of the system disk at its limit"],
        evidence: &[
            "memory pressure (full) of 10 % or more over ten seconds",
            "something is slow or held up, and nothing else explains it",
            "a thread of kubelet, runtime or shim in a page fault, or freeing memory",
        ],
        excluded_by: &["any single culprit: one call, lock or process that stays"],
        next: &[
            "`ps aux --sort=-rss | head`: who has the memory? end or limit it",
            "reserve memory for the system (kube-reserved, system-reserved), and raise the eviction thresholds",
        ],
        trap: "The disk looks like the culprit: it is busy with reading programs.",
        sources: &["k8s#14452", "k8s#64975", "kernel Documentation/accounting/psi.rst"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let pressure = scene.snapshot.census.round.as_ref().and_then(|round| round.pressure);
    let full = pressure.map_or(0, |pressure| pressure.memory_full_avg10);
    let suffers = scene.slow().next().is_some() || scene.reasons().next().is_some();
    if full < FULL || !suffers {
        return Vec::new();
    }
    let share = percent(full);
    let text = format!("memory pressure (full): {share} % of the last 10 s");
    let finding =
        Finding::new(&RULE, format!("memory is short: every task waited for it {share} % of the time"))
            .seen(Evidence::new(Source::Census, text));
    let finding = match waits_for_pages(scene) {
        Some((component, park)) => {
            let text = format!("{}: {}", component.name(), words::park_line(park, false));
            finding.seen(Evidence::new(Source::Census, text))
        }
        None => finding.doubted("no thread of the kubelet, runtime or shims was seen waiting for memory"),
    };
    let culprit = Culprit {
        component: Component::Kubelet,
        pid: None,
        container: None,
        words: "not known: look for the process that uses the memory".to_owned(),
    };
    let severity = match scene.reasons().next() {
        None => Severity::Slow,
        Some(_) if full >= STALLS => Severity::Stall,
        Some(_) => Severity::Notice,
    };
    let since = Some(Age { ns: WINDOW_NS, at_least: true });
    let finding = Finding { culprit: Some(culprit), since, reach: 2, severity, ..finding };
    vec![finding.advise(RULE.page.next.iter().copied())]
}

/// A thread of the node's daemons that waits for a page.
fn waits_for_pages<'a>(scene: &Scene<'a>) -> Option<(Component, &'a ParkedThreads)> {
    let waits = |park: &&ParkedThreads| park.kernel_stack.iter().any(|name| PAGES.contains(&name.as_str()));
    let of = |seen: &'a ProcessSeen| Some((seen.fact.component, seen.fact.parked.iter().find(waits)?));
    let own = |component: Component| {
        matches!(component, Component::Kubelet | Component::Shim) || component.role().is_runtime()
    };
    let all = scene.snapshot.census.processes.iter();
    all.filter(|seen| own(seen.fact.component)).find_map(of)
}
