//! [`BusWaits`]: calls over D-Bus that no probe has seen begin, by the goroutines that wait for them. runc, kubelet and containerd call
//! systemd by the same libraries (coreos/go-systemd on godbus/dbus), whose functions say what is asked.

use crate::{
    decode::{BusKind, BusNames},
    input::{GoroutinesFact, SYSTEMD, THE_BUS},
};

/// Calls that are kept.
const MAX_WAITS: usize = 16;
/// What systemd is asked by its methods, and by its properties.
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// A goroutine that waits for an answer over D-Bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BusWait {
    pub(super) pid: u32,
    goid: u64,
    pub(super) kind: BusKind,
    pub(super) names: BusNames,
    /// When it was found first.
    pub(super) since_ns: u64,
}

/// Those of the last look at each process.
#[derive(Debug, Default)]
pub(super) struct BusWaits(Vec<BusWait>);

impl BusWaits {
    /// The goroutines of a process were read: what waits as before has done so since then.
    pub(super) fn read(&mut self, look: &GoroutinesFact) {
        let (known, others) = self.0.drain(..).partition(|wait: &BusWait| wait.pid == look.pid);
        let known: Vec<BusWait> = known;
        self.0 = others;
        for group in &look.groups {
            let Some((kind, names)) = waits_for(&group.frames) else { continue };
            for goid in &group.goids {
                let new =
                    BusWait { pid: look.pid, goid: *goid, kind, names: names.clone(), since_ns: look.at_ns };
                let same =
                    |old: &&BusWait| (old.goid, old.kind, &old.names) == (new.goid, new.kind, &new.names);
                let since_ns = known.iter().find(same).map_or(new.since_ns, |old| old.since_ns);
                if self.0.len() < MAX_WAITS {
                    self.0.push(BusWait { since_ns, ..new });
                }
            }
        }
    }

    /// Does anybody wait?
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// All of them, after those are left out that are over.
    pub(super) fn still(&mut self, is_over: impl Fn(&BusWait) -> bool) -> Vec<BusWait> {
        self.0.retain(|wait| !is_over(wait));
        self.0.clone()
    }
}

/// What a goroutine with these functions, innermost first, waits for.
fn waits_for(frames: &[String]) -> Option<(BusKind, BusNames)> {
    let library = |frame: &str, function: &str| frame.contains("godbus/dbus") && frame.contains(function);
    if let Some(at) = frames.iter().position(|frame| library(frame, ".(*Object).")) {
        return Some((BusKind::Call, names(&frames[at + 1..])));
    }
    if frames.iter().any(|frame| library(frame, ".(*Conn).Auth") && frame.ends_with(".Auth")) {
        return Some((BusKind::Connection, BusNames::default()));
    }
    // runc waits for the job itself (libcontainer/cgroups/systemd/common.go; github.com/opencontainers/cgroups since runc 1.3).
    let waiter = frames.iter().find(|frame| frame.contains("cgroups/systemd."))?;
    let member = match waiter.rsplit('.').next()? {
        "startUnit" => "StartTransientUnit",
        "stopUnit" => "StopUnit",
        _ => return None,
    };
    Some((BusKind::Job, systemd(MANAGER, member)))
}

/// What is called, from the functions outside of the call itself; empty texts where they do not say.
fn names(outer: &[String]) -> BusNames {
    let library = |frame: &&String| frame.contains("godbus/dbus");
    if outer.iter().take_while(library).any(|frame| frame.ends_with(".(*Conn).Hello")) {
        let bus = THE_BUS.to_owned();
        return BusNames { interface: bus.clone(), member: "Hello".to_owned(), destination: bus };
    }
    let of_systemd = |frame: &&String| frame.contains("go-systemd") && frame.contains("/dbus.(*Conn).");
    let outermost = outer.iter().skip_while(library).take_while(of_systemd).last();
    let Some(function) = outermost.and_then(|frame| frame.rsplit('.').next()) else {
        return BusNames::default();
    };
    match function.strip_suffix("Context").unwrap_or(function) {
        property if property.contains("Propert") && !property.starts_with("Set") => {
            systemd(PROPERTIES, "Get")
        }
        method => systemd(MANAGER, method),
    }
}

