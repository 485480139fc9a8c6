//! The calls of a real runc to a real systemd over D-Bus: each that the bus has seen, and no other, by the word of `busctl`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::{Attach, Settings};
use plegtrace::correlate::BusRow;
use plegtrace::decode::{BusCall, BusKind};
use serde_json::Value;

use crate::container::{Container, Rootfs};
use crate::observation::{self, Observation};
use crate::wait::{self, BUDGET};

const CONTAINERS: u32 = 3;
/// The name of systemd on the bus.
const SYSTEMD: &str = "org.freedesktop.systemd1";

/// Calls by interface and method.
type Counts = BTreeMap<(String, String), u64>;
/// Calls by method, serial and serial of the answer, as systemd counts what it sends; 0 of answers of the bus itself, which numbers
/// them for each connection anew.
type Serials = BTreeMap<(String, u64, u64), u64>;

/// Starts and ends containers while both observe.
///
/// # Errors
/// When the two disagree, or there was nothing to see.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let settings =
        Settings { uprobes: false, parks: false, wire: true, ..observation::settings(Attach::Auto) };
    let observation = Observation::begin_with(settings)?;
    let monitor = Monitor::start()?;
    for number in 0..CONTAINERS {
        let mut container = Container::ask(&rootfs, &format!("c{number}"))?;
        container.started()?;
        container.remove()?;
    }
    let Heard { counts: theirs, serials, last: serial } = monitor.finish()?;
    let (snapshot, seen) = observation.end()?;
    let mut ours = Counts::new();
    for row in snapshot.bus.rows.iter().filter(|row| row.kind == BusKind::Call) {
        let calls = row.latency.count() + row.unanswered + row.open;
        *ours.entry((row.names.interface.clone(), row.names.member.clone())).or_default() += calls;
    }
    let losses: Vec<_> = snapshot.real_losses().collect();
    if observation::runs_are_left_out(&snapshot)? {
        // What is missing is told, and nothing is there that was not.
        let too_many =
            |(call, count): (&(String, String), &u64)| theirs.get(call).is_none_or(|seen| count > seen);
        ensure!(!ours.iter().any(too_many), "we saw {ours:?}, the bus {theirs:?}");
        return Ok(format!("{} of {} calls, and {losses:?}", sum(&ours), sum(&theirs)));
    }
    ensure!(losses.is_empty(), "{losses:?}");
    ensure!(ours == theirs, "we saw {ours:?}, the bus {theirs:?}");
    let numbered = numbered(&seen.bus_calls);
    ensure!(numbered == serials, "we saw the serials {numbered:?}, the bus {serials:?}");
    let unanswered: u64 = snapshot.bus.rows.iter().map(|row| row.unanswered + row.open).sum();
    ensure!(unanswered == 0, "{unanswered} calls without an answer: {:?}", snapshot.bus.rows);
    let started: u64 =
        ours.iter().filter(|((_, member), _)| member == "StartTransientUnit").map(|(_, count)| count).sum();
    ensure!(started == u64::from(CONTAINERS), "{started} units were started: {ours:?}");
    let seen = snapshot.bus.systemd_serials.map(|seen| u64::from(seen.last.0));
    ensure!(seen == Some(serial), "systemd's last serial: we saw {seen:?}, the bus {serial}");
    // runc has heard of each job that it is done. A scope that is empty is gone before it can be stopped: that is an error.
    let of = |kind: BusKind, made: fn(&BusRow) -> u64| -> Counts {
        let rows = snapshot.bus.rows.iter().filter(|row| row.kind == kind && begins_job(&row.names.member));
        let counts = rows.map(|row| ((row.names.interface.clone(), row.names.member.clone()), made(row)));
        counts.filter(|(_, count)| *count > 0).collect()
    };
    let begun = of(BusKind::Call, |row| row.latency.count() - row.errors);
    let done = of(BusKind::Job, |row| row.latency.count());
    ensure!(done == begun, "of the jobs {begun:?} these are done: {done:?}");
    Ok(format!("{} calls of {} methods, {} jobs", sum(&ours), ours.len(), sum(&done)))
}

