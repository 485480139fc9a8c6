//! What the command line and the configuration file of a component say about its sockets and directories.
//!
//! Both are text of the target: bounded, never trusted beyond "this path is worth a look".

use std::path::{Path, PathBuf};

use plegtrace_common::role::Role;

use super::{foreign::open_in, process::read_whole};

/// Where dockerd listens, unless it is told otherwise.
pub(super) const DOCKER: &str = "/run/docker.sock";
/// The same of containerd.
pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// Configuration files are a few KB.
const MAX_CONFIG: u64 = 1 << 20;

/// Sockets and directories of a component, as paths in its own mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandFacts {
    /// CRI, containerd or Docker socket it serves.
    pub serves: Option<PathBuf>,
    /// CRI endpoint it calls (kubelet), containerd it belongs to (shim).
    pub calls: Option<PathBuf>,
    /// kubelet: the Docker socket that its dockershim asks, when it says that it has Docker for a runtime.
    pub docker: Option<PathBuf>,
    /// Its configuration file.
    pub config: Option<PathBuf>,
    /// kubelet: `--root-dir`.
    pub root_dir: Option<PathBuf>,
    /// Shim: `-id`, the sandbox.
    pub shim_id: Option<String>,
    /// Shim: `-namespace`.
    pub shim_namespace: Option<String>,
}

/// Reads the facts out of `args`; configuration files are read below `fs_root`, the root directory of the process, or
/// not at all.
#[must_use]
pub(crate) fn facts(role: Role, args: &[String], fs_root: Option<&Path>) -> CommandFacts {
    match role {
        Role::Kubelet => kubelet(args, fs_root),
        Role::Containerd => containerd(args, fs_root),
        Role::Crio => server(args, "--listen", "/run/crio/crio.sock"),
        Role::CriDockerd => server(args, "--container-runtime-endpoint", "/run/cri-dockerd.sock"),
        Role::Dockerd => dockerd(args, fs_root),
        Role::Shim => CommandFacts {
            calls: flag(args, &["address"]).and_then(socket),
            shim_id: flag(args, &["id"]).map(str::to_owned),
            shim_namespace: flag(args, &["namespace"]).map(str::to_owned),
            ..CommandFacts::default()
        },
        _ => CommandFacts::default(),
    }
}

fn kubelet(args: &[String], fs_root: Option<&Path>) -> CommandFacts {
    let config = flag(args, &["config"]).map(PathBuf::from);
    let from_flag = flag(args, &["container-runtime-endpoint"]).and_then(socket);
    // The flag moved into the configuration file with 1.27.
    let from_config = || {
        let text = read_config(fs_root?, config.as_deref()?)?;
        socket(yaml_value(&text, "containerRuntimeEndpoint")?)
    };
    let docker = || flag(args, &["docker-endpoint"]).and_then(socket).unwrap_or_else(|| DOCKER.into());
    let has_docker = flag(args, &["container-runtime"]) == Some("docker");
    CommandFacts {
        // Of a dockershim it is the kubelet itself that serves the endpoint.
        calls: from_flag.or_else(from_config).filter(|_| !has_docker),
        docker: has_docker.then(docker),
        root_dir: Some(flag(args, &["root-dir"]).unwrap_or("/var/lib/kubelet").into()),
        config,
        ..CommandFacts::default()
    }
}

fn containerd(args: &[String], fs_root: Option<&Path>) -> CommandFacts {
    let config = PathBuf::from(flag(args, &["config", "c"]).unwrap_or("/etc/containerd/config.toml"));
    let from_config = || {
        let text = read_config(fs_root?, &config)?;
        socket(toml_value(&text, "grpc", "address")?)
    };
    let serves = flag(args, &["address", "a"]).and_then(socket).or_else(from_config);
    CommandFacts {
        serves: serves.or_else(|| Some(CONTAINERD.into())),
        config: Some(config),
        ..CommandFacts::default()
    }
}

fn dockerd(args: &[String], fs_root: Option<&Path>) -> CommandFacts {
    let config = PathBuf::from(flag(args, &["config-file"]).unwrap_or("/etc/docker/daemon.json"));
    let hosts = flags(args, &["host", "H"]);
    let unix = hosts.into_iter().find_map(|host| socket(host.strip_prefix("unix://")?));
    let from_config = || {
        let document: serde_json::Value = serde_json::from_str(&read_config(fs_root?, &config)?).ok()?;
        let mut hosts = document["hosts"].as_array()?.iter().filter_map(serde_json::Value::as_str);
        hosts.find_map(|host| socket(host.strip_prefix("unix://")?))
    };
    CommandFacts {
        serves: unix.or_else(from_config).or_else(|| Some(DOCKER.into())),
        calls: flag(args, &["containerd"]).and_then(socket),
        config: Some(config),
        ..CommandFacts::default()
    }
}

fn server(args: &[String], name: &str, default: &str) -> CommandFacts {
    let serves = flag(args, &[name.trim_start_matches('-')]).and_then(socket);
    CommandFacts {
        serves: serves.or_else(|| Some(default.into())),
        config: flag(args, &["config", "c"]).map(PathBuf::from),
        ..CommandFacts::default()
    }
}

/// The last value of a flag, in any of the spellings `--name value`, `--name=value`, `-name value`, `-name=value`.
fn flag<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    flags(args, names).pop()
}

fn flags<'a>(args: &'a [String], names: &[&str]) -> Vec<&'a str> {
    let mut values = Vec::new();
    for (index, arg) in args.iter().enumerate().skip(1) {
        let Some(rest) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { continue };
        let (name, value) = rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
        if names.contains(&name) {
            values.extend(value.or_else(|| args.get(index + 1).map(String::as_str)));
        }
    }
    values
}

