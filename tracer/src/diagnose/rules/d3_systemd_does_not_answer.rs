//! D3: systemd does not answer, and runc has no deadline.

use crate::{
    correlate::thresholds::BUS_NS,
    diagnose::{
        Area, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        bus::{self, Serials},
    },
    stuck::{BusParty, BusStall, Stuck},
    words,
};

pub(super) static RULE: Rule = Rule {
    id: "D3",
    title: "runc waits without a deadline for an answer of systemd (PID 1) that does not come",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "With the systemd cgroup driver runc asks systemd to make, change or remove the cgroup of a \
            container, and waits for the answer without a deadline. The bus has passed the call on; systemd either \
            does not read, or has read it and is silent. Whoever waits for that runc (the shim's request, the lock of \
            a container's status) waits as long.",
        versions: "all runc with the systemd cgroup driver",
        symptoms: &[
            "runc processes that are hours or days old",
            "systemctl: Failed to get properties: Connection timed out",
            "pods stay ContainerCreating or Terminating",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s",
            "the bus daemon has read it and runs",
            "whether systemd has read everything from the bus, by the queue of its socket",
        ],
        excluded_by: &[
            "the bus daemon has not read the call (D14, D9)",
            "systemd has answered, with a job that is not done (D4)",
            "systemd is busy (D2), frozen (D13), in state D (D12), or silent and older than 242 (D1)",
        ],
        next: &[
            "`cat /proc/1/wchan /proc/1/stack`: where systemd waits",
            "`systemctl status`, which uses its private socket: does systemd answer there?",
            "`systemctl daemon-reexec`: systemd connects to the bus anew, units are not touched",
            "then `kill -9` the runc processes that still wait",
        ],
        trap: "Do not kill runc or restart containerd first: that frees one request at a time, and leaves the cause.",
        sources: &["runc#3904", "runc#4481", "runc#1959"],
    },
    examine,
};

/// It may be frozen, stopped or busy.
const GLANCE: &str = "systemd was looked at for less than 2 s: what keeps it from answering is not known yet";

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |(stuck, stall): (&Stuck, &BusStall)| {
        let silent = bus::is_silent(stall, scene);
        let serials = bus::serials(stall, scene);
        let is_other =
            stall.busy().is_some() || stall.is_halted() || stall.hangs_in_kernel() || stall.is_absent();
        if is_other || stall.call.fact.job || silent && matches!(serials, Serials::Finite(_)) {
            return None;
        }
        let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
        let finding = bus::finding(&RULE, headline, stuck, stall, scene);
        let finding = told_apart(finding, stall, silent, serials, scene);
        let glance = stall.peer.as_ref().is_some_and(|peer| !peer.is_known());
        let finding = if glance { bus::at_most_medium(finding, GLANCE) } else { finding };
        Some(
            finding
                .advise([
                    format!("`cat /proc/{0}/wchan /proc/{0}/stack`: where systemd waits", stall.pid.max(1)),
                    "`systemctl status` (its private socket): if that answers, `systemctl daemon-reexec`"
                        .to_owned(),
                ])
                .advise(bus::let_go(stuck, stall)),
        )
    };
    bus::stalls(scene, BusParty::Systemd).filter_map(of).collect()
}

/// What else it could be, and what is known against that.
fn told_apart(
    finding: Finding,
    stall: &BusStall,
    silent: bool,
    serials: Serials,
    scene: &Scene<'_>,
) -> Finding {
    if let Serials::Endless(version) = serials
        && silent
    {
        let text =
            format!("systemd {version}: it has not used up its serial numbers (D1), which was fixed in 242");
        return finding.seen(Evidence::new(Source::Census, text));
    }
    let finding = match serials {
        Serials::Left(version, last) if silent => finding.seen(Evidence::new(
            Source::Wire,
            format!(
                "systemd {version}: the last serial number it was seen to send is {}: they have not run out (D1)",
                words::human::count(last.into())
            ),
        )),
        _ => finding,
    };
    let answered = scene.snapshot.bus.systemd_answered.filter(|at| at.0 >= stall.call.fact.start_ns);
    match answered {
        Some(at) => {
            let ago = words::human::duration(scene.snapshot.now.since(at));
            finding.doubted(format!(
                "systemd answered another call {ago} ago: it is slow, or this answer was lost"
            ))
        }
        None => finding,
    }
}
