//! Which container and pod an id means: read from the OCI bundles on disk, of which only the annotations that CRI
//! runtimes set are looked at, and what leads to the labels of Docker, which sets none.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
};

use serde::Deserialize;

use super::{docker, read, tell::Tell};
use crate::input::{ContainerFact, EndedInit, Holder};

/// Longest configuration that is read; real ones have 10 to 60 KB.
const MAX_CONFIG: u64 = 1 << 20;
/// A number and a line feed.
const MAX_PID: u64 = 32;
/// Containers that are kept.
const MAX_CONTAINERS: usize = 4096;
/// Entries of a bundle that are looked at; it has ten, and one for each command that runs.
const MAX_ENTRIES: usize = 512;
/// Where this comes from.
const BUNDLE: &str = "bundle";

/// What is known of containers, by id.
#[derive(Debug, Default)]
pub(super) struct Containers {
    by_id: HashMap<String, ContainerFact>,
    read: HashSet<String>,
    ended: Vec<EndedInit>,
}

/// `config.json` of a bundle, as far as it is of interest.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    annotations: Option<Annotations>,
    #[serde(default)]
    mounts: Option<Vec<docker::Mount>>,
}

/// Set by containerd (internal/cri/annotations) and by CRI-O (pkg/annotations).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "io.kubernetes.cri.sandbox-id")]
    sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    name: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    pod: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    namespace: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-log-directory")]
    log_directory: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.SandboxID")]
    crio_sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.ContainerType")]
    crio_type: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    crio_name: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    crio_pod: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    crio_namespace: Option<String>,
}

impl Containers {
    /// Reads every bundle beside the one of a shim: `…/NAMESPACE/ID/config.json`.
    pub(super) fn read_beside(&mut self, tell: &Tell, bundle: &str) -> io::Result<()> {
        let Some((dir, _)) = bundle.trim_end_matches('/').rsplit_once('/') else { return Ok(()) };
        if dir.is_empty() || !self.read.insert(dir.to_owned()) {
            return Ok(());
        }
        for entry in fs::read_dir(tell.path(dir))?.take(MAX_CONTAINERS) {
            if let Some(id) = entry?.file_name().to_str() {
                self.read_one(tell, &format!("{dir}/{id}"), id);
            }
        }
        Ok(())
    }

    /// Reads one bundle.
    pub(super) fn read_one(&mut self, tell: &Tell, bundle: &str, id: &str) {
        let known = self.by_id.contains_key(id) || self.by_id.len() >= MAX_CONTAINERS;
        if known || !is_id(id) || !bundle.starts_with('/') {
            return;
        }
        if let Some(fact) = read_config(&tell.order.root, Path::new(bundle), id) {
            self.by_id.insert(id.to_owned(), fact);
            self.ended.extend(ended_inits(tell, bundle, id));
        }
    }

    /// Gives containers the pod of their sandbox: old runtimes write it only there.
    pub(super) fn complete(&mut self) {
        let pods: HashMap<String, (Option<String>, Option<String>)> = self
            .by_id
            .iter()
            .map(|(id, fact)| (id.clone(), (fact.pod.clone(), fact.namespace.clone())))
            .collect();
        for fact in self.by_id.values_mut().filter(|fact| fact.pod.is_none()) {
            if let Some((pod, namespace)) = fact.sandbox.as_ref().and_then(|sandbox| pods.get(sandbox)) {
                (fact.pod, fact.namespace) = (pod.clone(), namespace.clone());
            }
        }
    }

    /// What an id means; when no bundle tells, at least the id, and where that was read.
    pub(super) fn container(&self, id: &str, source: &str) -> ContainerFact {
        let unknown =
            || ContainerFact { id: id.to_owned(), source: source.to_owned(), ..ContainerFact::default() };
        self.by_id.get(id).cloned().unwrap_or_else(unknown)
    }

