//! What components leave on a machine even when none of them runs: evidence that this is a node, and what only looks
//! like it.
//!
//! Evidence is a unit that is wanted (enabled, started since boot, or without a way to be enabled), a
//! configuration, certificates, pods, a socket. A directory that a removed package left empty is none, nor is a unit
//! that was installed and never enabled; such leftovers are kept to say why a machine is taken for no node.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::input::{Component, Presence};

/// Where systemd looks for units; the first place that has one hides the others. See systemd.unit(5).
const UNIT_DIRS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// Longer than any unit; what comes after it is not read.
const MAX_UNIT: u64 = 64 << 10;
/// More entries than any directory of systemd has.
const MAX_ENTRIES: usize = 4096;

/// A place where a component leaves a trace; of each row the first that is evidence counts.
#[derive(Debug)]
enum Place {
    /// Units, without ".service".
    Unit(&'static [&'static str]),
    /// Paths: a directory counts unless it is empty, whatever else exists counts.
    Path(&'static [&'static str]),
}

const PLACES: &[(Component, Place)] = &[
    (Component::Kubelet, Place::Unit(&["kubelet", "k3s", "k3s-agent"])),
    (
        Component::Kubelet,
        Place::Path(&[
            "var/lib/kubelet/config.yaml",
            "var/lib/kubelet/kubeconfig",
            "var/lib/kubelet/pki",
            "var/lib/kubelet/pods",
            "etc/kubernetes/kubelet.conf",
            "etc/kubernetes/manifests",
            "var/lib/rancher/k3s",
        ]),
    ),
    (Component::Containerd, Place::Unit(&["containerd"])),
    (
        Component::Containerd,
        Place::Path(&["run/containerd/containerd.sock", "run/k3s/containerd/containerd.sock"]),
    ),
    (Component::Crio, Place::Unit(&["crio", "cri-o"])),
    (Component::Crio, Place::Path(&["run/crio/crio.sock"])),
    (Component::Dockerd, Place::Unit(&["docker"])),
    (Component::Dockerd, Place::Path(&["run/docker.sock"])),
    (Component::CriDockerd, Place::Unit(&["cri-docker", "cri-dockerd"])),
    (Component::CriDockerd, Place::Path(&["run/cri-dockerd.sock"])),
];

/// Directories that a kubelet makes and the removal of its package leaves.
const OFTEN_LEFT: [&str; 3] = ["var/lib/kubelet", "etc/kubernetes", "var/lib/rancher/k3s"];

/// What was found below a root.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Traces {
    /// Evidence of components.
    pub(super) evidence: Vec<Presence>,
    /// What is there and is no evidence, each with the reason.
    pub(super) leftovers: Vec<String>,
}

impl Traces {
    /// Looks at all places below `root`.
    pub(super) fn below(root: &Path) -> Traces {
        let mut traces = Traces::default();
        for (component, place) in PLACES {
            let found = match place {
                Place::Unit(names) => traces.unit(root, names),
                Place::Path(paths) => {
                    paths.iter().find(|path| is_evidence(&root.join(path))).map(|p| (*p).into())
                }
            };
            let presence =
                |path: String| Presence { component: *component, path: format!("/{path}"), called: false };
            traces.evidence.extend(found.map(presence));
        }
        for dir in OFTEN_LEFT.iter().filter(|dir| root.join(dir).is_dir()) {
            let about = |presence: &Presence| presence.path.starts_with(&format!("/{dir}"));
            if !traces.evidence.iter().any(about) {
                let what =
                    if is_evidence(&root.join(dir)) { "no configuration or pods in it" } else { "empty" };
                traces.leftovers.push(format!("/{dir} ({what})"));
            }
        }
        traces
    }

    /// The first of these units that is evidence; the others that are there are leftovers.
    fn unit(&mut self, root: &Path, names: &[&str]) -> Option<String> {
        for name in names {
            let file = format!("{name}.service");
            let Some(dir) = UNIT_DIRS.iter().find(|dir| exists(&root.join(dir).join(&file))) else {
                continue;
            };
            let path = format!("{dir}/{file}");
            match why_not(root, &path, &file) {
                None => return Some(path),
                Some(why) => self.leftovers.push(format!("/{path} ({why})")),
            }
        }
        None
    }
}

