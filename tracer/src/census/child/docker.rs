//! Which pod a container of Docker belongs to: its bundle says nothing of that, but leads to the file in which dockerd keeps the
//! labels that dockershim and cri-dockerd have given it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{containers::is_id, read};
use crate::input::ContainerFact;

/// Longest file that is read; real ones have 3 to 10 KB.
const MAX_CONFIG: u64 = 1 << 20;
/// In the directory of a container, below dockerd's `data-root` (moby, `container/container.go`, `configFileName`).
const CONFIG: &str = "config.v2.json";
/// What dockerd mounts into each container from such a directory: its own, or that of the container whose network it shares.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Where this comes from.
const LABELS: &str = "docker labels";
/// The name that the container of a sandbox has.
const SANDBOX: &str = "podsandbox";

/// A mount of a bundle.
#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    destination: String,
    #[serde(default)]
    source: String,
}

/// The file, as far as it is of interest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    #[serde(rename = "ID")]
    id: String,
    config: Config,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(default)]
    labels: Option<Labels>,
}

/// Set by dockershim and cri-dockerd (kubernetes 1.20, `pkg/kubelet/dockershim/docker_service.go` and `pkg/kubelet/types/labels.go`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "io.kubernetes.docker.type")]
    kind: Option<String>,
    #[serde(rename = "io.kubernetes.sandbox.id")]
    sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    name: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: Option<String>,
}

/// What dockerd says of the container with these mounts; `None` when it is none of Docker's, or of no pod.
pub(super) fn fact(root: &Path, mounts: &[Mount], id: &str) -> Option<ContainerFact> {
    let file = directory(mounts)?.join(id).join(CONFIG);
    let bytes = read::file(root, &file, MAX_CONFIG).ok()?;
    let found: Container = serde_json::from_slice(&bytes).ok()?;
    let labels = found.config.labels.filter(|labels| found.id == id && labels.pod.is_some())?;
    let is_sandbox = labels.kind.as_deref() == Some(SANDBOX);
    Some(ContainerFact {
        id: id.to_owned(),
        sandbox: labels.sandbox.or_else(|| is_sandbox.then(|| id.to_owned())),
        name: labels.name.filter(|_| !is_sandbox),
        pod: labels.pod,
        namespace: labels.namespace,
        source: LABELS.to_owned(),
    })
}

/// Where dockerd keeps its containers: `DATA-ROOT/containers`.
fn directory(mounts: &[Mount]) -> Option<PathBuf> {
    let mount = mounts.iter().find(|mount| mount.destination == RESOLV_CONF)?;
    let of_one = Path::new(&mount.source).parent()?;
    let (id, all) = (of_one.file_name()?.to_str()?, of_one.parent()?);
    let is_docker = is_id(id) && all.is_absolute() && all.file_name()? == "containers";
    is_docker.then(|| all.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mounts(resolv_conf: &str) -> Vec<Mount> {
        let mount = |destination: &str, source: &str| Mount {
            destination: destination.to_owned(),
            source: source.to_owned(),
        };
        vec![mount("/proc", "proc"), mount(RESOLV_CONF, resolv_conf)]
    }

    /// A container in the network of its sandbox, the sandbox, one of no pod, one whose file is another's, and what is not Docker's.
    #[test]
    fn labels_of_dockerd() {
        let root = tempfile::tempdir().unwrap();
        let write = |id: &str, json: &str| {
            let dir = root.path().join("data/containers").join(id);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(CONFIG), json).unwrap();
        };
        write(
            "c1",
            r#"{"ID":"c1","State":{"Pid":1},"Config":{"Env":["SECRET=x"],"Labels":{"io.kubernetes.docker.type":"container",
            "io.kubernetes.container.name":"web","io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n",
            "io.kubernetes.sandbox.id":"s1","mine":"1"}}}"#,
        );
        write(
            "s1",
            r#"{"ID":"s1","Config":{"Labels":{"io.kubernetes.docker.type":"podsandbox",
            "io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n"}}}"#,
        );
        write("mine", r#"{"ID":"mine","Config":{"Labels":null}}"#);
        write("other", r#"{"ID":"c1","Config":{"Labels":{"io.kubernetes.pod.name":"p"}}}"#);
        write("broken", r#"{"ID":"broken","Config":"#);
        let mounts = mounts("/data/containers/s1/resolv.conf");
        let words = |id: &str| {
            let fact = fact(root.path(), &mounts, id)?;
            Some([fact.sandbox, fact.name, fact.pod, fact.namespace].map(Option::unwrap_or_default))
        };
        assert_eq!(words("c1").unwrap(), ["s1", "web", "p", "n"]);
        assert_eq!(words("s1").unwrap(), ["s1", "", "p", "n"]);
        for id in ["mine", "other", "broken", "none"] {
            assert_eq!(words(id), None, "{id}");
        }
    }

    #[test]
    fn directories_of_others() {
        let directory = |resolv_conf: &str| directory(&mounts(resolv_conf));
        assert_eq!(directory("/a/containers/s1/resolv.conf"), Some("/a/containers".into()));
        for other in [
            "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/s1/resolv.conf",
            "/run/containers/storage/overlay-containers/s1/userdata/resolv.conf",
            "a/containers/s1/resolv.conf",
            "/resolv.conf",
            "/containers/../resolv.conf",
            "",
        ] {
            assert_eq!(directory(other), None, "{other}");
        }
        assert_eq!(super::directory(&[]), None);
    }
}