    /// Was its bundle read?
    pub(super) fn knows(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Those whose first process has ended, or that of a command in them, by id.
    pub(super) fn ended(&self) -> Vec<EndedInit> {
        let mut ended = self.ended.clone();
        ended.sort_by(|a, b| (&a.id, &a.exec).cmp(&(&b.id, &b.exec)));
        ended.truncate(MAX_CONTAINERS);
        ended
    }

    /// All of them, by id.
    pub(super) fn all(&self) -> Vec<ContainerFact> {
        let mut all: Vec<ContainerFact> = self.by_id.values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}

/// As runtimes allow them; such a word is never a way out of a directory.
pub(super) fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    (1..=256).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('.')
}

/// First processes of a container and of its commands that have ended: shims of containerd write their numbers beside the
/// configuration (cmd/containerd-shim-runc-v2/process, `init.pid` and `EXEC.pid`), and remove that of a command when the
/// runtime deletes it, which it does when it was told of its end. When a number has a new owner, the end goes unnoticed.
fn ended_inits(tell: &Tell, bundle: &str, id: &str) -> Vec<EndedInit> {
    let entries = fs::read_dir(tell.path(bundle)).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let (mut ended, mut commands) = (Vec::new(), 0);
    for name in names {
        let Some(whose) = name.strip_suffix(".pid").filter(|whose| is_id(whose)) else { continue };
        let Some((pid, end)) = init(tell, &Path::new(bundle).join(&name)) else { continue };
        let exec = (whose != "init").then(|| whose.to_owned());
        match end {
            Some(zombie) => {
                let tracer = if zombie { tracer(tell, pid) } else { None };
                ended.push(EndedInit { id: id.to_owned(), exec, pid, zombie, tracer, commands: 0 });
            }
            None => commands += u32::from(exec.is_some()),
        }
    }
    ended.iter_mut().for_each(|ended| ended.commands = commands);
    ended
}

/// The process whose number is in this file; and when it has ended, whether nobody has asked how.
fn init(tell: &Tell, file: &Path) -> Option<(u32, Option<bool>)> {
    let text = read::file(&tell.order.root, file, MAX_PID).ok()?;
    let pid: u32 = std::str::from_utf8(&text).ok()?.trim().parse().ok().filter(|pid| *pid != 0)?;
    let Some(stat) = read::stat(&tell.process(pid)) else {
        // Not "cannot be read": gone.
        return if tell.process(pid).exists() { None } else { Some((pid, Some(false))) };
    };
    Some((pid, stat.has_ended().then_some(true)))
}

/// Who traces a process (ptrace); its parent hears of the end only after that one has.
fn tracer(tell: &Tell, pid: u32) -> Option<Holder> {
    let status = read::text(&tell.process(pid).join("status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    let pid: u32 = tracer.trim().parse().ok().filter(|pid| *pid != 0)?;
    let comm = read::stat(&tell.process(pid)).map(|stat| stat.comm).unwrap_or_default();
    Some(Holder { pid, comm, fd: -1, orphan: false })
}

fn read_config(root: &Path, bundle: &Path, id: &str) -> Option<ContainerFact> {
    let bytes = read::file(root, &bundle.join("config.json"), MAX_CONFIG).ok()?;
    let config: Config = serde_json::from_slice(&bytes).ok()?;
    let annotated = fact(id, config.annotations.unwrap_or_default());
    if annotated.pod.is_some() || annotated.sandbox.is_some() {
        return Some(annotated);
    }
    let labelled = config.mounts.and_then(|mounts| docker::fact(root, &mounts, id));
    Some(labelled.map_or(annotated, within_bounds))
}

fn fact(id: &str, found: Annotations) -> ContainerFact {
    let (from_log, pod_from_log) = found.log_directory.as_deref().and_then(of_log_directory).unzip();
    // CRI-O gives the sandbox's own container the name "POD".
    let of_sandbox = found.crio_type.as_deref() == Some("sandbox");
    let fact = ContainerFact {
        id: id.to_owned(),
        sandbox: found.sandbox.or(found.crio_sandbox),
        name: found.name.or(found.crio_name.filter(|_| !of_sandbox)),
        pod: found.pod.or(found.crio_pod).or(pod_from_log),
        namespace: found.namespace.or(found.crio_namespace).or(from_log),
        source: BUNDLE.to_owned(),
    };
    within_bounds(fact)
}

/// Without the names that are too long to be any.
fn within_bounds(fact: ContainerFact) -> ContainerFact {
    let short = |text: Option<String>| text.filter(|text| text.len() <= 512);
    ContainerFact {
        sandbox: short(fact.sandbox),
        name: short(fact.name),
        pod: short(fact.pod),
        namespace: short(fact.namespace),
        ..fact
    }
}

/// `/var/log/pods/NAMESPACE_NAME_UID`: neither of the three can contain an underscore.
fn of_log_directory(path: &str) -> Option<(String, String)> {
    let mut parts = path.trim_end_matches('/').rsplit('/').next()?.split('_');
    let (namespace, pod, _uid) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then(|| (namespace.to_owned(), pod.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> ContainerFact {
        let config: Config = serde_json::from_str(json).unwrap();
        fact("c1", config.annotations.unwrap_or_default())
    }

    /// containerd 1.7, containerd 1.2, CRI-O, and no CRI at all; unknown and hostile values are no error.
    #[test]
    fn annotations() {
        let new = parsed(
            r#"{"ociVersion":"1.0","process":{"env":["SECRET=x"]},"annotations":{
            "io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"web",
            "io.kubernetes.cri.sandbox-id":"s1","io.kubernetes.cri.sandbox-name":"p","x":"y",
            "io.kubernetes.cri.sandbox-namespace":"default"}}"#,
        );
        let words = |fact: &ContainerFact| {
            [&fact.sandbox, &fact.name, &fact.pod, &fact.namespace]
                .map(|text| text.clone().unwrap_or_default())
        };
        assert_eq!(words(&new), ["s1", "web", "p", "default"]);
        let old = parsed(
            r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"s1",
            "io.kubernetes.cri.sandbox-log-directory":"/var/log/pods/kube-system_dns-1_4c5f"}}"#,
        );
        assert_eq!(words(&old), ["s1", "", "dns-1", "kube-system"]);
        let crio = parsed(
            r#"{"annotations":{"io.kubernetes.cri-o.ContainerType":"sandbox","io.kubernetes.container.name":"POD",
            "io.kubernetes.cri-o.SandboxID":"s1","io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n"}}"#,
        );
        assert_eq!(words(&crio), ["s1", "", "p", "n"]);
        assert_eq!(words(&parsed(r#"{"annotations":null}"#)), ["", "", "", ""]);
        assert_eq!(of_log_directory("/var/log/pods/4c5f"), None);
    }

    /// The numbers of first processes are written down: one is gone, or lives, or what is written is no number.
    #[test]
    fn ended_inits() {
        let root = tempfile::tempdir().unwrap();
        let tell = Tell::below(root.path(), io::sink());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mut containers = Containers::default();
        write("proc/12/status", "Name:\tpause\nState:\tZ (zombie)\nTracerPid:\t14\n");
        let stat = |pid: u32, state: char| {
            let zeros = "0 ".repeat(47);
            write(&format!("proc/{pid}/stat"), &format!("{pid} (pause) {state} 1 {zeros}"));
        };
        for (id, pid) in [("alive", "11"), ("zombie", "12"), ("gone", "13"), ("hostile", "-1"), ("zero", "0")]
        {
            write(&format!("run/b/{id}/config.json"), "{}");
            write(&format!("run/b/{id}/init.pid"), pid);
        }
        write("run/b/none/config.json", "{}");
        write("elsewhere/config.json", "{}");
        std::os::unix::fs::symlink("/elsewhere", root.path().join("run/b/linked")).unwrap();
        // Commands: one that runs, one that is gone, one that is being written, and what has another name.
        for (name, pid) in [("e1.pid", "14"), ("e2.pid", "13"), (".e3.pid", "13"), ("log.json", "13")] {
            write(&format!("run/b/alive/{name}"), pid);
        }
        stat(11, 'S');
        stat(12, 'Z');
        stat(14, 'S');
        containers.read_beside(&tell, "/run/b/alive").unwrap();
        let told: Vec<(String, Option<String>, u32, bool, u32)> = containers
            .ended()
            .into_iter()
            .map(|one| (one.id, one.exec, one.pid, one.zombie, one.commands))
            .collect();
        let expected = [
            ("alive".to_owned(), Some("e2".to_owned()), 13, false, 1),
            ("gone".to_owned(), None, 13, false, 0),
            ("zombie".to_owned(), None, 12, true, 0),
        ];
        assert_eq!(told, expected);
        let tracers: Vec<Option<u32>> =
            containers.ended().into_iter().map(|one| one.tracer.map(|tracer| tracer.pid)).collect();
        assert_eq!(tracers, [None, None, Some(14)]);
        assert_eq!(containers.all().len(), 7, "a link begins at the root that is looked at");
    }

    /// A container of an old runtime gets its pod from its sandbox.
    #[test]
    fn pod_of_the_sandbox() {
        let mut containers = Containers::default();
        let sandbox = ContainerFact { id: "s1".into(), pod: Some("p".into()), ..ContainerFact::default() };
        let inside =
            ContainerFact { id: "c1".into(), sandbox: Some("s1".into()), ..ContainerFact::default() };
        containers.by_id = [("s1".to_owned(), sandbox), ("c1".to_owned(), inside)].into();
        containers.complete();
        assert_eq!(containers.container("c1", "x").pod.as_deref(), Some("p"));
        assert_eq!(containers.container("c2", "cgroup").source, "cgroup");
        assert!(is_id("k8s.io") && !is_id("..") && !is_id("a/b") && !is_id(""));
    }
}
