//! What the node can run out of: instances of inotify of root, and open files of its daemons.
//!
//! As long as there is enough of both it is looked at now and then only: to count instances of inotify takes the descriptors of
//! every process.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    classify::{Interests, Kind},
    inotify,
    kept::Kept,
    node::Node,
    read,
    tell::Tell,
};
use crate::{
    census::{
        protocol::{Answer, Step},
        text::open_files,
    },
    input::{Component, DescriptorsFact, Scarce, is_scarce},
};

/// From a look that has found enough of everything to the next.
const REST: Duration = Duration::from_secs(30);
/// How long daemons are looked at, and how many descriptors of one are counted.
const TIME: Duration = Duration::from_millis(100);
const MAX_COUNTED: usize = 1 << 20;
/// Daemons that are told of.
const MAX_TOLD: usize = 64;
/// Daemons of which many processes of the node need an answer, and which are no processes of interest.
const BUS: [&str; 2] = ["dbus-daemon", "dbus-broker"];

/// Tells what there is little or nothing left of, when there is such a thing.
pub(super) fn tell(tell: &mut Tell, interests: &Interests, node: &Node, kept: &mut Kept) -> io::Result<()> {
    if kept.has_plenty(REST) {
        return Ok(());
    }
    let scarce =
        Scarce { inotify: inotify::scarce(tell, node)?, descriptors: descriptors(tell, interests, node)? };
    let is_plenty = scarce == Scarce::default();
    kept.looked_for_plenty(is_plenty);
    if is_plenty { Ok(()) } else { tell.say(&Answer::Scarce(scarce)) }
}

/// Daemons with little room for another open file.
fn descriptors(tell: &mut Tell, interests: &Interests, node: &Node) -> io::Result<Vec<DescriptorsFact>> {
    let (mut found, began) = (Vec::new(), Instant::now());
    for (pid, component) in daemons(tell, interests, node) {
        if began.elapsed() >= TIME {
            let why = "not all daemons were looked at: out of time".to_owned();
            tell.cut(0, "", Step::Files.words(), why)?;
            break;
        }
        found.extend(of_daemon(tell, pid, component));
        if found.len() == MAX_TOLD {
            break;
        }
    }
    Ok(found)
}

/// Kubelet, runtimes and shims, and the bus of the node.
fn daemons(tell: &mut Tell, interests: &Interests, node: &Node) -> Vec<(u32, Component)> {
    let is_daemon = |component: Component| {
        component.role().is_runtime() || matches!(component, Component::Kubelet | Component::Shim)
    };
    let told = interests.told.iter().filter(|one| one.kind == Kind::Worker && is_daemon(one.component));
    let mut all: Vec<(u32, Component)> = told.map(|one| (one.pid, one.component)).collect();
    let buses = node.everybody.iter().filter(|(_, comm)| BUS.contains(&comm.as_str()));
    all.extend(
        buses.filter(|(pid, _)| !tell.is_elsewhere(*pid)).map(|(pid, _)| (*pid, Component::BusDaemon)),
    );
    all
}

/// What one has open, when that is nearly all it may have. The kernel gives out the lowest free number, and none from the limit
/// on: what has a higher one was open before the limit was lowered (fs/file.c, `alloc_fd`).
fn of_daemon(tell: &Tell, pid: u32, component: Component) -> Option<DescriptorsFact> {
    let dir = tell.process(pid);
    let limit = open_files(&read::text(&dir.join("limits")).ok()?)?;
    let numbers = read::numbers(&dir.join("fd"), MAX_COUNTED).ok()?;
    let open = numbers.iter().filter(|number| u64::from(**number) < limit).count() as u64;
    is_scarce(open, limit).then_some(DescriptorsFact { pid, component, open, limit })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Only numbers below the limit count; who has no limit, or does not tell, is not told of.
    #[test]
    fn at_the_limit() {
        let root = tempfile::tempdir().unwrap();
        let tell = Tell::below(root.path(), io::sink());
        let of = |limit: &str, numbers: &[u32]| {
            let dir = root.path().join("proc/7");
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("limits"), format!("Max open files  {limit}  4096  files\n")).unwrap();
            numbers.iter().for_each(|number| fs::write(dir.join(format!("fd/{number}")), "").unwrap());
            of_daemon(&tell, 7, Component::Containerd).map(|found| (found.open, found.limit))
        };
        assert_eq!(of("4", &[0, 1, 2, 3]), Some((4, 4)));
        assert_eq!(of("4", &[0, 1, 2, 9]), None);
        assert_eq!(of("4", &[0, 1, 2, 3, 9]), Some((4, 4)));
        assert_eq!(of("unlimited", &[0, 1, 2, 3]), None);
        assert_eq!(of_daemon(&tell, 8, Component::Shim), None);
    }

    /// Where there was enough, it is not looked at again at once; where there was not, it is.
    #[test]
    fn looks_again_when_little_is_left() {
        let mut kept = Kept::default();
        assert!(!kept.has_plenty(REST));
        kept.looked_for_plenty(true);
        assert!(kept.has_plenty(REST) && !kept.has_plenty(Duration::ZERO));
        kept.looked_for_plenty(false);
        assert!(!kept.has_plenty(REST));
    }
}