fn systemd(interface: &str, member: &str) -> BusNames {
    BusNames { interface: interface.to_owned(), member: member.to_owned(), destination: SYSTEMD.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Component, GoroutineGroup};

    const START: [&str; 5] = [
        "github.com/godbus/dbus/v5.(*Object).CallWithContext",
        "github.com/coreos/go-systemd/v22/dbus.(*Conn).startJob",
        "github.com/coreos/go-systemd/v22/dbus.(*Conn).StartTransientUnitContext",
        "github.com/opencontainers/runc/libcontainer/cgroups/systemd.startUnit.func1",
        "github.com/opencontainers/runc/libcontainer/cgroups/systemd.startUnit",
    ];

    fn seen(frames: &[&str]) -> Option<(BusKind, String)> {
        let frames: Vec<String> = frames.iter().map(|frame| (*frame).to_owned()).collect();
        waits_for(&frames).map(|(kind, names)| (kind, format!("{} {}", names.destination, names.member)))
    }

    /// The functions say what is asked, and of whom; a client that reads, or does something else, asks nothing.
    #[test]
    fn by_functions() {
        let call = |text: &str| Some((BusKind::Call, text.to_owned()));
        assert_eq!(seen(&START), call("org.freedesktop.systemd1 StartTransientUnit"));
        let hello = ["github.com/godbus/dbus.(*Object).Call", "github.com/godbus/dbus.(*Conn).Hello"];
        assert_eq!(seen(&hello), call("org.freedesktop.DBus Hello"));
        let version = [
            "github.com/godbus/dbus.(*Object).CallWithContext",
            "github.com/godbus/dbus.(*Object).GetProperty",
            "github.com/coreos/go-systemd/dbus.(*Conn).GetManagerProperty",
        ];
        assert_eq!(seen(&version), call("org.freedesktop.systemd1 Get"));
        let set = [START[0], "github.com/coreos/go-systemd/dbus.(*Conn).SetUnitPropertiesContext"];
        assert_eq!(seen(&set), call("org.freedesktop.systemd1 SetUnitProperties"));
        assert_eq!(seen(&[START[0], "example.org/agent.ask"]), call(" "), "not known");
        let auth = [
            "internal/poll.(*FD).Read",
            "github.com/godbus/dbus.authReadLine",
            "github.com/godbus/dbus.(*Conn).Auth",
        ];
        assert_eq!(seen(&auth), Some((BusKind::Connection, " ".to_owned())));
        let job = |text: &str| Some((BusKind::Job, format!("org.freedesktop.systemd1 {text}")));
        assert_eq!(seen(&[START[4], "main.main"]), job("StartTransientUnit"));
        assert_eq!(seen(&["github.com/opencontainers/cgroups/systemd.stopUnit"]), job("StopUnit"));
        let reads = ["github.com/godbus/dbus.(*Conn).inWorker", "github.com/godbus/dbus.(*Conn).Auth.func1"];
        for other in [&reads[..], &["syscall.read"], &["example.org/cgroups/systemd.(*Manager).Set"]] {
            assert_eq!(seen(other), None);
        }
    }

    fn look(at_ns: u64, pid: u32, goids: &[u64], frames: &[&str]) -> GoroutinesFact {
        let group = GoroutineGroup {
            count: u32::try_from(goids.len()).unwrap(),
            goids: goids.to_vec(),
            fingerprints: Vec::new(),
            state: "waiting".to_owned(),
            wait_reason: None,
            parked_by_ns: None,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            broken: None,
            subjects: Vec::new(),
        };
        GoroutinesFact {
            at_ns,
            took_ns: 1,
            pid,
            component: Component::Runc,
            go_version: String::new(),
            total: 1,
            unread: 0,
            groups: vec![group],
            groups_left_out: 0,
            last_list_ns: None,
        }
    }

    /// One that waits as before has waited since it was found; the look at another process takes nothing away.
    #[test]
    fn since_when() {
        let mut waits = BusWaits::default();
        waits.read(&look(100, 7, &[1], &START));
        waits.read(&look(150, 8, &[1], &START));
        waits.read(&look(200, 7, &[1, 2], &START));
        let since = |waits: &mut BusWaits| {
            let all = waits.still(|wait| wait.pid == 8);
            all.iter().map(|wait| (wait.pid, wait.goid, wait.since_ns)).collect::<Vec<_>>()
        };
        assert_eq!(since(&mut waits), [(7, 1, 100), (7, 2, 200)], "8 is over");
        waits.read(&look(300, 7, &[1], &START[4..]));
        assert_eq!(since(&mut waits), [(7, 1, 300)], "now it waits for the job");
        waits.read(&look(400, 7, &[1], &["main.main"]));
        assert_eq!(since(&mut waits), []);
    }

    /// A process with ever so many goroutines.
    #[test]
    fn bounds() {
        let mut waits = BusWaits::default();
        waits.read(&look(1, 7, &(0..100).collect::<Vec<_>>(), &START));
        assert_eq!(waits.still(|_| false).len(), MAX_WAITS);
    }
}
