//! Runs dockerd with everything private on a containerd of ours, and waits until its API answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::api::Api;
use super::config::{Settings, arguments, configuration, file, root, socket};
use super::wrapper;
use crate::containerd::{Containerd, log_tail};
use crate::daemon::Daemon;
use crate::knobs::{Generation, Knobs};
use crate::{host, image, packages, process};

/// From start to an answer; one second on an idle machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For one request on a healthy but busy machine.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Its libraries that a machine need not have.
pub(crate) const LIBRARIES: [&str; 2] = ["libdevmapper1.02.1", "libsystemd0"];

/// A running dockerd with the lab's image. Drop kills it; what it has made is removed with its containerd.
#[derive(Debug)]
pub struct Docker {
    daemon: Daemon,
    program: PathBuf,
    dir: PathBuf,
    api: Api,
}

impl Docker {
    /// Starts the dockerd of the suite of `containerd` on it and loads the image.
    ///
    /// # Errors
    ///
    /// When the suite has no Docker 20.10, its package cannot be had ([`packages::Error::Gone`] in the chain when it left
    /// the archive), or it does not come up; then with the end of its log.
    pub fn start(containerd: &Containerd, knobs: &Knobs) -> Result<Docker> {
        let generation = containerd.knobs().generation;
        Docker::check(generation)?;
        let program = packages::docker(generation.suite())?.path("usr/sbin/dockerd")?;
        host::ensure(&LIBRARIES)?;
        let dir = containerd.scratch().path().to_owned();
        let runc = if host::has_cap_sys_resource() {
            containerd.runc_program().to_owned()
        } else {
            wrapper::install(&dir, containerd.runc_program())?
        };
        let settings = Settings {
            dir: &dir,
            cgroup_driver: knobs.cgroup_driver,
            cgroup: &containerd.scratch().cgroup(knobs.cgroup_driver),
            runc: &runc,
            storage_driver: if host::is_on_overlayfs(&dir) { "vfs" } else { "overlay2" },
        };
        fs::write(configuration(&dir), file(&settings).to_string()).context("cannot write daemon.json")?;
        let mut command = Command::new(&program);
        command.args(arguments(&dir, containerd.socket())).current_dir("/");
        command.env("PATH", containerd.search_path()).env("TMPDIR", dir.join("tmp"));
        let daemon = Daemon::start(containerd.scratch(), command, &dir.join("dockerd.log"))?;
        let docker = Docker { daemon, program, api: Api::new(socket(&dir)), dir };
        docker.wait_until_ready()?;
        docker.load(&image::archive()?)?;
        Ok(docker)
    }

    /// Whether the suite of this containerd has it.
    pub(crate) fn check(generation: Generation) -> Result<()> {
        ensure!(
            generation.has_docker(),
            "the suite of containerd {generation} has no Docker 20.10; use generation 1.4 or 1.6"
        );
        Ok(())
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

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its API.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Where it keeps images, containers and their logs.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        root(&self.dir)
    }

    /// What it printed.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("dockerd.log")
    }

    /// The first process of a running container.
    ///
    /// # Errors
    ///
    /// When it does not run, or dockerd does not answer.
    pub fn process_of(&self, container: &str) -> Result<u32> {
        let answer = self.api.get(&format!("/containers/{container}/json"), CALL_LIMIT)?;
        let pid = answer["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.filter(|pid| *pid > 0).with_context(|| format!("container {container} does not run"))
    }

    /// From now on its log has each request before it is handled, as `Calling GET /v1.40/containers/json`.
    ///
    /// # Errors
    ///
    /// When its configuration cannot be changed, or it does not take it up.
    pub fn log_requests(&self) -> Result<()> {
        let path = configuration(&self.dir);
        let text = fs::read_to_string(&path).context("cannot read daemon.json")?;
        let mut file: Value = serde_json::from_str(&text).context("daemon.json is no JSON")?;
        file["debug"] = true.into();
        fs::write(&path, file.to_string()).context("cannot write daemon.json")?;
        process::signal(self.pid(), libc::SIGHUP)?;
        process::wait_for("a request in dockerd's log", CALL_LIMIT, || {
            self.api.ping(CALL_LIMIT)?;
            let log = fs::read_to_string(self.log_path()).context("dockerd has no log")?;
            Ok(log.contains("Calling GET /_ping").then_some(()))
        })
    }

    fn wait_until_ready(&self) -> Result<()> {
        let asked = process::wait_for("an answer of dockerd", READY_LIMIT, || {
            if let Some(status) = self.daemon.ended()? {
                bail!("dockerd ended at start ({status})");
            }
            // Errors are the state before readiness: no socket yet, or it is still loading.
            Ok(self.api.ping(Duration::from_secs(2)).ok())
        });
        asked
            .with_context(|| format!("dockerd is not ready; end of its log:\n{}", log_tail(&self.log_path())))
    }

    /// dockerd tells of failures in the body of a success, so only the image itself proves that it is there.
    fn load(&self, archive: &Path) -> Result<()> {
        let bytes = fs::read(archive).with_context(|| format!("cannot read {}", archive.display()))?;
        let said = self.api.post("/images/load?quiet=1", "application/x-tar", &bytes, CALL_LIMIT)?;
        let image = self.api.get(&format!("/images/{}/json", image::REFERENCE), CALL_LIMIT);
        image.map(drop).with_context(|| format!("dockerd has not loaded the image: {}", said.trim()))
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.daemon.close();
    }
}
