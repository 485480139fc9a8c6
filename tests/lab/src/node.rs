//! A whole node: containerd, Docker if it is asked for, kubelet and pods that run. Everything is torn down in drop, also when a test panics.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::containerd::Containerd;
use crate::control_plane::{self, ControlPlane};
use crate::cri::Pod;
use crate::docker::Docker;
use crate::knobs::Knobs;
use crate::kubelet::Kubelet;
use crate::process;

/// A node. The kubelet goes first, so that it does not start pods while its runtime is torn down.
#[derive(Debug)]
pub struct Node {
    kubelet: Kubelet,
    control_plane: Option<ControlPlane>,
    docker: Option<Docker>,
    containerd: Containerd,
}

impl Node {
    /// Starts a node and waits until its pods run.
    ///
    /// # Errors
    ///
    /// As for [`Containerd::start`], [`Docker::start`] and [`Kubelet::start`]; what was started is torn down.
    pub fn start(knobs: &Knobs) -> Result<Node> {
        if knobs.docker {
            // Before anything runs.
            Docker::check(knobs.generation)?;
        }
        let containerd = Containerd::start(knobs)?;
        let docker = knobs.docker.then(|| Docker::start(&containerd, knobs)).transpose()?;
        ensure!(
            !(knobs.docker && knobs.control_plane),
            "a node of a control plane has no Docker in this lab"
        );
        let name = containerd.scratch().network();
        let control_plane = match knobs.control_plane {
            true => Some(ControlPlane::start(containerd.scratch(), &name)?),
            false => None,
        };
        let kubelet = match (&docker, &control_plane) {
            (Some(docker), _) => Kubelet::start_on_docker(docker, &containerd, knobs)?,
            (None, Some(plane)) => Kubelet::start_in(plane, &containerd, knobs)?,
            (None, None) => Kubelet::start(&containerd, knobs)?,
        };
        if let Some(plane) = &control_plane {
            control_plane::wait_for_node(plane.kubeconfig(), &name)?;
        }
        Ok(Node { kubelet, control_plane, docker, containerd })
    }

    /// Its name, in its pods' names and in the eyes of an API server.
    #[must_use]
    pub fn name(&self) -> String {
        self.containerd.scratch().network()
    }

    /// Its control plane.
    ///
    /// # Errors
    ///
    /// When it has none.
    pub fn control_plane(&self) -> Result<&ControlPlane> {
        self.control_plane.as_ref().context("the node has no control plane: set Knobs::control_plane")
    }

    /// Its kubelet.
    #[must_use]
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// Its Docker.
    ///
    /// # Errors
    ///
    /// When it has none.
    pub fn docker(&self) -> Result<&Docker> {
        self.docker.as_ref().context("the node has no Docker: set Knobs::docker")
    }

    /// Its runtime, or that of its Docker.
    #[must_use]
    pub fn containerd(&self) -> &Containerd {
        &self.containerd
    }

    /// Keeps its logs, see [`Scratch::keep_logs`](crate::scratch::Scratch::keep_logs).
    #[must_use]
    pub fn keep_logs(&self, name: &str) -> Option<PathBuf> {
        self.containerd.scratch().keep_logs(name)
    }

    /// The running pod `name` (`p1`, `p2` …).
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        let pods = self.kubelet.running_pods()?;
        pods.into_iter().find(|pod| pod.name == name).with_context(|| format!("pod {name} does not run"))
    }

    /// Waits until the kubelet has finished `count` more relists.
    ///
    /// # Errors
    ///
    /// When it does not within `limit`.
    pub fn wait_for_relists(&self, count: u32, limit: Duration) -> Result<()> {
        // For its page the kubelet asks the runtime, too: on a stalled node that may take longer than we wait each time.
        let mut last = None;
        let start = process::wait_for("the kubelet's metrics", limit, || {
            Ok(self.relists().map_err(|error| last = Some(error)).ok())
        });
        let start = start.map_err(|late| match last {
            Some(error) => error.context(late.to_string()),
            None => late,
        })?;
        process::wait_for(&format!("the end of {count} relists"), limit, || {
            // No answer is no relist.
            Ok(self.relists().is_ok_and(|now| now >= start + f64::from(count)).then_some(()))
        })
    }

    /// How many relists the kubelet has finished.
    ///
    /// # Errors
    ///
    /// When its metrics page does not answer.
    pub fn relists(&self) -> Result<f64> {
        let page = self.kubelet.metrics(Duration::from_secs(10))?;
        Ok(page.sum("kubelet_pleg_relist_duration_seconds_count", &[]))
    }
}
