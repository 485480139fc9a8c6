//! A real control plane for the lab's kubelet: etcd of bookworm, kubectl of trixie, and an API server, controllers and a scheduler of the kubelet's own
//! release. It listens on the loopback interface only, and lets in who has its token.

mod build;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

pub use build::program;

use crate::containerd::log_tail;
use crate::daemon::Daemon;
use crate::packages::{self, Suite};
use crate::scratch::Scratch;
use crate::{host, http, process};

/// From start to an API server that is ready, and to a node that is, on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// What the controllers do that a DaemonSet and its pods need.
const CONTROLLERS: &str = "daemonset,garbagecollector,namespace,nodelifecycle";
/// Of no machine (RFC 5737): the API server must have an address that is not the loopback interface's, and nobody asks for it.
const ADVERTISED: &str = "192.0.2.1";
const SERVICES: &str = "192.0.2.0/24";

/// A running control plane; it ends when it is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    /// The scheduler, the controllers, the API server and etcd: who asks before who is asked.
    daemons: Vec<Daemon>,
    api: Daemon,
    kubeconfig: PathBuf,
}

impl ControlPlane {
    /// Starts one in the lab of `scratch`, for a node that is called `node`, and waits until its API server is ready.
    ///
    /// # Errors
    ///
    /// As for [`program`], and when one of the daemons ends or is not ready in time, with the end of its log.
    pub fn start(scratch: &Scratch, node: &str) -> Result<ControlPlane> {
        let (program, dir) = (program()?, scratch.path().join("control-plane"));
        fs::create_dir_all(&dir).context("cannot make the directory of the control plane")?;
        // Nobody else on the machine is to guess or read it: it is all that the API server asks for.
        fs::set_permissions(&dir, Permissions::from_mode(0o700))
            .context("cannot close the directory of the control plane")?;
        let token = fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a token")?;
        let token = token.trim_end();
        let [store, peers, port] = [http::free_port()?, http::free_port()?, http::free_port()?];
        let kubeconfig = dir.join("kubeconfig");
        let text = kubeconfig_text(port, token);
        fs::write(&kubeconfig, text).context("cannot write a kubeconfig")?;
        write_identity(&dir, token, node)?;

        let run =
            |name: &str, command: Command| Daemon::start(scratch, command, &dir.join(format!("{name}.log")));
        let etcd = run("etcd", etcd(&dir, store, peers)?)?;
        let api = run("apiserver", api_server(&program, &dir, store, port))?;
        let mut plane = ControlPlane { daemons: vec![api.clone(), etcd], api, kubeconfig };
        plane.wait_until_ready().with_context(|| {
            let log = log_tail(&dir.join("apiserver.log"));
            format!("the API server is not ready; end of its log:\n{log}")
        })?;
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let daemon = run(name, asker(&program, name, &dir, &plane.kubeconfig))?;
            plane.daemons.insert(0, daemon);
        }
        Ok(plane)
    }

    /// How to reach it: a kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server.
    #[must_use]
    pub fn api_server(&self) -> &Daemon {
        &self.api
    }

    /// kubectl, in this cluster.
    ///
    /// # Errors
    ///
    /// When its package cannot be had.
    pub fn kubectl(&self) -> Result<Command> {
        kubectl(&self.kubeconfig)
    }

    /// What kubectl says to `words`.
    ///
    /// # Errors
    ///
    /// When it does not end with 0.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        ask(&self.kubeconfig, words)
    }

    fn wait_until_ready(&self) -> Result<()> {
        process::wait_for("an API server that is ready", READY_LIMIT, || {
            for daemon in &self.daemons {
                anyhow::ensure!(daemon.ended()?.is_none(), "a daemon of the control plane has ended");
            }
            Ok(self.ask(&["get", "--raw", "/readyz"]).is_ok().then_some(()))
        })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for daemon in &self.daemons {
            daemon.close();
        }
    }
}

/// Downloads what it needs besides the kubelet's sources, and builds nothing.
///
/// # Errors
///
/// When a package cannot be had.
pub fn fetch() -> Result<()> {
    packages::unpack(Suite::Bookworm, &["etcd-server"])?;
    packages::unpack(Suite::Trixie, &["kubectl"]).map(drop)
}

