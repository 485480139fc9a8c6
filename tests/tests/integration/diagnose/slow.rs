//! A node on which everything ends, but late, is slow; one that is merely busy, or was asked for something long, is not.

use plegtrace::correlate::Doing;
use plegtrace::decode::MonoNs;
use plegtrace::diagnose::{Confidence, Diagnosis, Severity, SlowKind, Verdict, diagnose};
use plegtrace::input::{
    CensusFact, Command, Component, CpuFact, DaemonCpu, Fact, GoroutineGroup, Layer, ParkedThreads, Pressure,
    ProcessFact, QuotaFact, RunnerFact,
};
use plegtrace_common::rec::{CALL_OK, PROCESS_EXECED};
use plegtrace_common::role::Role;
use plegtrace_tests::found::{group, process};
use plegtrace_tests::life::Life as _;
use plegtrace_tests::story::{CONTAINERD, KUBELET, MS, PLEG, S, Story, at};

use super::{CHILD, SHIM, cni, culprit, ids, park, syscall};

/// A relist of two lists that takes so long, nearly all of it in containerd.
fn relist(story: &mut Story, from: u64, length: u64) {
    story.begin(Layer::Relist, "Relist", PLEG, 100, from).begin(
        Layer::ListPhase,
        "GetPods",
        PLEG,
        300,
        from + 10_000,
    );
    let half = from + length / 2;
    story.rpc("ListPodSandbox", PLEG, from + 20_000, half).rpc(
        "ListContainers",
        PLEG,
        half,
        from + length - 20_000,
    );
    story.end(Layer::ListPhase, "GetPods", PLEG, from + length - 10_000, CALL_OK);
    story.end(Layer::Relist, "Relist", PLEG, from + length, 0);
}

/// Relists of these lengths, one a second.
fn relists(lengths: &[u64]) -> Story {
    let mut story = Story::node();
    for (second, length) in (0..).zip(lengths) {
        relist(&mut story, second * S, *length);
    }
    story.read_open(lengths.len() as u64 * S);
    story
}

/// containerd gets nothing of the CPU for a share of the time, in percent: by a quota, or because others run.
fn held_off(story: &mut Story, seconds: u64, percent: u64, by_quota: bool) {
    for second in 0..=seconds {
        let held = second * S / 100 * percent;
        let quota = QuotaFact {
            path: "/sys/fs/cgroup/cpu/system.slice/containerd.service".into(),
            quota_ns: 1_500_000,
            period_ns: 100_000_000,
            periods: second * 10,
            throttled: second * 10 * percent / 100,
            throttled_ns: held,
        };
        let daemon = DaemonCpu {
            pid: CONTAINERD,
            ran_ns: second * 15 * MS,
            waited_ns: held,
            threads: 9,
            left_out: 0,
            quotas: if by_quota { vec![quota] } else { Vec::new() },
        };
        let kubelet = DaemonCpu {
            pid: KUBELET,
            ran_ns: second * 50 * MS,
            waited_ns: second * MS,
            ..DaemonCpu::default()
        };
        let MonoNs(at_ns) = at(second * S);
        story.fact(
            second * S,
            &Fact::Cpu(CpuFact {
                at_ns,
                daemons: vec![daemon, kubelet],
                pressure_ns: Some(second * S / 2),
                ..CpuFact::default()
            }),
        );
    }
}

fn told(story: &Story, seconds: u64) -> Diagnosis {
    diagnose(&story.snapshot(seconds * S))
}

/// The case of the field: a list from memory takes 200 ms because the cgroup of containerd may use 1.5 % of a CPU.
#[test]
fn o1_names_the_quota() {
    let mut story = relists(&[410 * MS; 10]);
    held_off(&mut story, 10, 92, true);
    let diagnosis = told(&story, 10);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec!["O1"]));
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.severity, culprit(finding), finding.reach), (Severity::Slow, Some(CONTAINERD), 3));
    assert!(finding.headline.contains("containerd is throttled 92 %"), "{}", finding.headline);
    assert!(finding.headline.contains("1.5 % of one CPU"), "{}", finding.headline);
    assert_eq!((diagnosis.slow[0].what.clone(), diagnosis.slow[0].p50_ns), (SlowKind::Relists, 410 * MS));
}

