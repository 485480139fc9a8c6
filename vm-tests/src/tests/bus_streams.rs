//! What the real runc of this release and its systemd say to each other over D-Bus, byte by byte: each message is read, and the calls
//! are those that `busctl` has seen. The bytes are printed (`VM-STREAM`), for `tests/golden/wire`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use plegtrace::wire::Side;

use super::bus_calls::Monitor;
use crate::container::{Container, Rootfs};
use crate::streams::{self, Chunk, Relay};

/// Where the system bus listens.
const BUS: &str = "/run/dbus/system_bus_socket";
/// runc names its units so, and has a second connection, on which it only hears that jobs of systemd are done.
const OURS: [&str; 2] = ["plegtrace-", "JobRemoved"];
/// Bytes of one line.
const LINE: usize = 256;

/// Starts and ends a container whose runc speaks to the bus through a relay.
///
/// # Errors
/// When a message is not read, or the calls are others.
pub fn run() -> Result<String> {
    let rootfs = Rootfs::make()?;
    let monitor = Monitor::start()?;
    let relay = Relay::insert(Path::new(BUS))?;
    let mut container = Container::ask(&rootfs, "streams")?;
    container.started()?;
    container.remove()?;
    let chunks = streams::of_those_who_say(relay.finish(), &OURS);
    let heard = monitor.finish()?;
    let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
    for ((_, member), count) in &heard.counts {
        *theirs.entry(member.clone()).or_default() += count;
    }
    let found = streams::read(&chunks);
    ensure!(found.lost == 0, "out of step {} times: {found:?}", found.lost);
    ensure!(found.calls == theirs, "we read {:?}, the bus {theirs:?}", found.calls);
    let calls: u64 = found.calls.values().sum();
    ensure!(found.answers == calls, "{} answers to {calls} calls", found.answers);
    print(&chunks, &theirs);
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    Ok(format!("{calls} calls of {} methods in {bytes} bytes", theirs.len()))
}

fn print(chunks: &[Chunk], calls: &BTreeMap<String, u64>) {
    for (number, Chunk { connection, side, bytes }) in chunks.iter().enumerate() {
        let side = if *side == Side::Client { "client" } else { "server" };
        for part in bytes.chunks(LINE) {
            let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("VM-STREAM {number} {connection} {side} {hex}");
        }
    }
    for (member, count) in calls {
        println!("VM-CALLS {member} {count}");
    }
}
