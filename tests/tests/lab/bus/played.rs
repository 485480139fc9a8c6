//! Nodes in PID namespaces of their own, whose first process plays systemd on the node's bus.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use plegtrace_lab::{Containerd, process};

use super::kit::{self, Bus, LIMIT, Systemd, deaf_systemd};
use super::numbers::Numbers;

/// Where the node of [`plays_systemd`] is, and how its systemd behaves.
const PLAYED: &str = "PLEGTRACE_LAB_SYSTEMD";
/// Its bus is one of a dbus-broker.
const BROKERED: &str = "PLEGTRACE_LAB_BROKER";

/// Which program is the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Daemon {
    Dbus,
    Broker,
}

/// A node: a PID namespace with a bus, and a first process that plays systemd there.
pub(super) struct Played {
    pub(super) dir: PathBuf,
    unshare: Child,
    pub(super) systemd: u32,
    pub(super) daemon: u32,
}

impl Played {
    /// `behaves`: "willing" (answers, see [`kit::mute`]), "silent" (reads calls, answers none), "busy" (the same, and uses a processor), "deaf" (reads nothing),
    /// "endless" (answers, and no job is ever done), "finite" (answers once, with the last serial number, and then nobody) or "absent" (is not on the
    /// bus, which is to have it started).
    pub(super) fn start(
        containerd: &Containerd,
        daemon: Daemon,
        name: &str,
        behaves: &str,
    ) -> Result<Played> {
        let dir = containerd.scratch().path().join(name);
        fs::create_dir_all(&dir)?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--mount", "--fork", "--kill-child"]).arg(std::env::current_exe()?);
        command.args(["bus::played::plays_systemd", "--exact", "--ignored", "--nocapture"]);
        command.env(PLAYED, format!("{behaves}:{}", dir.display()));
        if daemon == Daemon::Broker {
            command.env(BROKERED, "1");
        }
        let unshare = containerd.scratch().spawn(&mut command, &dir.join("systemd.log"))?;
        process::wait_for("a systemd on its bus", LIMIT, || Ok(dir.join("ready").exists().then_some(())))
            .with_context(|| fs::read_to_string(dir.join("systemd.log")).unwrap_or_default())?;
        let child = |of: u32, name: &str| {
            let is_it =
                |pid: &u32| process::parent(*pid) == Some(of) && process::name(*pid).starts_with(name);
            process::all().into_iter().find(is_it)
        };
        let systemd = child(unshare.id(), "").context("no systemd")?;
        // The launcher starts the broker when it is there itself.
        let daemon = process::wait_for("a bus daemon", LIMIT, || {
            let launcher = child(systemd, "dbus-broker-lau");
            Ok(launcher.map_or_else(|| child(systemd, "dbus-daemon"), |it| child(it, "dbus-broker")))
        })?;
        Ok(Played { dir, unshare, systemd, daemon })
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// The first process of a node's PID namespace: no test by itself.
#[test]
#[ignore = "played for other tests, in a PID namespace of its own"]
fn plays_systemd() {
    let Some(played) = std::env::var_os(PLAYED) else { return };
    let played = played.into_string().unwrap();
    let (behaves, dir) = played.split_once(':').unwrap();
    let start = if std::env::var_os(BROKERED).is_some() { Bus::start_broker_here } else { Bus::start_here };
    if behaves == "absent" {
        kit::start_nobody(Path::new(dir)).unwrap();
    }
    let bus = start(Path::new(dir)).unwrap();
    let ready = || fs::write(Path::new(dir).join("ready"), "").unwrap();
    if behaves == "deaf" {
        let stream = deaf_systemd(&bus).unwrap();
        ready();
        assert!(stream.as_raw_fd() > 0);
        loop {
            std::thread::park();
        }
    }
    if behaves == "absent" {
        ready();
        loop {
            std::thread::park();
        }
    }
    let numbers = Numbers::default();
    let systemd = match behaves {
        "finite" => Systemd::start_numbered(&bus, &numbers).unwrap(),
        _ => Systemd::start(&bus).unwrap(),
    };
    match behaves {
        "willing" => {}
        "finite" => numbers.run_out(),
        "endless" => systemd.endless.store(true, Ordering::Relaxed),
        _ => systemd.silent.store(true, Ordering::Relaxed),
    }
    ready();
    loop {
        if behaves != "busy" {
            std::thread::park();
        }
    }
}
