//! Processes in a frozen cgroup: those of a container (U4), a shim (S10). Version 1 and 2 of cgroups.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::guard::{EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::node::Node;
use crate::process;

/// The freezer's mount in version 1; where it is missing the machine has version 2.
const FREEZER: &str = "/sys/fs/cgroup/freezer";
/// Where version 2 is mounted: alone, or beside version 1 (systemd's hybrid layout).
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A cgroup that can be frozen.
#[derive(Clone, Debug)]
pub(super) struct Freezer {
    group: PathBuf,
    is_v1: bool,
}

impl Freezer {
    fn root() -> Freezer {
        let v1 = Freezer::version_1().ok();
        v1.or_else(Freezer::unified).unwrap_or_else(|| Freezer { group: UNIFIED[0].into(), is_v1: false })
    }

    /// The root of version 1.
    pub(super) fn version_1() -> Result<Freezer> {
        let group = PathBuf::from(FREEZER);
        ensure!(group.join("cgroup.procs").exists(), "the freezer of version 1 is not mounted");
        Ok(Freezer { group, is_v1: true })
    }

    /// A new cgroup in this one.
    pub(super) fn below(&self, name: &str) -> Result<Freezer> {
        let group = self.group.join(name);
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        Ok(Freezer { group, ..self.clone() })
    }

    /// Is it gone, or can it be removed?
    pub(super) fn remove(&self) -> bool {
        fs::remove_dir(&self.group).is_ok() || !self.group.exists()
    }

    /// The root of version 2, also where version 1 is there as well.
    fn unified() -> Option<Freezer> {
        let mut roots = UNIFIED.iter().map(PathBuf::from);
        let group = roots.find(|root| root.join("cgroup.controllers").exists())?;
        Some(Freezer { group, is_v1: false })
    }

    /// The cgroup below `root` that a process is in.
    pub(super) fn of_process(root: &Freezer, pid: u32) -> Result<Freezer> {
        let text =
            fs::read_to_string(format!("/proc/{pid}/cgroup")).context("cannot read a process's cgroups")?;
        let path = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let wanted = if root.is_v1 { "freezer" } else { "" };
            controllers.split(',').any(|controller| controller == wanted).then_some(path)
        });
        let path = path.with_context(|| format!("process {pid} is in no freezer"))?;
        Ok(Freezer { group: root.group.join(path.trim_start_matches('/')), ..*root })
    }

    /// The file that freezes.
    pub(super) fn file(&self) -> PathBuf {
        self.group.join(if self.is_v1 { "freezer.state" } else { "cgroup.freeze" })
    }

    fn write(&self, frozen: bool) -> Result<()> {
        let word = match (self.is_v1, frozen) {
            (true, true) => "FROZEN",
            (true, false) => "THAWED",
            (false, true) => "1",
            (false, false) => "0",
        };
        fs::write(self.file(), word).with_context(|| format!("cannot write {}", self.file().display()))
    }

    fn is_frozen(&self) -> bool {
        let file = if self.is_v1 { "freezer.state" } else { "cgroup.events" };
        let text = fs::read_to_string(self.group.join(file)).unwrap_or_default();
        if self.is_v1 { text.trim() == "FROZEN" } else { text.lines().any(|line| line == "frozen 1") }
    }

    pub(super) fn freeze(&self) -> Result<()> {
        self.write(true)?;
        process::wait_for("a frozen cgroup", EFFECT_LIMIT, || Ok(self.is_frozen().then_some(())))
    }

    /// A cgroup that is gone needs no thaw.
    pub(super) fn thaw(&self) -> Result<()> {
        if self.file().exists() { self.write(false) } else { Ok(()) }
    }

    /// Freezes it, and does not wait until all in it are.
    pub(super) fn begin_freezing(&self) -> Result<()> {
        self.write(true)
    }

    /// Moves one thread, which only version 1 can do alone.
    pub(super) fn admit_thread(&self, thread: u32) -> Result<()> {
        fs::write(self.group.join("tasks"), thread.to_string())
            .with_context(|| format!("cannot move thread {thread} to {}", self.group.display()))
    }

    fn admit(&self, pid: u32) -> Result<()> {
        fs::write(self.group.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move process {pid} to {}", self.group.display()))
    }
}