/// With a quota relists are late in bursts: most of them are quick, and a fifth is not. That is slow when the quota is seen
/// to hold the daemon up, and not without it, nor when fewer are late.
#[test]
fn o1_is_named_when_a_fifth_of_the_relists_is_late() {
    let bursts_of = |count: usize, late: usize, by_quota: bool| {
        let lengths: Vec<u64> = (0..count).map(|nth| if nth < late { 900 * MS } else { 5 * MS }).collect();
        let mut story = relists(&lengths);
        let seconds = count as u64;
        held_off(&mut story, seconds, 60, by_quota);
        told(&story, seconds)
    };
    let bursts = |late: usize, by_quota: bool| bursts_of(12, late, by_quota);
    let slow = bursts(3, true);
    assert_eq!((slow.verdict, ids(&slow)), (Verdict::Slow, vec!["O1"]));
    assert_eq!((slow.slow[0].count, slow.slow[0].late), (12, 3));
    assert_eq!(slow.findings[0].severity, Severity::Slow);
    assert_eq!(bursts_of(15, 3, true).verdict, Verdict::Slow);
    assert_eq!(bursts_of(16, 3, true).verdict, Verdict::Healthy);
    assert_eq!(bursts(2, true).verdict, Verdict::Healthy);
    assert_eq!(bursts(3, false).verdict, Verdict::Healthy);
    assert_eq!(bursts(6, false).verdict, Verdict::Healthy, "half of them are not most");
}

/// The pressure of the node says little of its daemons: it is not the CPU where these get it, and it may be where they do not.
#[test]
fn the_cpu_is_excluded_where_the_daemons_get_it() {
    let why = |percent: u64, by_quota: bool| {
        let mut story = relists(&[5 * MS; 12]);
        held_off(&mut story, 12, percent, by_quota);
        let now = at(12 * S).0;
        let pressure = Some(Pressure { cpu_some_avg10: 3_000, ..Pressure::default() });
        let round = CensusFact { began_ns: now, ended_ns: now, pressure, ..CensusFact::default() };
        story.fact(12 * S, &Fact::Census(round));
        let excluded = told(&story, 12).excluded;
        excluded.into_iter().find(|excluded| excluded.what == "CPU").map(|excluded| excluded.why)
    };
    let waited = "kubelet and runtime waited 4 % of the time, pressure 30.00 %";
    assert_eq!(why(4, true).as_deref(), Some(waited));
    assert_eq!((why(10, true), why(10, false)), (None, None));
}

/// Without a quota it waits for its turn.
#[test]
fn o1_names_who_waits() {
    let mut story = relists(&[410 * MS; 10]);
    held_off(&mut story, 10, 60, false);
    let diagnosis = told(&story, 10);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec!["O1"]));
    assert!(diagnosis.findings[0].headline.contains("containerd waits for a CPU 60 %"));
}

/// Says who had the processors meanwhile, unless the daemon itself ran most.
#[test]
fn o1_names_who_runs() {
    let runs = |ran_ns, started_ns| {
        let mut story = relists(&[410 * MS; 10]);
        held_off(&mut story, 10, 60, false);
        for second in 11..=12 {
            let runner = RunnerFact { pid: 4711, comm: "make".into(), ran_ns, started_ns };
            let own =
                RunnerFact { pid: CONTAINERD, comm: "containerd".into(), ran_ns: 2 * ran_ns, started_ns: 0 };
            let daemon = DaemonCpu {
                pid: CONTAINERD,
                ran_ns: second * 15 * MS,
                waited_ns: second * 600 * MS,
                threads: 9,
                ..DaemonCpu::default()
            };
            let runners = vec![own, runner];
            let fact =
                CpuFact { at_ns: at(second * S).0, daemons: vec![daemon], runners, ..CpuFact::default() };
            story.fact(second * S, &Fact::Cpu(fact));
        }
        told(&story, 12).findings.remove(0)
    };
    let finding = runs(800 * MS, 0);
    assert!(
        finding.headline.ends_with("of the time: others run, most of all make 4711"),
        "{}",
        finding.headline
    );
    assert!(finding.evidence.iter().any(|it| it.text == "meanwhile make 4711 ran 1.6 s"), "{finding:?}");
    assert!(runs(MS, 0).headline.ends_with("others run"));
    let storm = runs(800 * MS, 700 * MS).headline;
    assert!(storm.ends_with("most of all make 4711 and the programs that it starts"), "{storm}");
}

