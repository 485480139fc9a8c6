//! `plegtrace watch` is made to run for months on nodes that are sick now and then: it names each stall, keeps its evidence,
//! and takes no more memory, disk or processor time than it may.

use std::{fs, time::Duration};

use plegtrace_lab::host;
use plegtrace_tests::endurance::{Gauge, WatchCourse, Watched};
use plegtrace_tests::program::target_dir;

use super::watch::evidence_of;

/// Every day: a stall of each kind, and both daemons replaced.
const SHORT: WatchCourse =
    WatchCourse { duration: Duration::from_secs(120), stalls: 3, replaced: 2, window: 5, pods: 2 };
/// In the soak.
const LONG: WatchCourse =
    WatchCourse { duration: Duration::from_secs(30 * 60), stalls: 15, replaced: 4, window: 60, pods: 5 };
/// What has ended is given up after three minutes; then memory is flat.
const SETTLED: Duration = Duration::from_secs(5 * 60);
/// Evidence and history have bounds of their own; the rest is a window.
const DISK: u64 = (64 + 16 + 8) << 20;
/// Of plegtrace.
const RSS: u64 = 40 << 20;
/// Processor time, share of a core, in the long run.
const CPU: f64 = 0.01;
/// Lines of the table that a soak writes.
const LINES: usize = 30;

#[test]
fn stalls_and_upgrades() {
    endures(&SHORT);
}

#[test]
#[ignore = "takes half an hour: cargo xtask soak watch"]
fn half_an_hour() {
    let Watched { curve, .. } = endures(&LONG);
    let growing = curve.growing(&Gauge::ALL, SETTLED);
    assert!(growing.is_empty(), "{growing:#?}");
    let (first, last) = (&curve.samples[0], curve.samples.last().unwrap());
    let share = (last.cpu - first.cpu).as_secs_f64() / (last.at - first.at).as_secs_f64();
    assert!(share <= CPU, "{:.2} % of a core", 100.0 * share);
}

/// Each stall has begun with its id, and of each kind there is evidence that gives the same cause.
fn endures(course: &WatchCourse) -> Watched {
    host::require_root().unwrap();
    let watched = course.run().unwrap();
    let table = watched.curve.table(LINES);
    let folder = target_dir().join("endurance");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("watch-{}.md", course.duration.as_secs())), &table).unwrap();
    eprintln!("{table}");
    assert_eq!(watched.code, Some(0));
    assert_eq!(watched.stalls.len(), course.stalls as usize);
    for id in &watched.stalls {
        let injected = watched.stalls.iter().filter(|other| *other == id).count();
        let told =
            watched.events.iter().filter(|event| event["event"] != "end" && event["id"] == *id).count();
        assert!(told >= injected, "{told} of {injected} {id}: {:#?}", watched.events);
        evidence_of(watched.dir.path(), id);
    }
    assert!(watched.disk <= DISK, "{} MiB", watched.disk >> 20);
    let most = watched.curve.most_rss();
    assert!(most <= RSS, "{} MiB", most >> 20);
    watched
}
