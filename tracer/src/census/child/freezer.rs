//! The freezer of a cgroup, version 1 (`freezer.state`, kernel/cgroup/legacy_freezer.c) and version 2
//! (`cgroup.freeze`, `cgroup.events`; Linux 5.2 and later), also both at once.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{io_limit::IoGroup, read, task_limit, tell::Tell};
use crate::{
    census::text::{Membership, mounts},
    input::{Freezer, TaskLimit},
};

/// Deeper trees of cgroups are not climbed.
const MAX_DEPTH: usize = 64;

/// Where the hierarchies with a freezer are mounted.
#[derive(Clone, Debug, Default)]
pub(super) struct Hierarchies {
    v1: Option<Place>,
    v2: Option<Place>,
    /// The controller of processors, of version 1.
    cpu: Option<Place>,
    /// The controller of the number of tasks, of version 1.
    pids: Option<Place>,
    /// The controller of block devices, of version 1.
    blkio: Option<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    point: PathBuf,
    /// The directory of the hierarchy that is mounted there.
    root: String,
}

impl Hierarchies {
    /// From our own list of mounts: that of process 1 would need more privileges.
    ///
    /// # Errors
    ///
    /// The list cannot be read.
    pub(super) fn find(tell: &Tell) -> io::Result<Self> {
        let mut found = Self::default();
        for mount in mounts(&read::mountinfo(&tell.path("/proc/self/mountinfo"))?) {
            let place = || Some(Place { point: tell.path(&mount.point), root: mount.root.clone() });
            let has = |wanted| mount.options.split(',').any(|option| option == wanted);
            let freezes = has("freezer");
            if mount.kind == "cgroup" && has("cpu") && found.cpu.is_none() {
                found.cpu = place();
            }
            if mount.kind == "cgroup" && has("pids") && found.pids.is_none() {
                found.pids = place();
            }
            if mount.kind == "cgroup" && has("blkio") && found.blkio.is_none() {
                found.blkio = place();
            }
            match mount.kind.as_str() {
                "cgroup2" if found.v2.is_none() => found.v2 = place(),
                "cgroup" if freezes && found.v1.is_none() => found.v1 = place(),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The freezer over a process with these memberships, when it is not thawed.
    pub(super) fn frozen(&self, memberships: &[Membership<'_>]) -> Option<Freezer> {
        let v1 = memberships.iter().find(|membership| membership.has("freezer"));
        let v2 = memberships.iter().find(|membership| membership.is_v2());
        let old = self.v1.as_ref().zip(v1).and_then(|(place, membership)| version_1(place, membership.path));
        old.or_else(|| {
            self.v2.as_ref().zip(v2).and_then(|(place, membership)| version_2(place, membership.path))
        })
    }
}

impl Hierarchies {
    /// Where the controller of processors keeps the cgroup of a process with these memberships: version 1 where it is there,
    /// because a controller is in one hierarchy only.
    pub(super) fn cpu(&self, memberships: &[Membership<'_>]) -> Option<String> {
        Some(self.group("cpu", self.cpu.as_ref(), memberships)?.1.display().to_string())
    }

    /// The cgroup over a process with these memberships that has as many tasks as it may have.
    pub(super) fn full(&self, memberships: &[Membership<'_>]) -> Option<TaskLimit> {
        let (place, group) = self.group("pids", self.pids.as_ref(), memberships)?;
        task_limit::full(&group, &place.point)
    }

    /// The cgroup of a process with these memberships that may be limited in what it writes.
    pub(super) fn io(&self, memberships: &[Membership<'_>]) -> Option<IoGroup> {
        let (place, dir) = self.group("blkio", self.blkio.as_ref(), memberships)?;
        Some(IoGroup { dir, top: place.point.clone() })
    }

    /// The cgroup in the hierarchy that has this controller, version 1 if that has it, and where that is mounted.
    fn group<'a>(
        &'a self,
        controller: &str,
        old: Option<&'a Place>,
        memberships: &[Membership<'_>],
    ) -> Option<(&'a Place, PathBuf)> {
        let v1 = memberships.iter().find(|membership| membership.has(controller));
        let v2 = memberships.iter().find(|membership| membership.is_v2());
        let (place, membership) = old.zip(v1).or_else(|| self.v2.as_ref().zip(v2))?;
        Some((place, place.dir(membership.path)?))
    }
}

impl Place {
    /// The directory of a cgroup; `None` when it is outside of what is mounted.
    fn dir(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.trim_end_matches('/'))?.trim_start_matches('/');
        let inside = !Path::new(below).components().any(|part| part.as_os_str() == "..");
        inside.then(|| self.point.join(below))
    }

    /// The nearest cgroup, this one or above, for which `told` holds.
    fn nearest(&self, path: &str, told: impl Fn(&Path) -> bool) -> Option<String> {
        let mut at = path;
        for _ in 0..MAX_DEPTH {
            if told(&self.dir(at)?) {
                return Some(at.to_owned());
            }
            at = at.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())?;
        }
        None
    }
}

fn version_1(place: &Place, path: &str) -> Option<Freezer> {
    let value = |dir: &Path, file: &str| Some(read::text(&dir.join(file)).ok()?.trim().to_owned());
    let state = value(&place.dir(path)?, "freezer.state")?;
    if state == "THAWED" {
        return None;
    }
    // `self_freezing` since Linux 3.8: this one, not one above it.
    let told = place.nearest(path, |dir| value(dir, "freezer.self_freezing").as_deref() == Some("1"));
    Some(freezer(path, told, 1, state))
}

fn version_2(place: &Place, path: &str) -> Option<Freezer> {
    let text = |dir: &Path, file: &str| read::text(&dir.join(file)).unwrap_or_default();
    let events = text(&place.dir(path)?, "cgroup.events");
    let frozen = events.lines().any(|line| line == "frozen 1");
    let told = place.nearest(path, |dir| text(dir, "cgroup.freeze").trim() == "1");
    if !frozen && told.is_none() {
        return None;
    }
    let state = if frozen { "FROZEN" } else { "FREEZING" };
    Some(freezer(path, told, 2, state.to_owned()))
}

fn freezer(path: &str, told: Option<String>, version: u8, state: String) -> Freezer {
    let told = told.unwrap_or_else(|| path.to_owned());
    Freezer { own: told == path, path: told, version, state }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::census::text::memberships;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Hierarchies) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let place = |dir: &str| Some(Place { point: root.path().join(dir), root: "/".into() });
        let hierarchies =
            Hierarchies { v1: place("v1"), v2: place("v2"), cpu: place("cpu"), pids: None, blkio: None };
        (root, hierarchies)
    }

    fn frozen(hierarchies: &Hierarchies, text: &str) -> Option<(String, u8, String, bool)> {
        let found = hierarchies.frozen(&memberships(text))?;
        Some((found.path, found.version, found.state, found.own))
    }

    /// Frozen by itself, by one above it, and not at all.
    #[test]
    fn version_1_tree() {
        let (_root, cgroups) = tree(&[
            ("v1/pod/freezer.state", "FROZEN\n"),
            ("v1/pod/freezer.self_freezing", "1\n"),
            ("v1/pod/c/freezer.state", "FREEZING\n"),
            ("v1/pod/c/freezer.self_freezing", "0\n"),
            ("v1/other/freezer.state", "THAWED\n"),
        ]);
        let pod = frozen(&cgroups, "5:freezer:/pod\n0::/\n");
        assert_eq!(pod, Some(("/pod".into(), 1, "FROZEN".into(), true)));
        let below = frozen(&cgroups, "5:cpu,freezer:/pod/c\n");
        assert_eq!(below, Some(("/pod".into(), 1, "FREEZING".into(), false)));
        assert_eq!(frozen(&cgroups, "5:freezer:/other\n"), None);
        assert_eq!(frozen(&cgroups, "5:freezer:/gone\n4:name=systemd:/pod\n"), None);
        assert_eq!(frozen(&cgroups, "5:freezer:/../v1/pod\n"), None);
    }

    /// The controller of processors is in version 1, or in version 2; what is outside of the mount is not told.
    #[test]
    fn cpu_groups() {
        let (root, mut cgroups) = tree(&[]);
        let dir = |path: &str| Some(root.path().join(path).display().to_string());
        let lines = memberships("3:cpu,cpuacct:/a/b\n0::/c\n");
        assert_eq!(cgroups.cpu(&lines), dir("cpu/a/b"));
        assert_eq!(cgroups.cpu(&memberships("3:cpu:/../x\n")), None);
        cgroups.cpu = None;
        assert_eq!(cgroups.cpu(&lines), dir("v2/c"));
    }

    /// Frozen is what the kernel says; told and not there yet is freezing.
    #[test]
    fn version_2_tree() {
        let (_root, cgroups) = tree(&[
            ("v2/a/cgroup.freeze", "1\n"),
            ("v2/a/cgroup.events", "populated 1\nfrozen 0\n"),
            ("v2/a/b/cgroup.freeze", "0\n"),
            ("v2/a/b/cgroup.events", "populated 1\nfrozen 1\n"),
            ("v2/c/cgroup.events", "populated 1\n"),
        ]);
        assert_eq!(frozen(&cgroups, "0::/a\n"), Some(("/a".into(), 2, "FREEZING".into(), true)));
        assert_eq!(frozen(&cgroups, "0::/a/b\n"), Some(("/a".into(), 2, "FROZEN".into(), false)));
        assert_eq!(frozen(&cgroups, "0::/c\n"), None);
        assert_eq!(Hierarchies::default().frozen(&memberships("0::/a\n")), None);
    }
}
