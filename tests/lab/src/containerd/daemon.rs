//! Runs containerd with everything private and waits until its CRI answers.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::config::{Settings, conflist, nri_socket, toml};
use super::shims::{self, Shim};
use crate::cri::{self, Api, Client, Pod, PodSpec};
use crate::daemon::Daemon;
use crate::knobs::{Knobs, Network, ShimBuild};
use crate::packages::{self, Tree};
use crate::promtext::Page;
use crate::scratch::Scratch;
use crate::{disk, gate, host, http, image, logs, process, rc93, rebuilt};

/// From start to an answer of the CRI; 13 ms on an idle machine.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// For one CRI call on a healthy but busy machine.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// For the answer to SIGUSR1.
const DUMP_LIMIT: Duration = Duration::from_secs(10);
/// What its log says then.
const DUMPED: &str = "goroutine stack dump written to";

/// A running containerd with the lab's image. Drop removes it, its shims, pods, mounts, cgroups and files.
#[derive(Debug)]
pub struct Containerd {
    daemon: Daemon,
    knobs: Knobs,
    tree: Tree,
    programs: Programs,
    metrics: SocketAddr,
    client: Client,
    // Last: its drop is the teardown of all the others.
    scratch: Scratch,
}

impl Containerd {
    /// Starts the generation that `knobs` name and imports the image.
    ///
    /// # Errors
    ///
    /// When not root, the packages cannot be had ([`packages::Error::Gone`] in the chain when they left the archive),
    /// or it does not come up; then with the end of its log.
    pub fn start(knobs: &Knobs) -> Result<Containerd> {
        host::require_root()?;
        let tree = packages::containerd(knobs.generation.suite())?;
        let programs = Programs::wanted(knobs, &tree)?;
        let archive = image::archive()?;
        let scratch = Scratch::new()?;
        if knobs.disk {
            disk::mount(scratch.path())?;
        }
        let metrics = SocketAddr::from(([127, 0, 0, 1], http::free_port()?));
        configure(&scratch, knobs, &tree, metrics)?;
        let daemon = spawn(&scratch, &programs, knobs.bus.as_deref())?;
        let client = Client::new(&scratch.path().join("containerd.sock"), knobs.generation.api())?;
        let containerd =
            Containerd { daemon, knobs: knobs.clone(), tree, programs, metrics, client, scratch };
        containerd.wait_until_ready()?;
        containerd.import(&archive)?;
        Ok(containerd)
    }