/// Freezes a container of its own in the sandbox of `pod`, then stops it (StopContainer): its SIGTERM is not delivered.
///
/// # Errors
///
/// When the container cannot be made or frozen.
pub fn frozen_container(node: &Node, pod: &Pod) -> Result<Fault> {
    let client = node.containerd().client();
    let container = extra::create(node, pod, "frozen", None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    client.start_container(&container, super::guard::CALL_LIMIT)?;
    let victims = process::wait_for("the container's process", EFFECT_LIMIT, || {
        let inside = process::in_cgroup(&container);
        // The first process of a namespace gets no signal for which it has no handler, not even later.
        let runs = |&pid: &u32| process::name(pid) == "pause" && process::catches(pid, libc::SIGTERM);
        Ok(inside.iter().any(runs).then_some(inside))
    })?;
    let freezer = Freezer::of_process(&Freezer::root(), victims[0])?;
    let thaw = freezer.clone();
    let guard = guard.healed_by(move || thaw.thaw());
    freezer.freeze()?;
    let id = container.clone();
    let call =
        Call::start(client, "StopContainer", move |client| client.stop_container(&id, HANGING, HANGING))?;
    let ids = vec![pod.sandbox.clone(), container];
    let facts = Facts { victims, pod: pod.name.clone(), ids, path: Some(freezer.file()), ..Facts::default() };
    Ok(guard.with(facts).holding(call))
}

/// Freezes the shim of `pod` in a cgroup of its own: an ExecSync into the pod hangs.
///
/// # Errors
///
/// When the shim cannot be found, moved or frozen.
pub fn frozen_shim(node: &Node, pod: &Pod) -> Result<Fault> {
    frozen_shim_below(&Freezer::root(), node, pod)
}

/// The same by version 2 of cgroups, also where everything else is in version 1; `None` where it is not mounted.
///
/// # Errors
///
/// As [`frozen_shim`].
pub fn frozen_shim_unified(node: &Node, pod: &Pod) -> Result<Option<Fault>> {
    Freezer::unified().map(|root| frozen_shim_below(&root, node, pod)).transpose()
}

fn frozen_shim_below(root: &Freezer, node: &Node, pod: &Pod) -> Result<Fault> {
    let containerd = node.containerd();
    let shim = containerd.shim_of(&pod.sandbox)?;
    let home = Freezer::of_process(root, shim)?;
    // Below the lab's own, so that the janitor finds it. Not a slice with the systemd driver: nobody asks systemd for it.
    let parent = root.group.join(containerd.scratch().network());
    let freezer = Freezer { group: parent.join("frozen-shim"), ..root.clone() };
    fs::create_dir_all(&freezer.group).context("cannot make a cgroup")?;
    let ids = vec![pod.sandbox.clone(), pod.container.clone()];
    let path = Some(freezer.file());
    let facts = Facts { culprits: vec![shim], pod: pod.name.clone(), ids, path, ..Facts::default() };
    let (healed, identity) = (freezer.clone(), process::identity(shim));
    let fault = Fault::new(facts).healed_by(move || {
        healed.thaw()?;
        if process::identity(shim) == identity {
            home.admit(shim)?;
        }
        process::wait_for("the end of the shim's cgroup", EFFECT_LIMIT, || Ok(healed.remove().then_some(())))
    });
    freezer.admit(shim)?;
    freezer.freeze()?;
    let container = pod.container.clone();
    let call = Call::start(containerd.client(), "ExecSync", move |client| {
        client.exec_sync(&container, &["true"], HANGING).map(drop)
    })?;
    Ok(fault.holding(call))
}
