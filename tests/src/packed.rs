//! Recordings of live tests that the repository keeps: the records of each, packed. `cargo xtask bless --record` has them made, and only the
//! test that found its live report right keeps one.
//!
//! They are packed once more than a recording is: the looks at a node repeat each other over more than the 32 KiB that DEFLATE sees.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{Context as _, Result, ensure};
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use plegtrace::input::next_frame;
use plegtrace::recording::Encoder;
use tempfile::TempDir;

use crate::faults::stream::Stream;
use crate::recordings;

/// How the name of each file ends.
pub const SUFFIX: &str = ".records.br";
/// What a packed recording in the repository may weigh, bytes.
const MOST: usize = 512 << 10;
/// Brotli looks back over this power of two, bytes: over all of a recording.
const WINDOW: i32 = 23;
/// Set to `1`: tests of the lab keep what they record.
const KEEP: &str = "PLEGTRACE_KEEP_RECORDINGS";

/// Does anybody want to keep what the tests record?
#[must_use]
pub fn is_wanted() -> bool {
    env::var(KEEP).is_ok_and(|value| value == "1")
}

/// Where a recording is written while its observer observes, in a directory of its own, which goes with this: also when the fault was
/// over too early, or the test panics.
#[derive(Debug)]
pub struct Draft {
    file: PathBuf,
    _dir: TempDir,
}

impl Draft {
    fn new(stem: &str) -> io::Result<Self> {
        let dir = TempDir::with_prefix("plegtrace-recording-")?;
        Ok(Self { file: dir.path().join(stem), _dir: dir })
    }

    /// A place for a recording of this name; `None`: nobody wants to keep it.
    ///
    /// # Panics
    ///
    /// No directory can be made for it.
    #[must_use]
    pub fn wanted(stem: &str) -> Option<Self> {
        is_wanted().then(|| Self::new(stem).expect("a directory for a recording"))
    }

    /// The file, which is not made yet.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Keeps a recording as the file `to`, without the name of the kernel's build, and removes the original.
///
/// # Errors
///
/// It cannot be read or written, is too large, or names a home directory.
pub fn keep(recording: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a folder")?).context("cannot make the folder")?;
    recordings::anonymise(recording, fs::read_to_string("/proc/sys/kernel/osrelease")?.trim())?;
    recordings::has_no_home(recording)?;
    let packed = pack(recording)?;
    let length = packed.len();
    ensure!(length <= MOST, "{} would have {length} bytes, {MOST} are allowed", to.display());
    fs::write(to, packed).with_context(|| format!("cannot write {}", to.display()))?;
    fs::remove_file(recording).with_context(|| format!("cannot remove {}", recording.display()))
}

/// The records of a recording, one after the other, packed.
fn pack(recording: &Path) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    Stream::open(recording)?.frames().iter().for_each(|frame| all.extend_from_slice(&frame.bytes));
    let mut packed = Vec::new();
    let params =
        BrotliEncoderParams { lgwin: WINDOW, size_hint: all.len(), ..BrotliEncoderParams::default() };
    brotli::BrotliCompress(&mut all.as_slice(), &mut packed, &params)?;
    Ok(packed)
}

/// The records that [`keep`] has packed.
///
/// # Errors
///
/// They cannot be read, or are not what was packed.
pub fn stream(file: &Path) -> Result<Stream> {
    let source = fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut records = Vec::new();
    brotli::BrotliDecompress(&mut io::BufReader::new(source), &mut records)?;
    let (mut frames, mut rest) = (Vec::new(), Bytes::from(records));
    while !rest.is_empty() {
        frames.push(next_frame(&mut rest).with_context(|| format!("{} is damaged", file.display()))?);
    }
    Ok(Stream::of(frames))
}

/// The same, as a recording of today's format: for who has to read it as a user's. To make one takes ten times as long as [`stream`].
///
/// # Errors
///
/// As for [`stream`].
pub fn recording(file: &Path) -> Result<Vec<u8>> {
    let (mut encoder, mut whole) = (Encoder::new(), Encoder::header());
    for frame in stream(file)?.frames() {
        whole.extend(encoder.push(&frame.bytes).into_iter().flatten());
    }
    whole.extend(encoder.block().into_iter().flatten());
    whole.extend(encoder.end());
    Ok(whole)
}

/// The files in a folder that [`keep`] made, in the order of their names.
///
/// # Errors
///
/// The folder cannot be read.
pub fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.to_string_lossy().ends_with(SUFFIX));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing of a recording is left behind when nobody keeps it, not even after a panic.
    #[test]
    fn a_draft_goes() {
        let draft = Draft::new("idle").unwrap();
        let dir = draft.file().parent().unwrap().to_owned();
        fs::write(draft.file(), "half a recording").unwrap();
        let panicked = std::thread::spawn(move || {
            let _draft = draft;
            panic!("as a wrong report does");
        });
        assert!(panicked.join().is_err() && !dir.exists());
    }
}