/// What nobody suffers from is no finding, and what nobody is held off from has another cause.
#[test]
fn o1_needs_both() {
    for by_quota in [false, true] {
        let mut quick = relists(&[3 * MS; 10]);
        held_off(&mut quick, 10, 92, by_quota);
        let diagnosis = told(&quick, 10);
        assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Healthy, vec![]));
        let mut other = relists(&[410 * MS; 10]);
        held_off(&mut other, 10, 10, by_quota);
        let diagnosis = told(&other, 10);
        assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    }
}

/// The verdict names the part that takes the time.
#[test]
fn slow_names_the_part() {
    let diagnosis = told(&relists(&[410 * MS; 10]), 10);
    assert_eq!(diagnosis.verdict, Verdict::Slow);
    let slow = &diagnosis.slow[0];
    let (place, share) = slow.part.clone().unwrap();
    assert_eq!((slow.component(), place.doing), (Some(Component::Containerd), Doing::Inside));
    assert!(share >= 75, "{share}");
    assert_eq!((slow.count, slow.normal_ns), (10, 100 * MS));
    assert!(diagnosis.doubts.is_empty() && diagnosis.since.is_none());
}

/// Too few, the smaller part of them, or not slow enough.
#[test]
fn one_slow_relist_is_none() {
    let verdict = |lengths: &[u64]| told(&relists(lengths), lengths.len() as u64).verdict;
    assert_eq!(verdict(&[3 * MS, 3 * MS, 3 * MS, 3 * MS, 900 * MS, 3 * MS, 3 * MS]), Verdict::Healthy);
    assert_eq!(verdict(&[900 * MS; 4]), Verdict::Healthy);
    assert_eq!(verdict(&[900 * MS; 5]), Verdict::Slow);
    assert_eq!(verdict(&[[3 * MS; 5], [900 * MS; 5]].concat()), Verdict::Healthy, "half of them");
    assert_eq!(verdict(&[[3 * MS; 5].to_vec(), vec![900 * MS; 6]].concat()), Verdict::Slow);
    assert_eq!(verdict(&[95 * MS; 12]), Verdict::Healthy, "busy");
}

/// Of those that take seconds three are enough: no more come in the time.
#[test]
fn three_relists_of_seconds_are_slow() {
    let verdict = |count: u64, length| {
        let mut story = Story::node();
        for nth in 0..count {
            relist(&mut story, 5 * nth * S, length);
        }
        told(story.read_open(5 * count * S), 5 * count).verdict
    };
    assert_eq!(verdict(3, 4 * S), Verdict::Slow);
    assert_eq!(verdict(2, 4 * S), Verdict::Healthy);
    assert_eq!(verdict(3, 900 * MS), Verdict::Healthy);
}

/// A relist that asks for many pods may take longer.
#[test]
fn many_calls_take_longer() {
    let verdict = |call| {
        let mut story = Story::node();
        for second in 0..6 {
            story.relist_of(2 * second * S, 3, call);
        }
        let told = told(story.read_open(12 * S), 12);
        (told.verdict, told.slow)
    };
    assert_eq!(verdict(30 * MS), (Verdict::Healthy, vec![]));
    assert_eq!(verdict(60 * MS).0, Verdict::Slow);
}

/// A command, an image and a grace period take as long as they take.
#[test]
fn what_was_asked_for_is_not_slow() {
    let mut story = relists(&[3 * MS; 20]);
    for n in 0..6 {
        story.rpc("ExecSync", 900 + n, n * S, (n + 9) * S);
        story.rpc("PullImage", 950 + n, n * S, (n + 12) * S);
    }
    let diagnosis = told(&story, 20);
    assert_eq!((diagnosis.verdict, diagnosis.slow.len()), (Verdict::Healthy, 0), "{:?}", diagnosis.slow);
}

/// Pods that start slowly, each time, are: but not a single one, and not those of an hour ago.
#[test]
fn slow_sandboxes() {
    let slow = |count: u64, seconds: u64| {
        let mut story = Story::node();
        for n in 0..count {
            story.rpc("RunPodSandbox", 900 + n, n * S, (n + 11) * S);
        }
        for second in 0..seconds {
            relist(&mut story, second * S, 3 * MS);
        }
        told(&story, seconds).slow
    };
    assert_eq!(slow(2, 20).len(), 0);
    assert_eq!(slow(3, 20).len(), 1);
    assert_eq!(slow(3, 120).len(), 0);
}