/// Why a unit file is no evidence.
fn why_not(root: &Path, path: &str, unit: &str) -> Option<&'static str> {
    let mut text = String::new();
    // A link to /dev/null and an empty file mean the same: masked.
    let read = fs::File::open(root.join(path)).and_then(|file| file.take(MAX_UNIT).read_to_string(&mut text));
    if read.is_ok() && text.is_empty() {
        return Some("masked");
    }
    let started = exists(&root.join(format!("run/systemd/units/invocation:{unit}")));
    let enabled = || UNIT_DIRS.iter().any(|dir| is_wanted(&root.join(dir), unit));
    let can_be_enabled = text.lines().any(|line| line.trim() == "[Install]");
    (can_be_enabled && !started && !enabled()).then_some("not enabled")
}

/// Does another unit of this directory want or require it?
fn is_wanted(dir: &Path, unit: &str) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let wanting = entries.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|extension| extension == "wants" || extension == "requires")
    });
    wanting.into_iter().any(|wanting| exists(&wanting.join(unit)))
}

/// Also true for a link to nowhere.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Anything but an empty directory.
fn is_evidence(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => exists(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const UNIT: &str = "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n";

    fn put(root: &tempfile::TempDir, path: &str, text: &str) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn evidence(root: &tempfile::TempDir) -> Vec<String> {
        Traces::below(root.path()).evidence.into_iter().map(|presence| presence.path).collect()
    }

    /// What the removal of a package leaves is no node; it is named.
    #[test]
    fn an_empty_directory_is_no_evidence() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Traces::below(root.path()), Traces::default());
        fs::create_dir_all(root.path().join("var/lib/kubelet")).unwrap();
        let traces = Traces::below(root.path());
        assert_eq!(
            (traces.evidence, traces.leftovers),
            (vec![], vec!["/var/lib/kubelet (empty)".to_owned()])
        );
        fs::create_dir_all(root.path().join("var/lib/kubelet/pods")).unwrap();
        let traces = Traces::below(root.path());
        let left = "/var/lib/kubelet (no configuration or pods in it)".to_owned();
        assert_eq!((traces.evidence, traces.leftovers), (vec![], vec![left]));
        fs::create_dir_all(root.path().join("var/lib/kubelet/pods/1b4e28ba")).unwrap();
        let traces = Traces::below(root.path());
        assert_eq!(traces.evidence[0].path, "/var/lib/kubelet/pods");
        assert_eq!(traces.leftovers, [""; 0]);
    }

    /// Each kind of evidence is enough alone.
    #[test]
    fn configuration_and_certificates_are_evidence() {
        for path in
            ["var/lib/kubelet/config.yaml", "var/lib/kubelet/pki/kubelet.crt", "etc/kubernetes/kubelet.conf"]
        {
            let root = tempfile::tempdir().unwrap();
            put(&root, path, "x");
            assert_eq!(evidence(&root).len(), 1, "{path}");
        }
    }

    /// A unit counts when it is enabled, has run since boot, or cannot be enabled; not when it is only installed or masked.
    #[test]
    fn units_that_nobody_wants_are_no_evidence() {
        let root = tempfile::tempdir().unwrap();
        let unit = "usr/lib/systemd/system/kubelet.service";
        put(&root, unit, UNIT);
        let traces = Traces::below(root.path());
        let left = "/usr/lib/systemd/system/kubelet.service (not enabled)".to_owned();
        assert_eq!((traces.evidence, traces.leftovers), (vec![], vec![left]));

        let wants = root.path().join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink("/usr/lib/systemd/system/kubelet.service", wants.join("kubelet.service")).unwrap();
        assert_eq!(evidence(&root), [format!("/{unit}")]);
        fs::remove_file(wants.join("kubelet.service")).unwrap();
        assert_eq!(evidence(&root), [""; 0]);

        let invocations = root.path().join("run/systemd/units");
        fs::create_dir_all(&invocations).unwrap();
        symlink("0123", invocations.join("invocation:kubelet.service")).unwrap();
        assert_eq!(evidence(&root), [format!("/{unit}")], "it ran, or failed");
        fs::remove_file(invocations.join("invocation:kubelet.service")).unwrap();

        put(&root, unit, "[Service]\nExecStart=/usr/bin/kubelet\n");
        assert_eq!(evidence(&root), [format!("/{unit}")], "another unit may start it");
        symlink("/dev/null", root.path().join("etc/systemd/system/kubelet.service")).unwrap();
        let traces = Traces::below(root.path());
        let left = "/etc/systemd/system/kubelet.service (masked)".to_owned();
        assert_eq!((traces.evidence, traces.leftovers), (vec![], vec![left]));
    }
}