fn kubectl(kubeconfig: &Path) -> Result<Command> {
    let mut kubectl = packaged(Suite::Trixie, "kubectl", "usr/bin/kubectl")?;
    kubectl.env("KUBECONFIG", kubeconfig);
    Ok(kubectl)
}

fn ask(kubeconfig: &Path, words: &[&str]) -> Result<String> {
    host::run(kubectl(kubeconfig)?.arg("--request-timeout=10s").args(words))
}

/// Waits until the node `name` is Ready in the eyes of the API server of `kubeconfig`.
///
/// # Errors
///
/// When it is not in time.
pub(crate) fn wait_for_node(kubeconfig: &Path, name: &str) -> Result<()> {
    const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    process::wait_for("a node that is Ready", READY_LIMIT, || {
        Ok(ask(kubeconfig, &["get", "node", name, "-o", READY])
            .is_ok_and(|said| said == "True")
            .then_some(()))
    })
}

/// A program of a package.
fn packaged(suite: Suite, package: &str, program: &str) -> Result<Command> {
    let tree = packages::unpack(suite, &[package])?;
    Ok(Command::new(tree.path(program)?))
}

/// JSON is YAML, too.
fn kubeconfig_text(port: u16, token: &str) -> String {
    let cluster = json!({ "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{ "name": "lab", "cluster": cluster }],
        "users": [{ "name": "lab", "user": { "token": token } }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
    })
    .to_string()
}

/// Who may come in, with which key service accounts are signed, and where `node` is.
fn write_identity(dir: &Path, token: &str, node: &str) -> Result<()> {
    host::ensure(&["openssl"])?;
    fs::write(dir.join("tokens.csv"), format!("{token},lab,lab,system:masters\n"))
        .context("cannot write a token")?;
    fs::write(dir.join("hosts"), format!("127.0.0.1 localhost {node}\n"))
        .context("cannot write a hosts file")?;
    host::run(Command::new("openssl").args(["genrsa", "-out"]).arg(dir.join("accounts.key")).arg("2048"))
        .map(drop)
}

fn etcd(dir: &Path, port: u16, peers: u16) -> Result<Command> {
    let [own, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
    let mut etcd = packaged(Suite::Bookworm, "etcd-server", "usr/bin/etcd")?;
    // What it keeps need not outlive the lab.
    etcd.args(["--name=lab", "--unsafe-no-fsync"]).arg(format!("--data-dir={}", dir.join("etcd").display()));
    etcd.args([format!("--listen-client-urls={own}"), format!("--advertise-client-urls={own}")]);
    etcd.args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")]);
    etcd.arg(format!("--initial-cluster=lab={peer}"));
    Ok(etcd)
}

/// In a mount namespace of its own, in which the node has an address: it asks the kubelet at the node's name.
fn api_server(program: &Path, dir: &Path, store: u16, port: u16) -> Command {
    const SCRIPT: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "--", "sh", "-c", SCRIPT, "sh"]);
    command.arg(dir.join("hosts")).arg(program).arg("kube-apiserver");
    let below = |name: &str| dir.join(name).display().to_string();
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", below("apiserver")),
        format!("--service-account-key-file={}", below("accounts.key")),
        format!("--service-account-signing-key-file={}", below("accounts.key")),
        format!("--token-auth-file={}", below("tokens.csv")),
        format!("--advertise-address={ADVERTISED}"),
        format!("--service-cluster-ip-range={SERVICES}"),
    ]);
    command.args([
        "--bind-address=127.0.0.1",
        "--service-account-issuer=https://plegtrace.lab",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=AlwaysAllow",
        "--anonymous-auth=false",
        "--allow-privileged=true",
        // No controller makes accounts.
        "--disable-admission-plugins=ServiceAccount",
        "--kubelet-preferred-address-types=Hostname",
    ]);
    command
}

/// The controllers, or the scheduler.
fn asker(program: &Path, name: &str, dir: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(name).arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.args(["--leader-elect=false", "--port=0", "--secure-port=0"]);
    if name == "kube-controller-manager" {
        command.arg(format!("--controllers={CONTROLLERS}"));
        command.arg(format!("--service-account-private-key-file={}", dir.join("accounts.key").display()));
    }
    command
}