/// A stall outranks what is slow, and O1 is its cause only where the relist itself is held off.
#[test]
fn a_stall_outranks() {
    let mut story = relists(&[410 * MS; 10]);
    story.relist_hangs(10 * S).read_open(15 * S);
    let diagnosis = told(&story, 15);
    assert_eq!((diagnosis.verdict, diagnosis.findings.len()), (Verdict::Stall, 0));
    held_off(&mut story, 15, 92, true);
    let diagnosis = told(&story, 15);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Stall, vec!["O1"]));
    assert_eq!(diagnosis.findings[0].severity, Severity::Stall);
}

/// A removal that is old on a node whose relists are slow, while containerd is held off for a share of the time; and what its
/// goroutine waits for, seen twice.
fn removal(percent: u64, by_quota: bool, seen: &[ProcessFact], groups: &[GoroutineGroup]) -> Diagnosis {
    let mut story = Story::node();
    for layer in [Layer::KubeletCall, Layer::KubeletClient, Layer::Handler] {
        story.hook(layer, "RemovePodSandbox");
    }
    story.begin(Layer::KubeletClient, "RemovePodSandbox", 6, 900, 0);
    story.begin(Layer::Handler, "RemovePodSandbox", 76, 700, MS);
    if !groups.is_empty() {
        story.census(2 * S, &[], groups, &[]);
    }
    for second in 1..25 {
        relist(&mut story, second * S, 410 * MS);
    }
    if !groups.is_empty() {
        story.census(25 * S, seen, groups, &[]);
    }
    story.read_open(25 * S);
    held_off(&mut story, 25, percent, by_quota);
    told(&story, 25)
}

/// Such a removal proves nothing by its age: the quota is the cause, and it is said that the removal may hang all the same. Without a
/// quota, or with one that holds less off, it hangs.
#[test]
fn a_quota_explains_what_is_merely_old() {
    let held = removal(80, true, &[], &[]);
    assert_eq!((held.verdict, ids(&held)), (Verdict::Stall, vec!["O1"]));
    let o1 = &held.findings[0];
    assert_eq!((o1.severity, o1.confidence), (Severity::Stall, Confidence::Medium));
    assert!(o1.doubts.iter().any(|doubt| doubt.contains("may hang by itself")), "{:?}", o1.doubts);
    assert_eq!(held.unexplained().count(), 0);
    for other in [removal(40, true, &[], &[]), removal(80, false, &[], &[])] {
        assert_eq!((other.verdict, ids(&other)), (Verdict::Stall, vec!["L3"]));
        let headline = &other.findings[0].headline;
        assert!(headline.starts_with("relists are slow but end"), "{headline}");
    }
}

/// A plugin below the same quota is late as well, one after the other. One that is old itself is the cause, and so is whatever else
/// the removal waits for.
#[test]
fn a_quota_explains_young_plugins_only() {
    let handler = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_RemovePodSandbox_Handler";
    let plugin = "github.com/containernetworking/cni/libcni.(*CNIConfig).DelNetworkList";
    let waits = group(&[76], "", &["syscall.Syscall6", "os/exec.(*Cmd).Wait", plugin, handler]);
    let lock =
        group(&[76], "semacquire", &["sync.runtime_Semacquire", "sync.(*Mutex).Lock", plugin, handler]);
    let held = removal(80, true, &[], std::slice::from_ref(&waits));
    assert_eq!(held.stuck.len(), 1);
    assert_eq!((held.verdict, ids(&held)), (Verdict::Stall, vec!["O1"]));
    assert_eq!(held.unexplained().count(), 0);
    let old = cni(CHILD, park(syscall("nanosleep", None)));
    let hangs = removal(80, true, &[old], &[waits]);
    assert_eq!(ids(&hangs).first(), Some(&"N1"));
    let locked = removal(80, true, &[], &[lock]);
    assert!(locked.accused().iter().all(|finding| finding.rule.id != "O1"), "{:?}", ids(&locked));
}

/// Where no cause is named, a quota that does not explain what hangs is said all the same, and accused of nothing.
#[test]
fn a_quota_beside_an_unknown_cause() {
    let handler = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_RemovePodSandbox_Handler";
    let plugin = "github.com/containernetworking/cni/libcni.(*CNIConfig).DelNetworkList";
    let unknown =
        group(&[76], "semacquire", &["sync.runtime_Semacquire", "sync.(*Mutex).Lock", plugin, handler]);
    let beside = |by_quota: bool| {
        let held = removal(80, by_quota, &[], std::slice::from_ref(&unknown));
        assert_eq!((held.verdict, held.accused().len()), (Verdict::Stall, 0), "{:?}", ids(&held));
        held
    };
    let quota = beside(true);
    assert!(quota.unknown_cause.is_some() && quota.unexplained().count() > 0, "{:?}", quota.reasons);
    let notice = &quota.findings[0];
    assert_eq!((notice.rule.id, notice.severity), ("O1", Severity::Notice));
    assert!(notice.doubts.iter().any(|doubt| doubt.contains("another cause")), "{:?}", notice.doubts);
    assert_eq!(ids(&beside(false)), Vec::<&str>::new(), "a busy node is none");
}

