//! D7: the queue of connections that wait to be accepted by the bus, or by systemd, is full.

use crate::{
    diagnose::{Area, Finding, Page, Proof, Rule, Scene, bus},
    stuck::BusParty,
};

/// What connect(2) of a socket that does not block says then (net/unix/af_unix.c, `unix_stream_connect`).
const FULL: &str = "EAGAIN";

pub(super) static RULE: Rule = Rule {
    id: "D7",
    title: "runc cannot connect to D-Bus: too many connections wait to be accepted",
    area: Area::Bus,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "A socket keeps as many new connections as its owner has asked for (listen(2), at most \
            net.core.somaxconn) until they are accepted. When many runc start at once, or the bus daemon is slow, the queue \
            is full, and the next connect fails at once with EAGAIN. runc then tries the private socket of systemd, and \
            fails as well when that is full.",
        versions: "systemd before 254, Linux before 5.4 (somaxconn was 128); runc 1.4.0 tries seven times",
        symptoms: &[
            "dbus connection failed: resource temporarily unavailable",
            "creating sandboxes fails at once, and only in bursts",
        ],
        evidence: &[
            "connect(2) to the bus, or to /run/systemd/private, failed with EAGAIN while plegtrace observed",
        ],
        excluded_by: &[
            "a connection waits to be accepted for 5 s: the bus daemon does not run (D14), or is busy (D9)",
        ],
        next: &[
            "`ss -xl | grep -e dbus -e private`: Recv-Q is the length of the queue, Send-Q its limit",
            "raise net.core.somaxconn, and restart fewer pods at once; upgrade runc to 1.4 or later",
        ],
        trap: "Do not restart the bus: that empties the queue and cuts every service off from it; the next burst fills \
            it again.",
        sources: &["opencontainers/cgroups PR 45", "cri-o PR 4921", "net/unix/af_unix.c"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    // Where connections also wait, what the daemon does says more.
    if bus::stalls(scene, BusParty::Daemon).next().is_some() {
        return Vec::new();
    }
    let doubt = "whether it was a burst, or the daemon did not accept, is not seen";
    let finding = |row| {
        let what = "too many connections wait to be accepted";
        bus::refused(&RULE, row, what).doubted(doubt).advise(RULE.page.next.iter().copied())
    };
    bus::refusals(scene, |error| error == FULL).map(finding).collect()
}
