//! A `/proc` of a test's own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// The root of a machine that is not there.
pub(super) struct FakeTree(tempfile::TempDir);

impl FakeTree {
    /// No process, but the first one.
    pub(super) fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.process(1, "/sbin/init", "/sbin/init", 0)
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn dir(&self, pid: u32) -> PathBuf {
        self.root().join(format!("proc/{pid}"))
    }

    /// A process of a user, in the first pid namespace; it was started at its number.
    pub(super) fn process(self, pid: u32, exe: &str, args: &str, uid: u32) -> Self {
        let dir = self.dir(pid);
        fs::create_dir_all(dir.join("ns")).unwrap();
        fs::create_dir(dir.join("fd")).unwrap();
        let comm: String = exe.rsplit('/').next().unwrap().chars().take(15).collect();
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 9 0 {pid}00 1 2 3\n");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("status"), format!("Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")).unwrap();
        fs::write(dir.join("cmdline"), args.replace(' ', "\0") + "\0").unwrap();
        symlink(exe, dir.join("exe")).unwrap();
        symlink("pid:[4026531836]", dir.join("ns/pid")).unwrap();
        // As in the kernel, it is one table for all of a network namespace.
        fs::create_dir_all(self.root().join("net")).unwrap();
        symlink(self.root().join("net"), dir.join("net")).unwrap();
        self
    }

    /// Ends a process.
    pub(super) fn end(&self, pid: u32) {
        fs::remove_dir_all(self.dir(pid)).unwrap();
    }

    /// Somebody listens at this path; `holder` has the socket, if it is anybody's.
    pub(super) fn listens(self, inode: u64, path: &str, holder: Option<u32>) -> Self {
        let line = format!("ffff8f1a: 00000002 00000000 00010000 0001 01 {inode} {path}\n");
        self.row("unix", "Num RefCount Protocol Flags Type St Inode Path\n", &line);
        self.held(inode, holder)
    }

    /// A user listens on this port.
    pub(super) fn port(self, inode: u64, port: u16, uid: u32, holder: Option<u32>) -> Self {
        let line = format!(
            "   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 1 0\n"
        );
        self.row("tcp", "  sl  local_address rem_address   st\n", &line);
        self.held(inode, holder)
    }

    fn held(self, inode: u64, holder: Option<u32>) -> Self {
        if let Some(pid) = holder {
            symlink(format!("socket:[{inode}]"), self.dir(pid).join(format!("fd/{inode}"))).unwrap();
        }
        self
    }

    fn row(&self, table: &str, head: &str, line: &str) {
        let path = self.root().join("net").join(table);
        let before = fs::read_to_string(&path).unwrap_or_else(|_| head.to_owned());
        fs::write(path, before + line).unwrap();
    }

    /// A file is there.
    pub(super) fn file(self, path: &str) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
        self
    }
}
