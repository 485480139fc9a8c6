//! The disk of the runtime that is slow (R2), or idle because something holds back what is written for it.

use plegtrace::diagnose::{Confidence, Finding, Severity, Verdict};
use plegtrace::input::{Component, DiskFact, Layer, WriteLimit};
use plegtrace_common::rec::{CALL_OK, CALL_PARKS};
use plegtrace_tests::found::process;
use plegtrace_tests::story::{CONTAINERD, MS, S, Story};

use super::slow_parts::{healthy, told};
use super::{culprit, ids, park, syscall};

/// Three CreateContainer of four seconds in which they queue for the database for so long; of `looks` at containerd so many find
/// a thread in fdatasync.
fn writes(queue: u64, waiting: usize, looks: usize) -> Story {
    writes_to(queue, waiting, looks, &|_| None)
}

/// The same, with what the disk of containerd has done at each look.
fn writes_to(queue: u64, waiting: usize, looks: usize, disk: &dyn Fn(u64) -> Option<DiskFact>) -> Story {
    let mut story = healthy(14);
    story.follows_parks().names(0, &["sync.runtime_SemacquireMutex", "go.etcd.io/bbolt.(*DB).beginRWTx"]);
    story.hook(Layer::Handler, "CreateContainer").hook(Layer::KubeletCall, "CreateContainer");
    for n in 0..3 {
        let (goid, from) = (900 + n, S + 100 * n * MS);
        story.begin(Layer::KubeletCall, "CreateContainer", goid, 900, from);
        story.begin(Layer::Handler, "CreateContainer", 500 + n, 700, from + MS);
        if queue > 0 {
            story.park(CONTAINERD, 500 + n, from + 2 * MS, from + 2 * MS + queue, &[1, 2]);
        }
        story.end(Layer::Handler, "CreateContainer", 500 + n, from + 4 * S - MS, CALL_OK | CALL_PARKS);
        story.end(Layer::KubeletCall, "CreateContainer", goid, from + 4 * S, CALL_OK);
    }
    for look in 0..looks {
        let call = if look < waiting { "fdatasync" } else { "epoll_wait" };
        let mut containerd = process(Component::Containerd, CONTAINERD, 1, 0);
        containerd.parked = vec![park(syscall(call, None))];
        containerd.disk = disk(look as u64);
        story.census(S + 2 * look as u64 * S, &[containerd], &[], &[]);
    }
    story
}

/// The disk is named when looks find a thread that waits for it again and again, or once while calls queue for the database.
#[test]
fn r2_names_the_disk() {
    let diagnosis = told(&writes(0, 3, 6), 14);
    assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec!["R2"]));
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.severity, finding.confidence), (Severity::Slow, Confidence::High));
    assert_eq!((culprit(finding), finding.reach), (Some(CONTAINERD), 2));
    assert!(finding.evidence[0].text.contains("3 of 6 looks found a thread in fdatasync"), "{finding:?}");
    let diagnosis = told(&writes(3 * S, 1, 6), 14);
    assert_eq!((ids(&diagnosis), diagnosis.findings[0].confidence), (vec!["R2"], Confidence::Medium));
    assert!(diagnosis.findings[0].evidence[1].text.contains("75 % of their time"));
}

/// A disk that has completed fifty requests in the two seconds before each look, which took so long together.
fn used(name: &str, look: u64, took_ms: u64) -> DiskFact {
    DiskFact {
        name: name.to_owned(),
        completed: 100 + 50 * look,
        took_ms: 1000 + took_ms * look,
        in_flight: 2,
        ..DiskFact::default()
    }
}

/// The finding of R2 when three looks in six find somebody who waits for this disk.
fn named(disk: &dyn Fn(u64) -> Option<DiskFact>) -> Finding {
    let mut diagnosis = told(&writes_to(0, 3, 6, disk), 14);
    assert_eq!(ids(&diagnosis), ["R2"]);
    diagnosis.findings.remove(0)
}

