//! A client of systemd that reads at the same moment, on two connections, that it has begun a job and that the job is done.

use std::fs;
use std::hint;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::Result;
use plegtrace::decode::BusKind;
use plegtrace_lab::{Containerd, process};
use zbus::message::Message;
use zbus::zvariant::OwnedObjectPath;

use super::kit::{LIMIT, MANAGER, SYSTEMD};
use super::{assert_nothing_is_lost, start, watch};

/// Where the client of [`asks_for_jobs`] finds its bus.
const BUS: &str = "PLEGTRACE_LAB_JOBS";
/// As many as have room in the ring, both records of each, when nobody empties it.
const JOBS: u32 = 1_000;
/// Turns by which one reads later than the other, at most.
const TURNS: u32 = 64;

#[test]
fn jobs_are_done_once() {
    each_job_is_done_once(&start());
}

/// Each job is done once and none stays open, whichever of the two is read first.
pub(in super::super) fn each_job_is_done_once(containerd: &Containerd) {
    let watching = watch();
    let dir = containerd.scratch().path().join("jobs");
    fs::create_dir_all(dir.join("dbus")).unwrap();
    // Who asks systemd is known by its name.
    let runc = dir.join("runc");
    symlink(std::env::current_exe().unwrap(), &runc).unwrap();
    let mut command = Command::new(runc);
    command.args(["bus::jobs::asks_for_jobs", "--exact", "--ignored", "--nocapture"]).env(BUS, &dir);
    let mut client = containerd.scratch().spawn(&mut command, &dir.join("log")).unwrap();
    let is_done = process::wait(&mut client, LIMIT).is_ok_and(|status| status.success());
    let said = fs::read_to_string(dir.join("log")).unwrap();
    assert!(is_done && said.contains("1 passed"), "{said}");

    let (snapshot, seen) = watching.interrupt().unwrap();
    assert_nothing_is_lost(&snapshot);
    assert_eq!(seen.undecoded, 0);
    let rows = || snapshot.bus.rows.iter().filter(|row| row.names.member == "StopUnit");
    let count =
        |kind: BusKind| rows().filter(|row| row.kind == kind).map(|row| row.latency.count()).sum::<u64>();
    let [calls, jobs] = [BusKind::Call, BusKind::Job].map(count);
    assert_eq!([calls, jobs], [u64::from(JOBS); 2], "calls answered, and jobs done");
    assert!(snapshot.bus.open.is_empty(), "{:?}", snapshot.bus.open);
}

/// A connection to a bus, and its other end.
fn connect(socket: &Path, listener: &UnixListener) -> Result<(UnixStream, UnixStream)> {
    let ours = UnixStream::connect(socket)?;
    Ok((ours, listener.accept()?.0))
}

/// A call, its answer, and the signal that its job is done.
fn messages(job: u32) -> Result<[Message; 3]> {
    let interface = format!("{SYSTEMD}.Manager");
    let made = OwnedObjectPath::try_from(format!("{MANAGER}/job/{job}"))?;
    let call =
        Message::method_call(MANAGER, "StopUnit")?.interface(interface.as_str())?.destination(SYSTEMD)?;
    let call = call.build(&("a.scope", "replace"))?;
    let answer = Message::method_return(&call.header())?.build(&made)?;
    let done = Message::signal(MANAGER, interface.as_str(), "JobRemoved")?
        .build(&(job, &made, "a.scope", "done"))?;
    Ok([call, answer, done])
}

/// Waits until it is the turn of this number.
fn wait_for(turn: &AtomicU32, number: u32) {
    while turn.load(Ordering::Acquire) < number {
        hint::spin_loop();
    }
}

/// The client, and whoever answers it: no test by itself.
#[test]
#[ignore = "asks for another test, under the name of runc"]
fn asks_for_jobs() {
    let Some(dir) = std::env::var_os(BUS).map(PathBuf::from) else { return };
    let socket = dir.join("dbus/system_bus_socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let (mut calls, mut systemd) = connect(&socket, &listener).unwrap();
    let (mut signals, mut bus) = connect(&socket, &listener).unwrap();
    let [written, read] = [AtomicU32::new(0), AtomicU32::new(0)];
    let mut buffers = [[0; 4096]; 2];
    let [mine, other] = &mut buffers;
    thread::scope(|scope| {
        scope.spawn(|| {
            for job in 1..=JOBS {
                wait_for(&written, job);
                assert!(signals.read(other).unwrap() > 0);
                read.store(job, Ordering::Release);
            }
        });
        for job in 1..=JOBS {
            let [call, answer, done] = messages(job).unwrap();
            calls.write_all(call.data()).unwrap();
            assert_eq!(systemd.read(mine).unwrap(), call.data().len());
            systemd.write_all(answer.data()).unwrap();
            bus.write_all(done.data()).unwrap();
            written.store(job, Ordering::Release);
            (0..job % TURNS).for_each(|_| hint::spin_loop());
            assert_eq!(calls.read(mine).unwrap(), answer.data().len());
            wait_for(&read, job);
        }
    });
}
