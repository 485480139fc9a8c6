//! Bounded reads of small files.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use crate::target::{MAX_CMDLINE, Stat, open_in, parse_stat, read_whole, split_args};

/// The texts of /proc that are read whole are far below this.
const MAX_TEXT: u64 = 64 << 10;
const MAX_LOCKS: u64 = 4 << 20;
const MAX_MOUNTINFO: u64 = 16 << 20;
const MAX_ENVIRONMENT: u64 = 128 << 10;

/// Bytes of a file, up to a bound.
pub(super) fn bytes(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_whole(File::open(path)?, max)
}

/// A text of the kernel; hostile parts of it may be anything.
pub(super) fn text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path, MAX_TEXT)?).into_owned())
}

/// A regular file of the node's disk; what took its place is never opened.
pub(super) fn file(root: &Path, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_whole(open_in(root, path)?, max)
}

/// Mounts of a process.
pub(super) fn mountinfo(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path, MAX_MOUNTINFO)?).into_owned())
}

/// File locks of the node.
pub(super) fn locks(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path, MAX_LOCKS)?).into_owned())
}

/// `stat` of a process or thread.
pub(super) fn stat(dir: &Path) -> Option<Stat> {
    parse_stat(&text(&dir.join("stat")).ok()?)
}

/// The command line; waits for the memory lock.
pub(super) fn arguments(process: &Path) -> io::Result<Vec<String>> {
    Ok(split_args(&bytes(&process.join("cmdline"), MAX_CMDLINE)?))
}

/// The environment; waits for the memory lock.
pub(super) fn environment(process: &Path) -> io::Result<Vec<String>> {
    Ok(split_args(&bytes(&process.join("environ"), MAX_ENVIRONMENT)?))
}

/// The text of a link; never follows it.
pub(super) fn link(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.to_string_lossy().into_owned())
}

/// Numbers among the names in a directory, ascending; `most` of them.
pub(super) fn numbers(dir: &Path, most: usize) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = names.take(most).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