fn numbered(calls: &[BusCall]) -> Serials {
    let mut serials = Serials::new();
    for call in calls.iter().filter(|call| call.kind == BusKind::Call) {
        let of_systemd = call.names.destination == SYSTEMD;
        let answer = if of_systemd { u64::from(call.answer_serial) } else { 0 };
        *serials.entry((call.names.member.clone(), u64::from(call.id.serial), answer)).or_default() += 1;
    }
    serials
}

fn begins_job(member: &str) -> bool {
    ["StartTransientUnit", "StopUnit"].contains(&member)
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// What the bus has seen.
pub(super) struct Heard {
    pub(super) counts: Counts,
    serials: Serials,
    /// The highest serial of systemd's answers.
    last: u64,
}

/// `busctl monitor`, writing to a file.
pub(super) struct Monitor {
    child: Child,
    file: &'static Path,
}

impl Monitor {
    pub(super) fn start() -> Result<Self> {
        let file = Path::new("/var/tmp/busctl.json");
        let mut command = Command::new("busctl");
        command.args(["monitor", "--json=short"]).stdin(Stdio::null()).stdout(File::create(file)?);
        let monitor = Self { child: command.stderr(Stdio::null()).spawn().context("no busctl")?, file };
        // It sees itself become a monitor only if somebody calls after that.
        monitor.heard("before")?;
        Ok(monitor)
    }

    /// Waits until a call that is made now was seen, and with it all that were made before.
    fn heard(&self, mark: &str) -> Result<()> {
        let name = format!("plegtrace.{mark}");
        let mut call = vec!["call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"];
        call.extend(["NameHasOwner", "s", &name]);
        wait::until("busctl to see a call", BUDGET, || {
            wait::output(Command::new("busctl").args(&call), BUDGET)?;
            Ok(fs::read_to_string(self.file)?.contains(&name).then_some(()))
        })
    }

    fn stop(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// The calls of those who started units named as our containers, and of those who wait for jobs.
    pub(super) fn finish(mut self) -> Result<Heard> {
        self.heard("after")?;
        self.stop()?;
        let text = fs::read_to_string(self.file)?;
        // The last line may have been cut.
        let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let calls = || messages.iter().filter(|it| it["type"] == "method_call");
        let word = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
        // runc has a second connection, on which it only hears that jobs of systemd are done.
        let is_ours = |it: &&Value| {
            let payload = it["payload"].to_string();
            payload.contains("plegtrace-") || it["member"] == "AddMatch" && payload.contains("JobRemoved")
        };
        let senders: Vec<String> = calls().filter(is_ours).map(|it| word(it, "sender")).collect();
        let (mut counts, mut serials) = (Counts::new(), Serials::new());
        for call in calls().filter(|it| senders.contains(&word(it, "sender"))) {
            let number = |it: &Value, name: &str| it[name].as_u64().unwrap_or_default();
            let (sender, serial) = (word(call, "sender"), number(call, "cookie"));
            let answers =
                |it: &&Value| word(it, "destination") == sender && number(it, "reply_cookie") == serial;
            let of_systemd = word(call, "destination") == SYSTEMD;
            let answer = messages.iter().find(answers).filter(|_| of_systemd);
            let answer = answer.map_or(0, |it| number(it, "cookie"));
            *counts.entry((word(call, "interface"), word(call, "member"))).or_default() += 1;
            *serials.entry((word(call, "member"), serial, answer)).or_default() += 1;
        }
        ensure!(!counts.is_empty(), "busctl saw no call in {} messages", messages.len());
        // The bus answers under its own name, systemd under a number.
        let of_systemd = |it: &&Value| {
            it["type"] == "method_return"
                && word(it, "sender").starts_with(':')
                && senders.contains(&word(it, "destination"))
        };
        let answers = messages.iter().filter(of_systemd).filter_map(|it| it["cookie"].as_u64());
        let last = answers.max().context("systemd has answered nothing")?;
        Ok(Heard { counts, serials, last })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It is over already where nothing failed.
        drop(self.stop());
        drop(fs::remove_file(self.file));
    }
}