    /// The daemon's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// The daemon, to kill it and to start it again.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its CRI socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.client.socket()
    }

    /// Where plugins of NRI register, if it asks any ([`Knobs::nri`]).
    #[must_use]
    pub fn nri_socket(&self) -> PathBuf {
        nri_socket(self.scratch.path())
    }

    /// What it printed.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.scratch.path().join("containerd.log")
    }

    /// Its configuration.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.scratch.path().join("config.toml")
    }

    /// The stacks of its goroutines, as it writes them into a file on SIGUSR1 (`dumpStacks` in cmd/containerd).
    ///
    /// # Errors
    ///
    /// When it does not say within ten seconds that it has.
    pub fn dump_goroutines(&self) -> Result<String> {
        let said = || Ok::<_, anyhow::Error>(fs::read_to_string(self.log_path())?.matches(DUMPED).count());
        let before = said()?;
        process::signal(self.pid(), libc::SIGUSR1)?;
        process::wait_for("a dump of the goroutines", DUMP_LIMIT, || Ok((said()? > before).then_some(())))?;
        let file = temporary(&self.scratch).join(format!("containerd.{}.stacks.log", self.pid()));
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    /// Where it looks for the configuration of networks.
    #[must_use]
    pub fn cni_directory(&self) -> PathBuf {
        self.scratch.path().join("net.d")
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.programs.daemon
    }

    /// The program of its shims.
    #[must_use]
    pub fn shim_program(&self) -> &Path {
        &self.programs.shim
    }

    /// The runc that its shims call.
    #[must_use]
    pub fn runc_program(&self) -> &Path {
        &self.programs.runc
    }

    /// The `PATH` by which it finds shim and runc.
    #[must_use]
    pub(crate) fn search_path(&self) -> String {
        self.programs.path()
    }

    /// The directory of the CNI plugins.
    ///
    /// # Errors
    ///
    /// As for [`packages::cni_plugins`].
    pub fn cni_plugins(&self) -> Result<PathBuf> {
        if self.knobs.gates {
            return Ok(gate::directory(self.scratch.path()));
        }
        packages::cni_plugins()
    }

    /// The knobs it was started with.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The lab's directory, cgroup and network names.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// A client of its CRI, in the newest version it speaks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A client of its CRI in a version of choice, with a connection of its own.
    ///
    /// # Errors
    ///
    /// When the client's thread cannot be started.
    pub fn client_of(&self, api: Api) -> Result<Client, cri::Error> {
        Client::new(self.socket(), api)
    }

    /// Its shims, by their `-address` argument.
    #[must_use]
    pub fn shims(&self) -> Vec<Shim> {
        shims::find(self.socket())
    }

    /// The process of the shim that serves `sandbox`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn shim_of(&self, sandbox: &str) -> Result<u32> {
        let shim = self.shims().into_iter().find(|shim| shim.sandbox == sandbox);
        shim.map(|shim| shim.pid).with_context(|| format!("sandbox {sandbox} has no shim"))
    }

    /// The socket of the shim that was started for this container or sandbox.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn shim_socket(&self, id: &str) -> Result<PathBuf> {
        let bundle = self.scratch.path().join("state/io.containerd.runtime.v2.task/k8s.io").join(id);
        shims::socket(&bundle).with_context(|| format!("{id} has no shim"))
    }

    /// Its metrics page, within `deadline`.
    ///
    /// # Errors
    ///
    /// When the page does not answer in time.
    pub fn metrics(&self, deadline: Duration) -> Result<Page> {
        Ok(Page::parse(&http::get(self.metrics, "/v1/metrics", deadline)?))
    }

    /// Runs a pod through the CRI, without a kubelet, that waits for ever.
    ///
    /// # Errors
    ///
    /// The CRI call that failed.
    pub fn run_pod(&self, name: &str) -> Result<Pod, cri::Error> {
        self.client.run_pod(&self.pod_spec(name), CALL_LIMIT)
    }

    /// What [`Containerd::run_pod`] runs.
    #[must_use]
    pub fn pod_spec(&self, name: &str) -> PodSpec {
        PodSpec {
            name: name.to_owned(),
            image: image::REFERENCE.to_owned(),
            command: vec!["/pause".to_owned()],
            host_network: self.knobs.network == Network::Host,
            cgroup_parent: self.scratch.cgroup(self.knobs.cgroup_driver),
            log_directory: self.scratch.path().join("logs").join(name),
        }
    }

    fn wait_until_ready(&self) -> Result<()> {
        let log = self.log_path();
        let asked = process::wait_for("an answer of containerd's CRI", READY_LIMIT, || {
            if let Some(status) = self.daemon.ended()? {
                bail!("containerd ended at start ({status})");
            }
            // Errors are the state before readiness: no socket yet, or the CRI plugin is still starting.
            Ok(self.client.version(Duration::from_secs(2)).ok())
        });
        if asked.is_err() {
            // The lab goes with the error, before anything panics.
            let _said = self.scratch.keep_logs(&logs::test_name());
        }
        asked
            .map(drop)
            .with_context(|| format!("containerd is not ready; end of its log:\n{}", log_tail(&log)))
    }

    /// The snapshotter that it uses.
    #[must_use]
    pub fn snapshotter(&self) -> &'static str {
        snapshotter(self.scratch.path())
    }

    /// Its own client, for what the CRI does not offer.
    ///
    /// # Errors
    ///
    /// When its package has none.
    pub fn ctr(&self) -> Result<Command> {
        let mut ctr = Command::new(self.tree.path("usr/bin/ctr")?);
        ctr.arg("-a").arg(self.socket()).args(["-n", "k8s.io"]);
        Ok(ctr)
    }

    fn import(&self, archive: &Path) -> Result<()> {
        self.import_as(archive, image::REFERENCE)
    }

    /// Takes the images of an archive, among which is `reference`, as pods name it in full.
    ///
    /// # Errors
    ///
    /// When its client refuses the archive, or the CRI does not list that image.
    pub fn import_as(&self, archive: &Path, reference: &str) -> Result<()> {
        let mut ctr = self.ctr()?;
        ctr.args(["images", "import", "--snapshotter", self.snapshotter()]).arg(archive);
        host::run(&mut ctr).context("cannot import the image")?;
        process::wait_for("the image in the CRI's list", CALL_LIMIT, || {
            let images = self.client.list_images(CALL_LIMIT)?;
            Ok(images.iter().any(|found| found.repo_tags.iter().any(|tag| tag == reference)).then_some(()))
        })
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.daemon.close();
    }
}

