//! Turns the machine's processes into the shims of one containerd.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

/// A shim: one process per pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shim {
    /// Its process.
    pub pid: u32,
    /// Its `-id`: the sandbox it was started for.
    pub sandbox: String,
}

/// The shims whose `-address` is `socket`: with several containerds on a machine, nothing else tells them apart.
pub(super) fn find(socket: &Path) -> Vec<Shim> {
    let all: Vec<Shim> = process::all().into_iter().filter_map(|pid| shim(pid, socket)).collect();
    let parents: Vec<Option<u32>> = all.iter().map(|shim| process::parent(shim.pid)).collect();
    let mut shims = without_children(all, &parents);
    shims.sort_by_key(|shim| shim.pid);
    shims
}

/// Those that no other one of them has started: between fork and exec, a child of a shim looks like it. `parents` in the same order;
/// `None`: it is gone.
fn without_children(shims: Vec<Shim>, parents: &[Option<u32>]) -> Vec<Shim> {
    let pids: Vec<u32> = shims.iter().map(|shim| shim.pid).collect();
    let is_one = |parent: &Option<u32>| parent.is_some_and(|parent| !pids.contains(&parent));
    shims.into_iter().zip(parents).filter_map(|(shim, parent)| is_one(parent).then_some(shim)).collect()
}

fn shim(pid: u32, socket: &Path) -> Option<Shim> {
    if !process::name(pid).starts_with("containerd-shim") {
        return None;
    }
    parse(&process::arguments(pid), socket).map(|sandbox| Shim { pid, sandbox })
}

/// The id of a serving shim of `socket`. `start` and `delete` are helpers that live for a moment.
fn parse(arguments: &[String], socket: &Path) -> Option<String> {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let is_helper = arguments.last().is_some_and(|last| last == "start" || last == "delete");
    (!is_helper && Path::new(&option("-address")?) == socket).then(|| option("-id"))?
}

/// The socket that a bundle names: in `bootstrap.json`, or before containerd 1.7 in `address`.
pub(super) fn socket(bundle: &Path) -> Option<PathBuf> {
    let read = |file| fs::read_to_string(bundle.join(file)).ok();
    let text = read("bootstrap.json").or_else(|| read("address"))?;
    let (_, path) = text.split_once("unix://")?;
    Some(PathBuf::from(path.split('"').next().unwrap_or(path).trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_is_known_by_its_address() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = "/x/containerd-shim-runc-v2 -namespace k8s.io -id abc -address /tmp/a/c.sock";
        assert_eq!(parse(&words(line), Path::new("/tmp/a/c.sock")), Some("abc".to_owned()));
        assert_eq!(parse(&words(line), Path::new("/tmp/b/c.sock")), None);
        assert_eq!(parse(&words(&format!("{line} start")), Path::new("/tmp/a/c.sock")), None);
        assert_eq!(parse(&words("shim -id"), Path::new("/tmp/a/c.sock")), None);
    }

    /// A child that has not become runc yet is no shim, nor is one that has ended meanwhile.
    #[test]
    fn a_child_of_a_shim_is_none() {
        let shim = |pid| Shim { pid, sandbox: "abc".to_owned() };
        let found = without_children(vec![shim(7), shim(8), shim(9)], &[Some(1), Some(7), None]);
        assert_eq!(found, [shim(7)]);
    }

    #[test]
    fn a_bundle_names_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(socket(dir.path()), None);
        fs::write(dir.path().join("address"), "unix:///run/containerd/s/0a").unwrap();
        assert_eq!(socket(dir.path()), Some(PathBuf::from("/run/containerd/s/0a")));
        let params = r#"{"version":3,"address":"unix:///run/containerd/s/0b","protocol":"ttrpc"}"#;
        fs::write(dir.path().join("bootstrap.json"), params).unwrap();
        assert_eq!(socket(dir.path()), Some(PathBuf::from("/run/containerd/s/0b")));
    }
}
