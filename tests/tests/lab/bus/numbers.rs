//! Serial numbers near their end: between a systemd that is played and its bus, what it sends is numbered anew, up to the last number
//! that D-Bus has. What comes after that is not sent, as by a systemd before 242, whose library refuses it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;

/// Messages that are sent before the numbers have run out: that the first job of runc is done, and the answer with that job.
const LEFT: u64 = 2;
/// What a client says before its first message.
const BEGIN: &[u8] = b"BEGIN\r\n";
/// Bytes of a message that tell its length, and where its number is (D-Bus specification, "Message Format").
const FIXED: usize = 16;
const NUMBER: std::ops::Range<usize> = 8..12;

/// The number of the next message; 0: it keeps the one that it has.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// From now on there are numbers for a few messages only.
    pub(super) fn run_out(&self) {
        self.0.store(u64::from(u32::MAX) + 1 - LEFT, Ordering::SeqCst);
    }

    /// Listens for one client of the bus, whose messages are numbered so; returns the address.
    pub(super) fn listen(&self, bus: &Path) -> Result<String> {
        let socket = bus.with_extension("numbered");
        let (listener, numbers) = (UnixListener::bind(&socket)?, self.clone());
        let mut bus = UnixStream::connect(bus)?;
        thread::spawn(move || {
            let (client, _) = listener.accept()?;
            let (mut answers, mut to_client) = (bus.try_clone()?, client.try_clone()?);
            thread::spawn(move || io::copy(&mut answers, &mut to_client));
            numbers.pass_on(client, &mut bus)
        });
        Ok(format!("unix:path={}", socket.display()))
    }

    fn pass_on(&self, mut client: UnixStream, bus: &mut UnixStream) -> io::Result<()> {
        let mut said = Vec::new();
        while !said.ends_with(BEGIN) {
            let mut byte = [0];
            client.read_exact(&mut byte)?;
            bus.write_all(&byte)?;
            said.extend(byte);
        }
        loop {
            let mut message = vec![0; FIXED];
            client.read_exact(&mut message)?;
            message.resize(length(&message), 0);
            client.read_exact(&mut message[FIXED..])?;
            let last = u64::from(u32::MAX);
            let number = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |next| {
                (next > 0 && next <= last).then_some(next + 1)
            });
            match number {
                Ok(number) => message[NUMBER].copy_from_slice(&(number as u32).to_le_bytes()),
                Err(0) => {}
                Err(_) => continue,
            }
            bus.write_all(&message)?;
        }
    }
}

/// How long a little-endian message is, by its first bytes.
fn length(fixed: &[u8]) -> usize {
    let number =
        |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]) as usize;
    FIXED + number(12).next_multiple_of(8) + number(4)
}
