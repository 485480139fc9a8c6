//! D4: systemd has answered with a job, and does not say that it is done.

use crate::{
    correlate::{Phase, thresholds::BUS_NS},
    diagnose::{Area, Evidence, Finding, Page, Proof, Rule, Scene, Source, bus},
    stuck::{BusParty, BusStall, Stuck, Waiter},
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D4",
    title: "systemd (PID 1) has answered runc with a job, and does not say that the job is done",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "With the systemd cgroup driver runc starts and stops units. systemd answers at once, with a job, and sends the \
            signal JobRemoved when that is done; runc waits for the signal for 30 s, then goes on or fails. So each container is late \
            by 30 s, and the kubelet tries again and again. A job waits for another job, for a start limit, or for processes of \
            the unit that do not end.",
        versions: "runc 1.0.0-rc93 and later wait for 30 s, before that for 1 s or for ever; crun waits for ever",
        symptoms: &[
            "Timed out while waiting for StartTransientUnit(...) completion signal from dbus. Continuing...",
            "Timeout waiting for systemd to create kubepods-...slice",
            "each runc create or delete takes 30 s",
        ],
        evidence: &[
            "systemd has answered a call over D-Bus with the number of a job",
            "its caller has read no signal that this job is done for 5 s",
            "the bus daemon runs, and systemd is not busy",
        ],
        excluded_by: &[
            "systemd answers no calls either (D3), is busy (D2), frozen (D13), or in state D (D12)",
            "the bus daemon stands still (D14), or is busy while systemd is idle (D9)",
        ],
        next: &[
            "`systemctl list-jobs`: which jobs wait, and for which others",
            "`systemctl status UNIT` of a unit that is being stopped: processes that do not end, state D first",
            "`systemctl cancel JOB` for a job that will never be done",
        ],
        trap: "runc goes on after 30 s, so a stall on each container looks like a slow node, not like one that hangs.",
        sources: &["runc PR 1754", "runc PR 2614", "runc PR 3782"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |(stuck, stall): (&Stuck, &BusStall)| {
        let is_other = stall.busy().is_some() || stall.is_halted() || stall.hangs_in_kernel();
        if is_other || !stall.call.fact.job {
            return None;
        }
        let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
        let finding = bus::finding(&RULE, headline, stuck, stall, scene);
        let finding = told_apart(finding, stuck, stall);
        Some(finding.advise(RULE.page.next.iter().copied()))
    };
    bus::stalls(scene, BusParty::Systemd).filter_map(of).collect()
}

/// Whether its caller still waits, and whether systemd can do anything about it.
fn told_apart(finding: Finding, stuck: &Stuck, stall: &BusStall) -> Finding {
    let waits = stuck.waiters.iter().find_map(|waiter| match waiter {
        Waiter::Process { phases, .. } => phases.iter().find(|phase| phase.waits_for_bus()),
        _ => None,
    });
    let finding = match waits {
        Some(Phase { operation, .. }) => {
            let text = format!("runc is still in {}", words::cut(operation, 60));
            finding.seen(Evidence::new(Source::Uprobes, text))
        }
        None => finding
            .doubted("not seen: whether runc still waits for it. Versions before 1.0.0-rc93 go on after 1 s"),
    };
    if stall.call.fact.member.starts_with("Stop") {
        return finding.doubted(
            "systemd waits for the processes of a unit that it stops: one that does not end keeps the job open",
        );
    }
    finding
}
