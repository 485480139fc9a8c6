//! The block device with a file, and what it does: by the mount that a descriptor belongs to. Neither the file nor its file system
//! is asked: both may hang.

use super::{classify::Interest, io_limit::IoGroup, read, tell::Tell};
use crate::input::{DiskFact, ParkedThreads};

/// Calls on a descriptor that end when its file is on the disk.
const CALLS: [&str; 3] = ["fsync", "fdatasync", "syncfs"];

/// Overlays that are looked at: all of them are on the same disk nearly always.
const MAX_OVERLAYS: usize = 256;

/// The device that matters to a process with these threads.
pub(super) fn of(
    tell: &Tell,
    interest: &Interest,
    parks: &[&ParkedThreads],
    group: Option<&IoGroup>,
) -> Option<DiskFact> {
    let pid = interest.pid;
    let is_runtime = interest.component.role().is_runtime();
    let waits = is_runtime.then(|| waited_for(tell, pid, parks, group)).flatten();
    waits.or_else(|| under_overlays(tell, pid, parks))
}

/// The device that one of these threads waits for, and what this cgroup lets through to it; `None` when none does, or the file
/// system has no device of its own.
fn waited_for(tell: &Tell, pid: u32, parks: &[&ParkedThreads], group: Option<&IoGroup>) -> Option<DiskFact> {
    let fd = parks.iter().find_map(|park| {
        let call = park.syscall.as_ref()?;
        CALLS.contains(&call.name.as_deref()?).then_some(call.args[0] as u32)
    })?;
    let process = tell.process(pid);
    let mount = mount_of(&read::text(&process.join(format!("fdinfo/{fd}"))).ok()?)?;
    let number = device_of(&read::mountinfo(&process.join("mountinfo")).ok()?, mount)?;
    let counted = counters(&read::text(&tell.path("/proc/diskstats")).ok()?, &number)?;
    Some(DiskFact { limit: group.and_then(|group| group.of_writes(tell, &number)), ..counted })
}

/// The device with the upper directories of the overlays beside one that is being unmounted, which is in no table any more. Where
/// they are on several devices, or on one that the kernel does not count, it is not known.
fn under_overlays(tell: &Tell, pid: u32, parks: &[&ParkedThreads]) -> Option<DiskFact> {
    let park = parks.iter().find(|park| park.flushes_overlay())?;
    let path = park.syscall.as_ref().and_then(|call| call.path.as_deref());
    let mounts = read::mountinfo(&tell.process(pid).join("mountinfo")).ok()?;
    let number = under(&mounts, path.map_or("", siblings))?;
    counters(&read::text(&tell.path("/proc/diskstats")).ok()?, number)
}

/// Where the bundles of containers are, when this is the root of one (`…/ID/rootfs`); else any folder.
fn siblings(path: &str) -> &str {
    let bundle = path.strip_suffix("/rootfs").unwrap_or_default();
    bundle.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `major:minor` of the one device with the upper directories of the overlays that are mounted in this folder.
fn under<'a>(mountinfo: &'a str, folder: &str) -> Option<&'a str> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.nth(2)?, fields.nth(1)?))
    });
    let mounts: Vec<(&str, &str)> = mounts.collect();
    let uppers = mountinfo.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - overlay ")?;
        let is_there = is_below(front.split(' ').nth(4)?, folder);
        let mut options = back.rsplit(' ').next()?.split(',').filter(|_| is_there);
        options.find_map(|one| one.strip_prefix("upperdir="))
    });
    // What is mounted later at the same place hides what was there.
    let device = |upper: &str| {
        let above = mounts.iter().filter(|(_, point)| is_below(upper, point));
        above.max_by_key(|(_, point)| point.len()).map(|(number, _)| *number)
    };
    let mut devices = uppers.take(MAX_OVERLAYS).map(device);
    let first = devices.next()??;
    devices.all(|device| device == Some(first)).then_some(first)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
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
            in_flight: *figures.get(8)?,
            // Sectors, which have 512 bytes whatever the device says.
            written: figures.get(6)?.saturating_mul(512),
            limit: None,
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
        assert_eq!((found.in_flight, found.written), (4, 240 * 512));
        assert_eq!(counters("254 1 vda1 1 2 3\n", "254:1"), None);
        assert_eq!(counters(stats, "8:0"), None);
    }

    /// The mount with all upper directories; of several none is meant.
    #[test]
    fn from_overlays_to_device() {
        let overlay = |upper: &str| {
            let (front, back) = ("50 1 0:50 / /run/c2/rootfs rw shared:9", "overlay rw,lowerdir=/x,upperdir");
            format!("{front} - overlay {back}={upper},workdir=/y\n")
        };
        let disks = "28 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n29 28 8:0 / /var/lib/docker rw - xfs /dev/sda rw\n\
                     30 28 8:16 / /var/lib/docker rw - xfs /dev/sdb rw\n";
        let found_in = |folder: &str, uppers: &[&str]| {
            let overlays: String = uppers.iter().map(|upper| overlay(upper)).collect();
            under(&format!("{disks}{overlays}"), folder).map(str::to_owned)
        };
        let found = |uppers: &[&str]| found_in("", uppers);
        let containerd = "/var/lib/containerd/snapshots/9/fs";
        assert_eq!(found(&[containerd, "/var/lib/dockery/fs"]).as_deref(), Some("254:1"));
        assert_eq!(found(&["/var/lib/docker/overlay2/1/diff"]).as_deref(), Some("8:16"));
        assert_eq!(found(&[containerd, "/var/lib/docker/overlay2/1/diff"]), None);
        assert_eq!((found(&[]), found(&["u"])), (None, None));
        let folders =
            ["/run", "/ru", siblings("/run/c1/rootfs"), siblings("/mnt/c1/rootfs"), siblings("/mnt/x")];
        let known = folders.map(|folder| found_in(folder, &[containerd]).is_some());
        assert_eq!(known, [true, false, true, false, true]);
    }
}