fn configure(scratch: &Scratch, knobs: &Knobs, tree: &Tree, metrics: SocketAddr) -> Result<()> {
    let dir = scratch.path();
    let mut cni_plugins = packages::cni_plugins()?;
    let base_spec = knobs.gates.then(|| dir.join("base-spec.json"));
    if let Some(file) = &base_spec {
        cni_plugins = gate::install(dir, &cni_plugins)?;
        let spec = gate::base_spec(&tree.path("usr/bin/ctr")?, dir)?;
        fs::write(file, spec.to_string()).context("cannot write the base specification")?;
    }
    let settings = Settings {
        generation: knobs.generation,
        dir,
        cni_plugins: &cni_plugins,
        cgroup_driver: knobs.cgroup_driver,
        metrics,
        restrict_oom_score_adj: !host::has_cap_sys_resource(),
        snapshotter: snapshotter(dir),
        base_spec: base_spec.as_deref(),
        nri: knobs.nri,
        largest_message: knobs.large_messages.then_some(128 << 20),
    };
    fs::create_dir(dir.join("net.d")).context("cannot make the CNI directory")?;
    let network = conflist(dir, &scratch.network(), &scratch.bridge(), knobs.gates);
    fs::write(dir.join("net.d/10-lab.conflist"), network).context("cannot write the CNI network")?;
    fs::write(dir.join("config.toml"), toml(&settings)).context("cannot write containerd's configuration")
}

/// An overlay cannot be the upper layer of an overlay, which is what the directory is on inside a container.
fn snapshotter(dir: &Path) -> &'static str {
    if host::is_on_overlayfs(dir) { "native" } else { "overlayfs" }
}

/// What runs: of the packages, or rebuilt with a bug.
#[derive(Debug)]
struct Programs {
    daemon: PathBuf,
    shim: PathBuf,
    runc: PathBuf,
}

impl Programs {
    fn wanted(knobs: &Knobs, tree: &Tree) -> Result<Programs> {
        let packaged = |name: &str| tree.path(&format!("usr/bin/{name}"));
        Ok(Programs {
            daemon: if knobs.deadlocking {
                rebuilt::deadlocking::program()?
            } else {
                packaged("containerd")?
            },
            shim: match knobs.shim {
                ShimBuild::Packaged => packaged("containerd-shim-runc-v2")?,
                ShimBuild::Lossy => rebuilt::lossy_shim::program()?,
                ShimBuild::SelfLocking => rebuilt::self_locking_shim::program()?,
                ShimBuild::Deadlocking => rebuilt::deadlocked_shim::program()?,
            },
            runc: if knobs.rc93 {
                rc93::program()?
            } else {
                packages::runc(knobs.runc)?.path("usr/sbin/runc")?
            },
        })
    }

    /// Where they are found before any other of their names.
    fn path(&self) -> String {
        let directory = |program: &Path| program.parent().unwrap_or(program).display().to_string();
        let [shim, daemon, runc] = [&self.shim, &self.daemon, &self.runc].map(|program| directory(program));
        let inherited = std::env::var("PATH").unwrap_or_default();
        format!("{shim}:{daemon}:{runc}:{inherited}:/usr/sbin:/usr/bin:/sbin:/bin")
    }
}

fn spawn(scratch: &Scratch, programs: &Programs, bus: Option<&str>) -> Result<Daemon> {
    let temporary = temporary(scratch);
    fs::create_dir_all(&temporary).with_context(|| format!("cannot create {}", temporary.display()))?;
    let mut command = Command::new(&programs.daemon);
    command.arg("-c").arg(scratch.path().join("config.toml"));
    if let Some(bus) = bus {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", bus);
    }
    command.env("PATH", programs.path()).env("TMPDIR", temporary).current_dir("/");
    Daemon::start(scratch, command, &scratch.path().join("containerd.log"))
}

/// Where it puts temporary files, so that none stays behind.
fn temporary(scratch: &Scratch) -> PathBuf {
    scratch.path().join("tmp")
}

pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    // After its last word a program in Go writes all its stacks.
    let last_words: Vec<&str> = text.lines().filter(|line| is_fatal(line)).collect();
    format!("{}\n{}", last_words.join("\n"), host::tail(&text, 15)).trim_start().to_owned()
}

/// Does a program end with this line? That of klog begins with `F` and the date.
fn is_fatal(line: &str) -> bool {
    let by_klog =
        line.strip_prefix('F').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    by_klog || line.starts_with("panic: ") || line.starts_with("fatal error: ")
}