/// What the disk does meanwhile tells a slow one from one that is held back; seen once, or of two disks, it tells nothing.
#[test]
fn r2_tells_a_slow_disk_from_one_that_is_held_back() {
    let named = |disk: &dyn Fn(u64) -> Option<DiskFact>| {
        let finding = named(disk);
        let texts = finding.evidence.iter().map(|seen| &seen.text).filter(|text| text.starts_with("disk "));
        let idle = finding.next.iter().any(|next| next.contains("the disk itself is idle"));
        (finding.also.clone(), texts.cloned().collect::<Vec<_>>(), idle)
    };
    let slow =
        "disk vdb completed 250 requests in 10.0 s, 76.0 ms each: 1.9 under way on average, 2 at the end"
            .to_owned();
    assert_eq!(named(&|look| Some(used("vdb", look, 3800))), (vec!["X2"], vec![slow], false));
    let idle =
        "disk vdb completed 250 requests in 10.0 s, 800 µs each: 0.0 under way on average, 2 at the end"
            .to_owned();
    assert_eq!(named(&|look| Some(used("vdb", look, 40))), (vec![], vec![idle], true));
    assert_eq!(named(&|look| (look == 0).then(|| used("vdb", look, 3800))), (vec![], vec![], false));
    let other = |look| Some(used(if look < 5 { "vda" } else { "vdb" }, look, 3800));
    assert_eq!(named(&other), (vec![], vec![], false));
}

/// Between a busy disk and an idle one neither is claimed.
#[test]
fn r2_claims_nothing_of_a_disk_that_has_some_work() {
    for (took_ms, also, headline) in [
        (1000, vec!["X2"], "the disk of containerd is slow: what it writes for pods waits for it"),
        (999, vec![], "what containerd writes for pods waits for its disk"),
        (200, vec![], "what containerd writes for pods waits for its disk"),
        (199, vec![], "what containerd writes for pods does not come to its disk, which is idle"),
    ] {
        let finding = named(&|look| Some(used("vdb", look, took_ms)));
        assert_eq!((finding.also.clone(), finding.headline.as_str()), (also, headline), "{took_ms}");
        let is_idle = finding.next.iter().any(|next| next.contains("is idle"));
        assert_eq!(is_idle, took_ms == 199, "{finding:?}");
    }
}

/// A disk that takes long for each request is slow, also when it has none half of the time; one that had hardly any is idle all the same.
#[test]
fn r2_calls_a_disk_slow_that_is_slow_each_time() {
    let also = |requests: u64, took_ms: u64| {
        named(&|look| Some(DiskFact { completed: requests * look, ..used("vdb", look, took_ms) })).also
    };
    assert_eq!(also(9, 900), ["X2"]);
    assert_eq!(also(10, 900), [""; 0]);
    assert_eq!(also(1, 199), [""; 0]);
}

/// A disk that completes nothing of what it was given is no idle one, and is slow if it had it all the time.
#[test]
fn r2_calls_no_disk_idle_that_completes_nothing() {
    let hangs = |at_first: u64, then: u64| {
        let disk = |look| {
            let in_flight = if look == 0 { at_first } else { then };
            Some(DiskFact { name: "vdb".to_owned(), in_flight, ..DiskFact::default() })
        };
        named(&disk)
    };
    let finding = hangs(3, 3);
    let told = "disk vdb completed no request in 10.0 s: 3 under way at the end";
    assert!(finding.evidence.iter().any(|seen| seen.text == told), "{:?}", finding.evidence);
    assert_eq!(finding.also, ["X2"]);
    let finding = hangs(0, 3);
    assert_eq!((finding.also, finding.headline.contains("is idle")), (vec![], false));
    for at_first in [0, 3] {
        assert!(hangs(at_first, 0).headline.ends_with("which is idle"));
    }
}

/// The evidence for the disk, and what else may be the cause, when looks at these times find somebody waiting for it, which has taken so
/// long for all requests by then; at each second between them nobody waits.
fn waited_at(looks: &[(u64, u64)]) -> (String, Vec<&'static str>) {
    let mut story = writes_to(0, 0, 0, &|_| None);
    let mut look = |ns: u64, disk: Option<DiskFact>| {
        let mut containerd = process(Component::Containerd, CONTAINERD, 1, 0);
        let call = if disk.is_some() { "fdatasync" } else { "epoll_wait" };
        (containerd.parked, containerd.disk) = (vec![park(syscall(call, None))], disk);
        story.census(ns, &[containerd], &[], &[]);
    };
    let mut last = S;
    for (ns, took_ms) in looks {
        (last / S + 1..ns.div_ceil(S)).for_each(|second| look(second * S, None));
        look(*ns, Some(DiskFact { took_ms: *took_ms, ..used("vdb", ns / (100 * MS), 0) }));
        last = *ns;
    }
    let diagnosis = told(&story, 15);
    assert_eq!(ids(&diagnosis), ["R2"]);
    let finding = &diagnosis.findings[0];
    let texts = finding.evidence.iter().map(|seen| seen.text.clone());
    (texts.filter(|text| text.starts_with("disk ")).collect(), finding.also.clone())
}