/// An absolute path of a unix socket, with or without scheme; `/var/run` is `/run` on every node.
pub(crate) fn socket(text: &str) -> Option<PathBuf> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    let path = path.strip_prefix("/var/run/").map_or_else(|| path.to_owned(), |rest| format!("/run/{rest}"));
    (path.starts_with('/') && path.len() < 4096).then(|| path.into())
}

fn read_config(fs_root: &Path, path: &Path) -> Option<String> {
    String::from_utf8(read_whole(open_in(fs_root, path).ok()?, MAX_CONFIG).ok()?).ok()
}

/// `key = "value"` inside `[table]`. Enough for one address; not a TOML parser.
fn toml_value<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let lines = text.lines().map(str::trim).skip_while(|line| line.trim_matches(['[', ']']) != table);
    let inside = lines.skip(1).take_while(|line| !line.starts_with('['));
    inside
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| quoted(value))
}

/// `key: value` at any depth, in YAML or JSON.
fn yaml_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.into_iter().find(|(name, _)| name.trim_matches('"') == key).map(|(_, value)| quoted(value))
}

fn quoted(value: &str) -> &str {
    let value = value.trim().trim_end_matches(',');
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or(""),
        _ => value.split('#').next().unwrap_or("").trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn facts_of(role: Role, line: &str) -> CommandFacts {
        facts(role, &words(line), None)
    }

    /// Flags are read in each spelling, the last one wins.
    #[test]
    fn flag_spellings() {
        let args = words("x --a=1 -b 2 -a 3 --c");
        assert_eq!(flag(&args, &["a"]), Some("3"));
        assert_eq!(flag(&args, &["b"]), Some("2"));
        assert_eq!(flag(&args, &["c"]), None);
        assert_eq!(flag(&args, &["d"]), None);
    }

    /// Each component's own flags.
    #[test]
    fn components() {
        let shim =
            facts_of(Role::Shim, "containerd-shim-runc-v2 -namespace k8s.io -id ab12 -address /run/c.sock");
        assert_eq!(shim.calls, Some("/run/c.sock".into()));
        assert_eq!((shim.shim_id.as_deref(), shim.shim_namespace.as_deref()), (Some("ab12"), Some("k8s.io")));
        let kubelet =
            facts_of(Role::Kubelet, "kubelet --container-runtime-endpoint=unix:///var/run/crio/crio.sock");
        assert_eq!(kubelet.calls, Some("/run/crio/crio.sock".into()));
        assert_eq!((kubelet.root_dir, kubelet.docker), (Some("/var/lib/kubelet".into()), None));
        let of_docker = facts_of(
            Role::Kubelet,
            "kubelet --container-runtime=docker --container-runtime-endpoint=unix:///var/run/dockershim.sock",
        );
        assert_eq!((of_docker.calls, of_docker.docker), (None, Some("/run/docker.sock".into())));
        assert_eq!(facts_of(Role::Containerd, "containerd -a /x.sock").serves, Some("/x.sock".into()));
        let docker =
            facts_of(Role::Dockerd, "dockerd -H tcp://0.0.0.0:1 -H unix:///d.sock --containerd=/c.sock");
        assert_eq!((docker.serves, docker.calls), (Some("/d.sock".into()), Some("/c.sock".into())));
        let fd = facts_of(Role::Dockerd, "dockerd -H fd:// --containerd=/run/containerd/containerd.sock");
        assert_eq!(fd.serves, Some("/run/docker.sock".into()));
        assert_eq!(facts_of(Role::Crio, "crio --listen /y.sock").serves, Some("/y.sock".into()));
    }

    /// Configuration files are read below the root of the process.
    #[test]
    fn configuration_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        let facts_of = |role, line| facts(role, &words(line), Some(root.path()));
        write(
            "c.toml",
            "address = '/no'\n[grpc]\n  gid = 0\n  address = \"/run/my.sock\" # x\n[debug]\naddress='/no'\n",
        );
        let containerd = facts_of(Role::Containerd, "containerd --config /c.toml");
        assert_eq!(containerd.serves, Some("/run/my.sock".into()));
        for text in [
            "a: 1\ncontainerRuntimeEndpoint: unix:///r.sock\n",
            "{\n \"containerRuntimeEndpoint\": \"/r.sock\",\n}",
        ] {
            write("k.yaml", text);
            let kubelet = facts_of(Role::Kubelet, "kubelet --config=/k.yaml");
            assert_eq!(kubelet.calls, Some("/r.sock".into()), "{text}");
        }
        write("d.json", "{\"hosts\": [\"tcp://0.0.0.0:1\", \"unix:///var/run/my.sock\"]}");
        let docker = facts_of(Role::Dockerd, "dockerd --config-file /d.json");
        assert_eq!(docker.serves, Some("/run/my.sock".into()));
        std::fs::create_dir(root.path().join("dir")).unwrap();
        assert_eq!(facts_of(Role::Kubelet, "kubelet --config /dir").calls, None);
        std::os::unix::fs::symlink("/k.yaml", root.path().join("link")).unwrap();
        assert_eq!(facts_of(Role::Kubelet, "kubelet --config /link").calls, Some("/r.sock".into()));
    }

    /// What is not an absolute path is no socket.
    #[test]
    fn sockets() {
        assert_eq!(socket("tcp://1.2.3.4:80"), None);
        assert_eq!(socket("npipe:////./pipe/x"), None);
        assert_eq!(socket("unix:///var/run/a"), Some("/run/a".into()));
    }
}
