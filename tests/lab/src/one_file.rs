//! What file systems in user space (FUSE) with a single file have in common.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};

/// How long the kernel may keep what it knows of the file, which never changes.
pub(crate) const KEPT: Duration = Duration::from_secs(3600);
/// The file.
pub(crate) const FILE: INodeNo = INodeNo(2);

/// What there is to know of the file, which has so many bytes, or of its directory.
pub(crate) fn attributes(inode: INodeNo, size: u64) -> FileAttr {
    let is_file = inode == FILE;
    let size = if is_file { size } else { 0 };
    FileAttr {
        ino: inode,
        size,
        blocks: size.div_ceil(512),
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: if is_file { FileType::RegularFile } else { FileType::Directory },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
