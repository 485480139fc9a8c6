//! [`FileId`]: is the file about to be probed still the file that was analysed?
//!
//! A wrong probe offset kills the target, and files are replaced under running processes by every package upgrade.
//! Inode numbers are reused and overlay siblings share them, so size, modification time and a hash of the parts that
//! differ between builds (ELF headers with the build id, function table header) belong to the identity.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{RefuseReason, SiteRefusal};
use super::functions::Functions;
use super::program::{Lease, path_of_open};
use super::site::SiteCheck;
use super::source::ByteSource;

/// Bytes hashed at the start of the file: headers and the notes with the build id.
const HEAD: u64 = 4096;
/// Bytes hashed from the start of the function table.
const TABLE: u64 = 4096;

/// Identity of an executable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// `st_dev` as user space encodes it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, CLOCK_REALTIME.
    pub mtime_ns: i128,
    /// Hash of the headers and the start of the function table.
    pub content: u64,
}

impl FileId {
    /// Identity of an open source whose function table begins at this file offset.
    pub(crate) fn read(source: &ByteSource, table_offset: u64) -> Result<Self, RefuseReason> {
        let mut content = Fnv::default();
        content.add(&source.read_up_to(0, HEAD, "the ELF header")?);
        content.add(&source.read_up_to(table_offset, TABLE, "the pclntab header")?);
        let mut id = Self { dev: 0, ino: 0, size: source.len(), mtime_ns: 0, content: content.0 };
        if let Some(file) = source.file() {
            let meta = file.metadata()?;
            (id.dev, id.ino, id.size) = (meta.dev(), meta.ino(), meta.size());
            id.mtime_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        }
        Ok(id)
    }

    /// The device as the kernel keeps it in `super_block.s_dev`: 12 bits of major, 20 bits of minor.
    ///
    /// Source: `MKDEV` in include/linux/kdev_t.h. On btrfs and some overlays `st_dev` is not `s_dev` at all.
    #[must_use]
    pub const fn kernel_dev(&self) -> u64 {
        let (major, minor) = (libc::major(self.dev) as u64, libc::minor(self.dev) as u64);
        major << 20 | minor
    }
}

/// A file that was analysed, still open: later reads see it even when its path is replaced.
#[derive(Clone, Debug)]
pub struct AnalysedFile {
    pub(crate) source: Arc<ByteSource>,
    pub(crate) id: FileId,
    pub(crate) table_offset: u64,
    pub(crate) functions: Option<Arc<Functions>>,
}

impl AnalysedFile {
    /// Any file.
    #[cfg(test)]
    pub(crate) fn any(file: File) -> Result<Self, RefuseReason> {
        let source = ByteSource::from_file(file)?;
        Ok(Self { id: FileId::read(&source, 0)?, source: Arc::new(source), table_offset: 0, functions: None })
    }

    /// Is the file at `path` the one that was analysed?
    ///
    /// # Errors
    /// [`RefuseReason`] when it cannot be read any more.
    pub fn still_same(&self, path: &Path) -> Result<bool, RefuseReason> {
        let source = ByteSource::from_file(open(path)?)?;
        Ok(FileId::read(&source, self.table_offset)? == self.id)
    }

    /// A path that leads to it, whatever is at its own path by now; `None` for bytes in memory.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.source.file().map(path_of_open)
    }

    /// Its functions, unless something else was written to it since.
    #[must_use]
    pub fn functions(&self) -> Option<&Functions> {
        self.functions.as_deref().filter(|functions| functions.is_unchanged().is_ok_and(|same| same))
    }

    /// A lease on it.
    ///
    /// # Errors
    /// As [`Lease::take`].
    pub fn lease(&self) -> io::Result<Lease> {
        Lease::take(self.source.file().ok_or(io::ErrorKind::Unsupported)?)
    }

    /// Compares the bytes at a site with the open file once more.
    ///
    /// # Errors
    /// [`SiteRefusal::Changed`].
    pub fn verify(&self, check: &SiteCheck) -> Result<(), SiteRefusal> {
        check.verify(&self.source)
    }
}

