//! A capture as a file: the chunks in the order in which they were read, compressed, and beside them a text of how often
//! each method ended with each status, as the client or the runtime counted.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail, ensure};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use plegtrace::wire::Side;

use super::Protocol;

/// What a capture in the repository may weigh, bytes.
pub const MOST: usize = 64 << 10;
const MAGIC: &[u8] = b"plegwire1\n";

/// What one read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the connection.
    pub connection: usize,
    /// Who sent it.
    pub side: Side,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// How often each method ended with each status.
pub type Tally = BTreeMap<(String, u32), u64>;

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// All chunks of all connections.
    pub chunks: Vec<Chunk>,
    /// What went over them, by the book of the client or of the runtime.
    pub tally: Tally,
}

/// Where the captures lie.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/wire")
}

impl Capture {
    /// Writes it without the content of its messages: paths and names of the machine become zeros, their lengths stay.
    ///
    /// # Errors
    ///
    /// It is too long, or cannot be written.
    pub fn save(mut self, name: &str, protocol: Protocol) -> Result<()> {
        self.each_content(protocol, |byte| *byte = 0);
        self.save_whole(name)
    }

    /// Writes it as it is.
    ///
    /// # Errors
    ///
    /// It is too long, or cannot be written.
    pub fn save_whole(&self, name: &str) -> Result<()> {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::best());
        for Chunk { connection, side, bytes } in &self.chunks {
            let side = u8::from(*side == Side::Server);
            deflate.write_all(&[u8::try_from(*connection).context("too many connections")?, side])?;
            deflate.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
            deflate.write_all(bytes)?;
        }
        let file = [MAGIC, &deflate.finish()?].concat();
        ensure!(file.len() <= MOST, "the capture has {} bytes, {MOST} are allowed", file.len());
        fs::create_dir_all(folder()).context("cannot make the folder of captures")?;
        fs::write(folder().join(format!("{name}.bin")), file).context("cannot write the capture")?;
        let lines = self.tally.iter().map(|((method, status), count)| format!("{method} {status} {count}\n"));
        fs::write(folder().join(format!("{name}.txt")), lines.collect::<String>())
            .context("cannot write the tally")
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// There is none, or it is damaged.
    pub fn load(name: &str) -> Result<Capture> {
        let file = fs::read(folder().join(format!("{name}.bin"))).context("there is no such capture")?;
        let mut bytes = Vec::new();
        DeflateDecoder::new(file.strip_prefix(MAGIC).context("no capture")?).read_to_end(&mut bytes)?;
        let (mut rest, mut chunks) = (&bytes[..], Vec::new());
        while let [connection, side, a, b, c, d, more @ ..] = rest {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let (bytes, behind) = more.split_at_checked(length).context("the capture is cut")?;
            let side = if *side == 0 { Side::Client } else { Side::Server };
            chunks.push(Chunk { connection: usize::from(*connection), side, bytes: bytes.to_vec() });
            rest = behind;
        }
        let text = fs::read_to_string(folder().join(format!("{name}.txt")))?;
        let tally = text.lines().map(line).collect::<Result<_>>()?;
        Ok(Capture { chunks, tally })
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.connection + 1).max().unwrap_or(0)
    }

    /// Calls `with` for each byte of the content of each message.
    fn each_content(&mut self, protocol: Protocol, mut with: impl FnMut(&mut u8)) {
        for connection in 0..self.connections() {
            for side in [Side::Client, Side::Server] {
                self.change(connection, side, |stream| protocol.each_content(side, stream, &mut with));
            }
        }
    }

    /// Changes the bytes of one direction as a whole.
    fn change(&mut self, connection: usize, side: Side, change: impl FnOnce(&mut [u8])) {
        let of = |chunk: &Chunk| chunk.connection == connection && chunk.side == side;
        let mut stream: Vec<u8> =
            self.chunks.iter().filter(|chunk| of(chunk)).flat_map(|chunk| chunk.bytes.clone()).collect();
        change(&mut stream);
        let mut rest = &stream[..];
        for chunk in self.chunks.iter_mut().filter(|chunk| of(chunk)) {
            let (own, behind) = rest.split_at(chunk.bytes.len());
            chunk.bytes.copy_from_slice(own);
            rest = behind;
        }
    }

    /// Puts bytes that look like anything where messages were emptied; the same at each call.
    pub fn fill_messages(&mut self, protocol: Protocol) {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        self.each_content(protocol, |byte| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Many small values, as in frame headers.
            *byte = if state & 0x300 == 0 { state as u8 } else { state as u8 & 7 };
        });
    }
}

/// A method may have a space in it.
fn line(line: &str) -> Result<((String, u32), u64)> {
    let [count, status, method] = line.rsplitn(3, ' ').collect::<Vec<_>>()[..] else {
        bail!("no tally: {line}")
    };
    Ok(((method.to_owned(), status.parse()?), count.parse()?))
}
