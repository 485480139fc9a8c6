//! The block device with a file, and what it does: by the mount that a descriptor belongs to. Neither the file nor its file system
//! is asked: both may hang.

use super::{read, tell::Tell};
use crate::input::{DiskFact, ParkedThreads};

/// Calls on a descriptor that end when its file is on the disk.
const CALLS: [&str; 3] = ["fsync", "fdatasync", "syncfs"];

/// The device that one of these threads waits for; `None` when none does, or the file system has no device of its own.
pub(super) fn waited_for<'a>(
    tell: &Tell,
    pid: u32,
    mut parks: impl Iterator<Item = &'a ParkedThreads>,
) -> Option<DiskFact> {
    let fd = parks.find_map(|park| {
        let call = park.syscall.as_ref()?;
        CALLS.contains(&call.name.as_deref()?).then_some(call.args[0] as u32)
    })?;
    let process = tell.process(pid);
    let mount = mount_of(&read::text(&process.join(format!("fdinfo/{fd}"))).ok()?)?;
    let number = device_of(&read::mountinfo(&process.join("mountinfo")).ok()?, mount)?;
    counters(&read::text(&tell.path("/proc/diskstats")).ok()?, &number)
}

/// The number in the line `mnt_id: 28` (fs/proc/fd.c).
fn mount_of(fdinfo: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// `major:minor` of a mount (proc_pid_mountinfo(5)).
fn device_of(mountinfo: &str, mount: u32) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let is_it = fields.next()?.parse() == Ok(mount);
        fields.nth(1).filter(|_| is_it).map(str::to_owned)
    })
}

/// The counters of a device. Those of discards came with Linux 4.18, those of flushes with 5.5.
fn counters(diskstats: &str, number: &str) -> Option<DiskFact> {
    let (major, minor) = number.split_once(':')?;
    diskstats.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_it = fields.next()? == major && fields.next()? == minor;
        let name = fields.next().filter(|_| is_it)?;
        let figures: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let sum = |places: [usize; 4]| places.iter().filter_map(|place| figures.get(*place)).sum();
        Some(DiskFact {
            name: name.to_owned(),
            completed: sum([0, 4, 11, 15]),
            took_ms: sum([3, 7, 14, 16]),
            busy_ms: *figures.get(9)?,
            in_flight: *figures.get(8)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the descriptor to its mount, to its device, to what that has done; what is not there, or cut short, is none.
    #[test]
    fn from_descriptor_to_device() {
        assert_eq!(mount_of("pos:\t0\nflags:\t0100002\nmnt_id:\t28\nino:\t7\n"), Some(28));
        let mounts =
            "28 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n280 28 0:5 / /dev rw - devtmpfs udev rw\n";
        assert_eq!(device_of(mounts, 28).as_deref(), Some("254:1"));
        assert_eq!((device_of(mounts, 2), mount_of("pos:\t0\n")), (None, None));
        let stats = " 254       0 vda 9 9 9 9 9 9 9 9 9 9 9\n 254       1 vda1 100 5 800 70 30 6 240 900 4 650 970 1 0 8 2 3 40\n";
        let found = counters(stats, "254:1").unwrap();
        assert_eq!((found.name.as_str(), found.completed, found.took_ms), ("vda1", 134, 1012));
        assert_eq!((found.busy_ms, found.in_flight), (650, 4));
        assert_eq!(counters("254 1 vda1 1 2 3\n", "254:1"), None);
        assert_eq!(counters(stats, "8:0"), None);
    }
}
