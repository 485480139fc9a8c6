//! D1: systemd has used up its serial numbers.

use crate::{
    correlate::{
        SystemdSerials,
        thresholds::{BUS_NS, SECOND_NS},
    },
    diagnose::{
        Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source,
        bus::{self, Serials},
    },
    input::Component,
    stuck::BusParty,
    words::{self, human},
};

/// Whoever plans ahead wants to know a month before.
const SOON_S: u64 = 30 * 24 * 3600;

pub(super) static RULE: Rule = Rule {
    id: "D1",
    title: "systemd (PID 1) has used up its serial numbers: it reads calls, and its own library refuses every answer",
    area: Area::Bus,
    min_age_ns: BUS_NS,
    proof: Proof::Scripted,
    page: Page {
        mechanism: "systemd numbers every message that it sends. Before version 242 the number may grow beyond the 32 \
            bits that D-Bus has for it; from then on its own library refuses to send anything on that connection. It \
            goes on reading, is idle, and answers nobody, for ever. A busy node gets there within months.",
        versions: "systemd before 242, also 219 of RHEL 7 without the fix; fixed by systemd PR 11818",
        symptoms: &[
            "Failed to propagate agent release message: Operation not supported",
            "Failed to introspect object: Connection timed out",
            "systemctl works over its private socket, while busctl times out",
        ],
        evidence: &[
            "a call to systemd over D-Bus without an answer for 5 s, and no other call answered since it began",
            "systemd has read everything from the bus, and is idle",
            "systemd is older than 242, or its version is not known and the last number that it was seen to send is one of the very last",
            "the serial numbers of its answers, when it has answered while plegtrace observed: they are near 4,294,967,295; that they \
             will be within 30 days is a notice",
        ],
        excluded_by: &[
            "systemd is 242 or newer (D3)",
            "the last serial number that it was seen to send is far from the end",
            "it has answered another call since, or has not read what it was sent",
        ],
        next: &[
            "`busctl status org.freedesktop.systemd1` times out while `systemctl status` answers: that confirms it",
            "`systemctl daemon-reexec`: a new connection begins at 1",
            "upgrade systemd",
        ],
        trap: "Do not restart containerd or the kubelet: that changes nothing; a reboot only starts the count again.",
        sources: &["systemd#11804", "systemd#11809", "runc#1959", "cri-o#2584"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let of = |(stuck, stall)| {
        let Serials::Finite(version) = bus::serials(stall, scene) else { return None };
        if !bus::is_silent(stall, scene) {
            return None;
        }
        let headline = format!("{}; {} for it", words::what(stuck), bus::wait(stuck, stall));
        let finding = bus::finding(&RULE, headline, stuck, stall, scene);
        let finding = match version {
            Some(version) => finding.seen(Evidence::new(
                Source::Census,
                format!("systemd {version}: before 242 its serial numbers run out"),
            )),
            None => finding
                .doubted("the version of systemd is unknown: since 242 its serial numbers wrap without harm"),
        };
        let finding = match &scene.snapshot.bus.systemd_serials {
            Some(seen) => finding.seen(Evidence::new(Source::Wire, last(seen))),
            None => finding.doubted(
                "the serial numbers that systemd sends were not seen: it may be silent for another reason (D3)",
            ),
        };
        Some(finding.advise(RULE.page.next.iter().copied()))
    };
    let mut found: Vec<Finding> = bus::stalls(scene, BusParty::Systemd).filter_map(of).collect();
    if found.is_empty() {
        found.extend(soon(scene));
    }
    found
}

/// They have not run out, and will.
fn soon(scene: &Scene<'_>) -> Option<Finding> {
    let (Serials::Finite(Some(version)) | Serials::Left(version, _)) = bus::serials_of_node(scene) else {
        return None;
    };
    let seen = scene.snapshot.bus.systemd_serials.as_ref()?;
    let lasts = seen.last_for_s();
    if lasts.map_or(seen.left() > u32::MAX / 100, |lasts| lasts > SOON_S) {
        return None;
    }
    let when = match lasts {
        Some(lasts) => format!("in {} at this pace", human::duration(lasts.saturating_mul(SECOND_NS))),
        None => "before long".to_owned(),
    };
    let words = format!("its serial numbers run out {when}");
    let headline = format!("systemd {version} will stop answering: {words}");
    let culprit = Culprit { component: Component::Systemd, pid: Some(1), container: None, words };
    let finding = Finding::new(&RULE, headline).seen(Evidence::new(Source::Wire, last(seen)));
    let finding = Finding { culprit: Some(culprit), ..finding };
    Some(
        finding
            .into_notice()
            .advise(["`systemctl daemon-reexec`: a new connection begins at 1", "upgrade systemd"]),
    )
}

/// `the last serial number that systemd was seen to send is 4,294,000,000 of 4,294,967,295`.
fn last(seen: &SystemdSerials) -> String {
    let (last, all) = (human::count(seen.last.0.into()), human::count(u32::MAX.into()));
    format!("the last serial number that systemd was seen to send is {last} of {all}")
}
