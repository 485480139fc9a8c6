//! What the innermost functions of a goroutine tell, whatever it works for.

use crate::correlate::go;

/// Functions of Go in which a goroutine asks a file system for something, most by a path.
const CALLS: [&str; 35] = [
    "os.Stat",
    "os.Lstat",
    "os.statNolog",
    "os.lstatNolog",
    "os.OpenFile",
    "os.openFileNolog",
    "os.Readlink",
    "os.Remove",
    "os.Mkdir",
    "os.(*File).readdir",
    "os.(*File).Readdirnames",
    "syscall.Stat",
    "syscall.Lstat",
    "syscall.Statfs",
    "golang.org/x/sys/unix.Stat",
    "golang.org/x/sys/unix.Statfs",
    "golang.org/x/sys/unix.Lstat",
    "os.rename",
    "os.Rename",
    "os.removeAll",
    "os.removeAllFrom",
    "os.Symlink",
    "os.Link",
    "os.chmod",
    "os.Chmod",
    "os.Chown",
    "os.Lchown",
    "os.Truncate",
    "os.StartProcess",
    "os.(*File).Write",
    "os.(*File).Sync",
    "syscall.Mount",
    "syscall.Unmount",
    "golang.org/x/sys/unix.Mount",
    "golang.org/x/sys/unix.Unmount",
];
/// Frames in which such a function is looked for.
const INNERMOST: usize = 8;
/// Are the innermost functions those of a lock? Older runtimes of Go give the same reason for other waits.
pub(super) fn is_at_lock(frames: &[String]) -> bool {
    frames.iter().take(6).any(|frame| go::is_lock(frame))
}

/// Is a goroutine in a call to a file system?
pub(super) fn is_file_call(frames: &[String]) -> bool {
    frames.iter().take(INNERMOST).any(|frame| CALLS.contains(&frame.as_str()))
        && frames.iter().take(3).any(|frame| frame.contains("yscall"))
}