/// Opens something that is expected to be an executable file, without following a FIFO into a wait.
///
/// # Errors
/// [`RefuseReason::Io`] when it cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File, RefuseReason> {
    Ok(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?)
}

/// Is the executable of a process still at the path it was started from?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// The same file.
    Same,
    /// No file is there any more.
    Deleted,
    /// Another file is there: the process runs an older version.
    Replaced,
    /// Cannot be told (no permission, or the process is gone).
    Unknown,
}

/// Compares `/proc/PID/exe` with what is at its path in the mount namespace of the process.
#[must_use]
pub fn on_disk(proc_pid: &Path) -> OnDisk {
    let running = match fs::metadata(proc_pid.join("exe")) {
        Ok(meta) => meta,
        Err(_) => return OnDisk::Unknown,
    };
    let Some(path) = exe_path(proc_pid) else { return OnDisk::Unknown };
    let inside = proc_pid.join("root").join(path.strip_prefix("/").unwrap_or(&path));
    match fs::metadata(inside) {
        Ok(there) if (there.dev(), there.ino()) == (running.dev(), running.ino()) => OnDisk::Same,
        Ok(_) => OnDisk::Replaced,
        Err(error) if error.kind() == io::ErrorKind::NotFound => OnDisk::Deleted,
        Err(_) => OnDisk::Unknown,
    }
}

/// The path behind `/proc/PID/exe` without the mark of a deleted file.
#[must_use]
pub fn exe_path(proc_pid: &Path) -> Option<PathBuf> {
    let link = fs::read_link(proc_pid.join("exe")).ok()?;
    let text = link.to_string_lossy();
    Some(text.strip_suffix(" (deleted)").map_or_else(|| link.clone(), PathBuf::from))
}

/// Path of the executable of a running process, in its own mount namespace.
#[must_use]
pub(crate) fn exe_of(pid: u32) -> Option<PathBuf> {
    exe_path(&Path::new("/proc").join(pid.to_string()))
}

/// 64-bit FNV-1a: stable between runs, which the hashers of the standard library do not promise.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Path of the program that a process runs, good for opening and for attaching even when the file was deleted.
#[must_use]
pub fn exe_link(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed byte in the headers or the table changes the identity.
    #[test]
    fn content_counts() {
        let id = |bytes: Vec<u8>| FileId::read(&ByteSource::from_bytes(bytes).unwrap(), 8192).unwrap();
        let plain = id(vec![0; 20_000]);
        assert_eq!(plain, id(vec![0; 20_000]));
        for at in [0, 4095, 8192, 12_287] {
            let mut bytes = vec![0; 20_000];
            bytes[at] = 1;
            assert_ne!(plain, id(bytes), "byte {at}");
        }
        assert_ne!(plain.size, id(vec![0; 20_001]).size);
    }

    /// The kernel keeps 20 bits of minor number below the major.
    #[test]
    fn kernel_device_number() {
        let id = FileId { dev: libc::makedev(254, 0x12345), ino: 1, size: 0, mtime_ns: 0, content: 0 };
        assert_eq!(id.kernel_dev(), 254 << 20 | 0x12345);
    }

    /// A replaced or removed executable is told from the running one.
    #[test]
    fn replaced_on_disk() {
        let tree = tempfile::tempdir().unwrap();
        let proc_pid = tree.path().join("proc/7");
        fs::create_dir_all(proc_pid.join("root/bin")).unwrap();
        let exe = proc_pid.join("root/bin/kubelet");
        fs::write(&exe, "a").unwrap();
        let held = tree.path().join("held");
        fs::hard_link(&exe, &held).unwrap();
        // The link of a fake tree points into the tree; its own root is below it.
        std::os::unix::fs::symlink("/bin/kubelet", proc_pid.join("exe")).unwrap();
        assert_eq!(exe_path(&proc_pid), Some(PathBuf::from("/bin/kubelet")));
        assert_eq!(on_disk(Path::new("/proc/self")), OnDisk::Same);
        assert_eq!(on_disk(&tree.path().join("proc/8")), OnDisk::Unknown);
    }
}