/// A disk that was quiet is no idle one once it is slow: what counts is the time of the last looks in a row that find somebody waiting.
/// In less than a second even a slow one may complete nothing.
#[test]
fn r2_forgets_the_time_before_somebody_waited() {
    let (seen, also) = waited_at(&[(S, 0), (12 * S, 2000), (13 * S, 4000), (14 * S, 6000)]);
    let told =
        "disk vdb completed 1,000 requests in 2.0 s, 4.0 ms each: 2.0 under way on average, 2 at the end";
    assert_eq!((seen.as_str(), also), (told, vec!["X2"]));
    let (seen, also) = waited_at(&[(S, 0), (13_500 * MS, 2000), (14 * S, 3000)]);
    assert!(seen.contains(" in 13.0 s, "), "{seen}");
    assert_eq!(also, [""; 0]);
}

/// In less than a tenth of a second even a quick disk may complete nothing.
#[test]
fn r2_calls_no_disk_slow_for_a_moment() {
    let (seen, also) = waited_at(&[(13_001 * MS, 0), (13_099 * MS, 0)]);
    assert_eq!(seen, "disk vdb completed no request in 98.0 ms: 2 under way at the end");
    assert_eq!(also, [""; 0]);
}

/// An idle disk is not called slow: the cgroup that holds back what is written for it is named, if one is known.
#[test]
fn r2_names_the_limit_of_a_cgroup() {
    let unit = "/sys/fs/cgroup/system.slice/containerd.service";
    // Two writes and 64 KiB a second.
    let limited = |took_ms: u64, limit: Option<(&str, Option<u64>, Option<u64>)>| {
        let limit = limit.map(|(path, writes, bytes)| WriteLimit { path: path.into(), writes, bytes });
        let disk = |look: u64| DiskFact {
            name: "vda".into(),
            completed: 4 * look,
            written: look << 17,
            took_ms: took_ms * look,
            limit: limit.clone(),
            ..DiskFact::default()
        };
        named(&|look| Some(disk(look)))
    };
    let binding = Some((unit, Some(2), Some(1 << 20)));
    let finding = limited(20, binding);
    let headline = format!("cgroup {unit} holds back what containerd writes for pods, and the disk is idle");
    assert_eq!((finding.headline, finding.also), (headline, vec![]));
    let told = format!("cgroup {unit} lets no more than 2 writes and 1.0 MiB a second through to disk vda");
    assert!(finding.evidence.iter().any(|seen| seen.text == told), "{:?}", finding.evidence);
    assert!(
        finding.next[0].contains("set-property containerd.service IOWriteIOPSMax="),
        "{:?}",
        finding.next
    );
    let finding = limited(20, Some(("/sys/fs/cgroup/blkio", None, Some(100_000))));
    assert!(finding.next[0].ends_with("of /sys/fs/cgroup/blkio"), "{:?}", finding.next);
    // One that lets far more through holds nothing back.
    for limit in [None, Some((unit, Some(5), Some(1 << 20)))] {
        let finding = limited(20, limit);
        assert!(finding.headline.ends_with("does not come to its disk, which is idle"), "{finding:?}");
        assert!(finding.next[0].starts_with("the disk itself is idle"), "{:?}", finding.next);
    }
    let finding = limited(396, binding);
    assert_eq!(finding.headline, format!("cgroup {unit} holds back what containerd writes for pods"));
    // With so many writes that it has its share of them, a disk may be too slow for them all the same.
    let finding = limited(1900, binding);
    assert_eq!(
        (finding.headline.starts_with("the disk of containerd is slow"), finding.also),
        (true, vec!["X2"])
    );
    assert!(finding.evidence.iter().any(|seen| seen.text == told), "{:?}", finding.evidence);
}

/// One look is chance, a lock is not a disk, and a disk that nobody waits for is none of our business.
#[test]
fn r2_needs_both() {
    for story in [writes(0, 1, 6), writes(3 * S, 0, 6)] {
        let diagnosis = told(&story, 14);
        assert_eq!((diagnosis.verdict, ids(&diagnosis)), (Verdict::Slow, vec![]));
    }
    let mut quick = healthy(14);
    let mut containerd = process(Component::Containerd, CONTAINERD, 1, 0);
    containerd.parked = vec![park(syscall("fdatasync", None))];
    (1..6).for_each(|look| {
        quick.census(2 * look * S, std::slice::from_ref(&containerd), &[], &[]);
    });
    assert_eq!(told(&quick, 14).verdict, Verdict::Healthy);
}
