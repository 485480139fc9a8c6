//! A systemd that has answered before and does no more, or that is not on the bus: each by a plegtrace that was there before, and by one
//! that comes when runc waits. Without uprobes it is not seen where runc waits.

use std::collections::BTreeMap;
use std::process::Child;

use plegtrace_lab::{Containerd, Knobs, host, process};
use plegtrace_tests::program::Running;
use serde_json::Value;

use super::kit::{self, LIMIT, runc};
use super::played::{Daemon, Played};

/// How long the two observe: runc gives up a job after 30 s.
const SECONDS: [&str; 2] = ["14", "11"];
/// A bus, and how its systemd behaves.
type Plays = (Daemon, &'static str);

/// One systemd, and the runc that waits for it.
struct Waits {
    node: Played,
    runc: Child,
}

/// What the early and the late one found in front of several, one runc each.
struct Found {
    waits: Vec<Waits>,
    reports: [Value; 2],
}

impl Found {
    fn on(played: &[Plays]) -> Found {
        host::require_root().unwrap();
        host::ensure(&["dbus", "dbus-broker"]).unwrap();
        let containerd = Containerd::start(&Knobs { pods: 0, ..Knobs::default() }).unwrap();
        let start = |(n, (daemon, behaves)): (usize, &Plays)| {
            Played::start(&containerd, *daemon, &format!("{behaves}{n}"), behaves).unwrap()
        };
        let nodes: Vec<Played> = played.iter().enumerate().map(start).collect();
        let observe = |seconds: &str| {
            Running::start(&["-o", "json", "-d", seconds, "--sources", "census,processes,wire"]).unwrap()
        };
        let mut early = observe(SECONDS[0]);
        early.wait_until_armed(LIMIT).unwrap();
        let ask = |(n, node): (usize, Played)| {
            let runc = runc(&containerd, &kit::address(&node.dir), &format!("waits{n}")).unwrap();
            // Whoever is silent must be so since after the last answer of all.
            if played[n].1 != "absent" {
                process::wait_for("a job", LIMIT, || Ok(kit::asked(&node.dir).exists().then_some(())))
                    .unwrap_or_else(|late| {
                        panic!("{late}: {}", kit::said(&containerd, &format!("waits{n}")))
                    });
            }
            Waits { node, runc }
        };
        let mut waits: Vec<Waits> = nodes.into_iter().enumerate().map(ask).collect();
        let early = early.finish(LIMIT * 2).unwrap();
        let late = observe(SECONDS[1]).finish(LIMIT * 2).unwrap();
        for Waits { runc, .. } in &mut waits {
            runc.kill().unwrap();
            runc.wait().unwrap();
        }
        let reports = [early, late].map(|output| {
            assert_eq!(output.status.code(), Some(1), "{}\n{}", output.stderr, output.stdout);
            serde_json::from_str(&output.stdout).unwrap()
        });
        Found { waits, reports }
    }

    /// Each finding of both, by the runc that it names: its id, how sure it is, and whether the culprit is the systemd of that runc.
    fn named(&self) -> [Vec<(&str, &str, bool)>; 2] {
        self.reports.each_ref().map(|report| {
            let findings = report["diagnosis"]["findings"].as_array().unwrap();
            let mut by_runc = BTreeMap::new();
            for finding in findings {
                let headline = finding["headline"].as_str().unwrap();
                println!("{headline}");
                let named = |waits: &Waits| headline.contains(&format!("(pid {})", waits.runc.id()));
                let of = self.waits.iter().position(named).unwrap_or_else(|| panic!("{finding:#}"));
                assert_eq!(finding["severity"], "stall", "{finding:#}");
                let word = |name: &str| finding[name].as_str().unwrap();
                let is_culprit = finding["culprit"]["pid"] == self.waits[of].node.systemd;
                let before = by_runc.insert(of, (word("id"), word("confidence"), is_culprit));
                assert_eq!(before, None, "two for one: {findings:#?}");
            }
            by_runc.into_values().collect()
        })
    }
}

/// Jobs that are not done (D4), and then serial numbers near 2^32: whoever saw the last answer knows why there are no more (D1), and the
/// late one sees a systemd that is silent (D3).
#[test]
fn jobs_that_are_not_done_and_numbers_that_run_out() {
    let found =
        Found::on(&[(Daemon::Dbus, "endless"), (Daemon::Broker, "endless"), (Daemon::Dbus, "finite")]);
    let [early, late] = found.named();
    let job = ("D4", "medium", true);
    assert_eq!(early, [job, job, ("D1", "medium", true)]);
    assert_eq!(late, [job, job, ("D3", "high", true)]);
    for report in &found.reports {
        let rows = report["bus"]["methods"].as_array().unwrap().iter().filter(|row| row["job"] == true);
        let open: Vec<_> = rows.map(|row| row["open"].as_u64()).collect();
        assert_eq!(open, [Some(2)], "{}", report["bus"]);
    }
    let evidence = found.reports[0]["diagnosis"]["findings"].to_string();
    assert!(evidence.contains("4,294,967,295 of 4,294,967,295"), "{evidence}");
}

/// A dbus-broker has systemd start who has no name yet, so a call to a systemd that is not on the bus has no answer (D8). The numbers run
/// out on a broker, too.
#[test]
fn a_systemd_that_is_not_on_the_bus_and_one_without_numbers() {
    let found = Found::on(&[(Daemon::Broker, "absent"), (Daemon::Broker, "finite")]);
    let [early, late] = found.named();
    let absent = ("D8", "high", false);
    assert_eq!(early, [absent, ("D1", "medium", true)]);
    assert_eq!(late, [absent, ("D3", "high", true)]);
}
