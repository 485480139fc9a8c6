//! A system bus on which root has no connection left: a real runc is refused and takes systemd's private socket, its container
//! starts, and plegtrace says that connections are refused.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace::cli::Settings;
use plegtrace::diagnose::{Confidence, Severity, Verdict, diagnose};

use crate::container::{Container, Rootfs};
use crate::observation::{self, Observation};
use crate::stall;
use crate::wait::BUDGET;

const BUS: &str = "/run/dbus/system_bus_socket";
/// More than a bus allows one user: 256 (`max_connections_per_user` of dbus-daemon).
const MANY: usize = 1024;
/// So often at most, where the kernel leaves out runs of our programs: a refusal may be in one of them.
const TRIES: usize = 5;
/// Types of messages (D-Bus Specification, "Message Types").
const RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Takes all connections while a container starts.
///
/// # Errors
/// When the refusals are not told, or a stall is.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    for _ in 0..TRIES {
        if let Some(named) = once(&rootfs)? {
            return Ok(named);
        }
    }
    bail!("the kernel has left out the refusal {TRIES} times");
}

/// What is named; `None` when the kernel has left out what tells it, and that is told.
fn once(rootfs: &Rootfs) -> Result<Option<String>> {
    let observation = Observation::begin_with(Settings { to_the_end: true, ..stall::settings() })?;
    let taken = take_all()?;
    let mut container = Container::ask(rootfs, "refused")?;
    container.started()?;
    let (snapshot, _) = observation.end()?;
    let count = taken.len();
    drop(taken);
    container.remove()?;

    let diagnosis = diagnose(&snapshot);
    let named = stall::named(&diagnosis);
    if named.is_empty() && observation::runs_are_left_out(&snapshot)? {
        ensure!(diagnosis.verdict != Verdict::Healthy, "healthy, though runs were left out");
        return Ok(None);
    }
    let lost: Vec<_> = snapshot.real_losses().collect();
    ensure!(named == [("D5", None, Confidence::High)], "named {named:?}; lost {lost:?}; {:?}", snapshot.bus);
    let finding = &diagnosis.findings[0];
    ensure!(finding.severity == Severity::Notice, "{finding:?}");
    Ok(Some(format!("{count} connections, then: {}", finding.headline)))
}

/// Connections to the bus, as many as it allows.
fn take_all() -> Result<Vec<UnixStream>> {
    let mut taken = Vec::new();
    while taken.len() < MANY {
        match connect().with_context(|| format!("connection {}", taken.len() + 1))? {
            Some(connection) => taken.push(connection),
            None => return Ok(taken),
        }
    }
    bail!("the bus allows {MANY} connections and more");
}

/// One more connection; `None` when the bus refuses it.
fn connect() -> Result<Option<UnixStream>> {
    let mut stream = UnixStream::connect(BUS)?;
    stream.set_read_timeout(Some(BUDGET))?;
    stream.write_all(b"\0AUTH EXTERNAL 30\r\n")?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    ensure!(line.starts_with(b"OK "), "the bus says {:?}", String::from_utf8_lossy(&line));
    stream.write_all(b"BEGIN\r\n")?;
    stream.write_all(&hello())?;
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    match head[1] {
        RETURN => Ok(Some(stream)),
        ERROR => Ok(None),
        other => bail!("the bus answers Hello with a message of type {other}"),
    }
}

/// A call of `Hello` (D-Bus Specification, "Message Format"): path, interface, member and destination.
fn hello() -> Vec<u8> {
    let bus = "org.freedesktop.DBus";
    let fields = [(1, b'o', "/org/freedesktop/DBus"), (2, b's', bus), (3, b's', "Hello"), (6, b's', bus)];
    let mut header = Vec::new();
    for (code, signature, value) in fields {
        header.resize(header.len().next_multiple_of(8), 0);
        header.extend([code, 1, signature, 0]);
        header.extend(u32::try_from(value.len()).unwrap_or(0).to_le_bytes());
        header.extend(value.as_bytes());
        header.push(0);
    }
    let mut message = vec![b'l', 1, 0, 1];
    let words = [0, 1, u32::try_from(header.len()).unwrap_or(0)];
    message.extend(words.into_iter().flat_map(u32::to_le_bytes));
    message.extend(&header);
    message.resize(message.len().next_multiple_of(8), 0);
    message
}
