//! plegtrace is made to run for months: what it uses does not grow while a node lives and its daemons are upgraded, and what
//! it says stays true.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plegtrace::input::Component;
use plegtrace_lab::host;
use plegtrace_tests::endurance::{Course, Endured, Gauge, Generation};
use plegtrace_tests::program::target_dir;
use serde_json::Value;

/// Every day.
const SHORT: Course = Course {
    duration: Duration::from_secs(120),
    settled: Duration::from_secs(40),
    restarts: 8,
    period: Duration::from_secs(10),
    pods: 3,
};
/// In the soak.
const LONG: Course = Course {
    duration: Duration::from_secs(30 * 60),
    settled: FLAT,
    restarts: 60,
    period: Duration::from_secs(60),
    pods: 10,
};
const VERY_LONG: Course = Course {
    duration: Duration::from_secs(2 * 3600),
    settled: FLAT,
    restarts: 240,
    period: Duration::from_secs(60),
    pods: 10,
};
/// Lines of the table that a soak writes.
const LINES: usize = 30;
/// What has ended is given up after three minutes, at the end of the half minute; then memory is flat.
const FLAT: Duration = Duration::from_secs(210);
/// Rows of a process are given up three minutes after its end: those that ended so long ago have theirs,
const HAS_ROWS: Duration = Duration::from_secs(150);
/// and those that ended before that have none.
const HAS_NONE: Duration = Duration::from_secs(200);
/// Relists of a kubelet that began before its probes were on, a second each.
const UNSEEN: f64 = 6.0;

/// Resident memory of plegtrace, at most.
const RSS: u64 = 40 << 20;

/// Upgraded again and again, each time to a file of its own: each is probed, and neither processor time, open files, map entries
/// nor slots grow. Without reuse, the tables are full before the end. Two minutes are too short for memory to settle: nothing is
/// so old yet that it is given up, and after a minute it still grows by 2 to 3 MiB in the next one. It has its bound; the half hour
/// shows that it is flat, and `integration::ageing` proves it of what is kept.
#[test]
fn nothing_grows() {
    endures(&SHORT, "short");
}

#[test]
#[ignore = "takes half an hour: cargo xtask soak"]
fn nothing_grows_in_half_an_hour() {
    endures(&LONG, "half-an-hour");
}

#[test]
#[ignore = "takes two hours: cargo xtask soak"]
fn nothing_grows_in_two_hours() {
    endures(&VERY_LONG, "two-hours");
}

fn endures(course: &Course, name: &str) {
    host::require_root().unwrap();
    let Endured { curve, generations, unstarted, report, code } = course.run().unwrap();
    let table = curve.table(LINES);
    let folder = target_dir().join("endurance");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |file: String, text: &str| -> PathBuf {
        let path = folder.join(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    write(format!("{name}.json"), &report.to_string());
    eprintln!("{table}{}", write(format!("{name}.md"), &table).display());

    let findings = report["diagnosis"]["findings"].as_array().unwrap();
    let findings: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] == "stall").collect();
    let verdict = if findings.is_empty() { ("healthy", 0) } else { ("stall", 1) };
    let said = report["diagnosis"]["verdict"].as_str().zip(code);
    assert_eq!(said, Some(verdict), "{:#}", report["diagnosis"]);
    // In hours a containerd may be killed while it makes a container, and that is found.
    for finding in findings {
        let left = finding["culprit"]["pid"].as_u64().is_some_and(|pid| unstarted.contains(&(pid as u32)));
        assert!(finding["id"] == "U2" && left, "{finding:#}");
    }
    let losses = report["losses"].as_array().unwrap();
    assert!(losses.iter().all(|loss| loss["is_loss"] == false), "{losses:#?}");
    let refused = report["refused"].as_array().unwrap();
    let crowded = |one: &&Value| one["why"].as_str().unwrap().starts_with("more than");
    assert_eq!(refused.iter().filter(crowded).count(), 0, "{refused:#?}");
    assert_eq!(generations.len(), course.restarts as usize + 2);
    let now = Instant::now();
    for generation in generations.iter().filter(|generation| now - generation.ended < HAS_ROWS) {
        is_told(&report, generation);
    }
    let rows = report["operations"].as_array().unwrap();
    for generation in generations.iter().filter(|generation| now - generation.ended > HAS_NONE) {
        assert!(rows.iter().all(|row| row["pid"] != generation.pid), "rows of {generation:?}");
    }
    let [_rss, others @ ..] = &Gauge::ALL;
    let flat: &[Gauge] = if course.settled < FLAT { others } else { &Gauge::ALL };
    let growing = curve.growing(flat, course.settled);
    assert!(growing.is_empty(), "{growing:#?}\n{table}");
    let most = curve.most_rss();
    assert!(course.settled >= FLAT || most <= RSS, "{} MiB", most >> 20);
}

/// Does the report have what this daemon did?
fn is_told(report: &Value, generation: &Generation) {
    let rows = report["operations"].as_array().unwrap();
    let own = rows.iter().filter(|row| row["pid"] == generation.pid);
    let count = |side: &str| -> u64 {
        own.clone().filter(|row| row["side"] == side).filter_map(|row| row["count"].as_u64()).sum()
    };
    if generation.component == Component::Kubelet {
        let relists = count("relist") as f64;
        assert!(relists >= generation.relists - UNSEEN, "{relists} of {generation:?}");
    } else {
        assert!(count("server") > 0, "{generation:?}");
    }
}
