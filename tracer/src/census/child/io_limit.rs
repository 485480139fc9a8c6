//! What a cgroup lets through to a block device (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/blkio-controller.rst). The device
//! itself does not know of what has not come to it.

use std::path::{Path, PathBuf};

use super::{read, tell::Tell};
use crate::input::WriteLimit;

/// Cgroups above each other that are looked at.
const MAX_DEPTH: usize = 16;

/// A cgroup, and where its hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IoGroup {
    pub(super) dir: PathBuf,
    pub(super) top: PathBuf,
}

impl IoGroup {
    /// The nearest cgroup from this one up that limits writes to the device with this number (`major:minor`), or to the disk that it
    /// is a partition of: a limit is for a whole disk.
    pub(super) fn of_writes(&self, tell: &Tell, device: &str) -> Option<WriteLimit> {
        let sys = tell.path(&format!("/sys/dev/block/{device}"));
        let is_partition = sys.join("partition").exists();
        let disk = is_partition.then(|| read::text(&sys.join("../dev")).ok()).flatten();
        let disk = disk.as_deref().map_or(device, str::trim);
        let mut above = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top)).take(MAX_DEPTH);
        above.find_map(|dir| limit(dir, disk))
    }
}

fn limit(dir: &Path, disk: &str) -> Option<WriteLimit> {
    let text = |file: &str| read::text(&dir.join(file)).unwrap_or_default();
    let of_disk = |text: &str| {
        let line = text.lines().find_map(|line| line.split_once(' ').filter(|(number, _)| *number == disk));
        line.map(|(_, rest)| rest.to_owned())
    };
    let (writes, bytes) = if let Some(line) = of_disk(&text("io.max")) {
        // "max" is no number: there is no limit.
        let figure = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.parse().ok());
        (figure("wiops="), figure("wbps="))
    } else {
        let figure = |file: &str| of_disk(&text(file))?.trim().parse().ok();
        (figure("blkio.throttle.write_iops_device"), figure("blkio.throttle.write_bps_device"))
    };
    (writes.is_some() || bytes.is_some()).then(|| WriteLimit {
        path: dir.display().to_string(),
        writes,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::symlink};

    use super::*;

    fn found(group: &str, device: &str) -> Option<(String, Option<u64>, Option<u64>)> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("sys/devices/vda/dev", "254:0\n"),
            ("sys/devices/vda/vda1/partition", "1\n"),
            ("cg/a/io.max", "8:0 rbps=max wbps=1 riops=max wiops=1\n254:0 rbps=9 wbps=max riops=8 wiops=2\n"),
            ("cg/a/b/io.max", "254:0 rbps=max wbps=max riops=4 wiops=max\n"),
            ("cg/a/c/io.max", "254:16 rbps=max wbps=1048576 riops=max wiops=max\n"),
            ("cg/old/blkio.throttle.write_iops_device", "254:0 7\n"),
            ("cg/old/blkio.throttle.write_bps_device", ""),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(root.path().join("sys/dev/block")).unwrap();
        symlink("../../devices/vda/vda1", root.path().join("sys/dev/block/254:1")).unwrap();
        let top = root.path().join("cg");
        let limit =
            IoGroup { dir: top.join(group), top }.of_writes(&Tell::below(root.path(), io::sink()), device)?;
        let path = Path::new(&limit.path).strip_prefix(root.path()).unwrap().display().to_string();
        Some((path, limit.writes, limit.bytes))
    }

    /// The nearest that limits writes, to this disk or to that of the partition; reads may be as slow as they like.
    #[test]
    fn the_nearest_that_limits_writes() {
        let of_a = Some(("cg/a".to_owned(), Some(2), None));
        assert_eq!((found("a/b", "254:0"), found("a/b", "254:1")), (of_a.clone(), of_a));
        assert_eq!(found("a/c", "254:16"), Some(("cg/a/c".to_owned(), None, Some(1 << 20))));
        assert_eq!(found("old/x", "254:1"), Some(("cg/old".to_owned(), Some(7), None)));
        assert_eq!((found("a/b", "254:16"), found("old", "8:0"), found("", "254:0")), (None, None, None));
    }
}