/// Forty exec probes a second, and a node that waits for its processors.
fn storm(story: &mut Story, seconds: u64) {
    story.found(CONTAINERD, Role::Containerd).found(SHIM, Role::Shim);
    for n in 0..40 * seconds {
        let (pid, ns) = (30_000 + u32::try_from(n).unwrap(), n * 25 * MS);
        let exec = Command::Runc { sub: "exec".into(), container: Some("c1".into()), bundle: None };
        story.fork(SHIM, pid, ns).exec(pid, Role::Runc, PROCESS_EXECED, ns + MS).told(pid, &exec);
        story.exit(ns + 30 * MS, pid, 0);
    }
    let now = at(seconds * S).0;
    let pressure = Some(Pressure { cpu_some_avg10: 8_000, ..Pressure::default() });
    let round = CensusFact { began_ns: now, ended_ns: now, pressure, ..CensusFact::default() };
    story.fact(seconds * S, &Fact::Census(round));
}

/// Memory is short while relists are slow: by itself, doubted as long as no daemon was seen to wait for a page, and no news on
/// a node that answers in time.
#[test]
fn o3_needs_pressure_and_somebody_who_suffers() {
    let told_of = |length: u64, full: u32, kernel_stack: &[&str]| {
        let mut story = relists(&[length; 10]);
        let stack = kernel_stack.iter().map(|name| (*name).to_owned()).collect();
        let parked = vec![ParkedThreads { state: 'D', kernel_stack: stack, ..park(syscall("read", None)) }];
        let kubelet = ProcessFact { parked, ..process(Component::Kubelet, KUBELET, 1, 0) };
        story.census(9 * S, &[kubelet], &[], &[]);
        let pressure = Some(Pressure { memory_full_avg10: full, ..Pressure::default() });
        let at_ns = at(9 * S).0;
        let round = CensusFact { began_ns: at_ns, ended_ns: at_ns, pressure, ..CensusFact::default() };
        story.frames_mut().pop();
        story.fact(9 * S, &Fact::Census(round));
        told(&story, 10)
    };
    let thrashes = told_of(600 * MS, 2_000, &["folio_wait_bit_common", "filemap_fault", "handle_mm_fault"]);
    assert_eq!((thrashes.verdict, ids(&thrashes)), (Verdict::Slow, vec!["O3"]));
    let finding = &thrashes.findings[0];
    assert_eq!((finding.severity, finding.confidence), (Severity::Slow, Confidence::Medium));
    assert!(finding.headline.contains("20.00 %"), "{}", finding.headline);
    assert!(
        finding.evidence.iter().any(|seen| seen.text.contains("filemap_fault")),
        "{:?}",
        finding.evidence
    );
    let unseen = told_of(600 * MS, 2_000, &["futex_wait"]);
    assert_eq!(unseen.findings[0].confidence, Confidence::Low);
    assert_eq!(told_of(3 * MS, 9_000, &["filemap_fault"]).verdict, Verdict::Healthy, "it answers in time");
    assert_eq!(ids(&told_of(600 * MS, 900, &["filemap_fault"])), Vec::<&str>::new());
}

/// A storm is the cause of what is slow; one relist that took long beside it is neither slow nor a stall.
#[test]
fn a_storm_of_exec_probes() {
    let storms = |lengths: &[u64]| {
        let mut story = relists(lengths);
        storm(&mut story, lengths.len() as u64);
        let diagnosis = told(&story, lengths.len() as u64);
        let o2 = diagnosis.findings.iter().find(|finding| finding.rule.id == "O2").map(|o2| o2.severity);
        (o2, diagnosis.verdict)
    };
    let mut lengths = [50 * MS; 12];
    assert_eq!(storms(&lengths), (Some(Severity::Notice), Verdict::Healthy));
    lengths[3] = 990 * MS;
    assert_eq!(storms(&lengths), (Some(Severity::Notice), Verdict::Healthy), "one long relist");
    assert_eq!(storms(&[410 * MS; 12]), (Some(Severity::Slow), Verdict::Slow));
}
