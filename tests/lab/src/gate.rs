//! A program that stands in the way of containers and pods when a fault asks it to: the lab's own CNI plugin and OCI
//! hook (`gate.c`). With [`crate::Knobs::gates`] it runs at every ADD and around every container, and lets all pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{cache, host, image};

const SOURCE: &str = include_str!("gate.c");
/// Name of the program, as a CNI plugin also its `type`.
pub const NAME: &str = "lab-gate";

/// Where the gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// ADD of a CNI plugin, by the pod's name.
    Cni,
    /// DEL of a CNI plugin, by the pod's name.
    CniDelete,
    /// The hook inside `runc create`, by the container's id.
    CreateRuntime,
    /// The hook inside `runc delete`, by the container's id.
    Poststop,
}

impl Place {
    /// As in the name of the file that closes it; the hooks' are those of the runtime specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Place::Cni => "cni",
            Place::CniDelete => "cniDelete",
            Place::CreateRuntime => "createRuntime",
            Place::Poststop => "poststop",
        }
    }
}

/// What happens at a closed gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Wait that many seconds, then let pass.
    Sleep(u32),
    /// Wait that long, or until the gate is opened, then let pass.
    Take(Duration),
    /// Take the lock on a file (flock(2)), then wait that many seconds.
    Lock(PathBuf, u32),
    /// Ask the agent that listens at this path, and wait for its answer.
    Ask(PathBuf),
    /// Fail at once, as a CNI plugin with these words, which have no quotes in them.
    Fail(String),
}

/// Stands for every name of a place that has no order of its own.
pub const ALL: &str = "all";

/// Closes the gate at `place` for `name` in the lab in `dir`, until the file that is given back is removed.
///
/// # Errors
///
/// When the file cannot be written.
pub fn close(dir: &Path, place: Place, name: &str, order: &Order) -> Result<PathBuf> {
    let file = dir.join("gates").join(format!("{}-{name}", place.name()));
    let text = match order {
        Order::Sleep(seconds) => format!("sleep {seconds}\n"),
        Order::Take(time) => format!("take {:.3}\n", time.as_secs_f64()),
        Order::Lock(path, seconds) => format!("flock {} {seconds}\n", path.display()),
        Order::Ask(path) => format!("ask {}\n", path.display()),
        Order::Fail(words) => format!("fail {words}\n"),
    };
    fs::write(&file, text).context("cannot close a gate; does the lab have them (Knobs::gates)?")?;
    Ok(file)
}

/// What each of those took, by its own clock, who had to wait at `place` in the lab in `dir` so far.
///
/// # Errors
///
/// When what they wrote cannot be read.
pub fn passed(dir: &Path, place: Place) -> Result<Vec<Duration>> {
    let file = dir.join("gates/passed");
    let text = if file.exists() {
        fs::read_to_string(file).context("cannot read a gate's log")?
    } else {
        String::new()
    };
    let taken = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let taken = (words.next() == Some(place.name())).then(|| words.nth(1)?.parse().ok());
        taken.flatten().map(Duration::from_millis)
    });
    Ok(taken.collect())
}

/// The program in the cache, made when it is not there yet.
///
/// # Errors
///
/// When the C compiler fails.
pub(crate) fn program() -> Result<PathBuf> {
    // Checkouts with another gate share the cache.
    let dir = cache::entry(&format!("gate-{}", &image::sha256(SOURCE.as_bytes())[..12]), |dir| {
        let source = dir.join("gate.c");
        fs::write(&source, SOURCE).context("cannot write gate.c")?;
        host::run(Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(dir.join(NAME)).arg(&source))
            .context("cannot compile the gate; install a C compiler (apt-get install gcc libc6-dev)")
            .map(drop)
    })?;
    Ok(dir.join(NAME))
}

/// Puts the gate of the lab in `dir` and the CNI plugins below `plugins` into one directory, and gives that directory:
/// containerd reads one only.
pub(crate) fn install(dir: &Path, plugins: &Path) -> Result<PathBuf> {
    let bin = directory(dir);
    for made in [&bin, &dir.join("gates")] {
        fs::create_dir(made).with_context(|| format!("cannot make {}", made.display()))?;
    }
    for entry in fs::read_dir(plugins).context("cannot list the CNI plugins")? {
        let plugin = entry.context("cannot list the CNI plugins")?;
        std::os::unix::fs::symlink(plugin.path(), bin.join(plugin.file_name()))
            .context("cannot link a CNI plugin")?;
    }
    fs::copy(program()?, bin.join(NAME)).context("cannot install the gate")?;
    Ok(bin)
}

/// Where [`install`] puts them.
pub(crate) fn directory(dir: &Path) -> PathBuf {
    dir.join("cni-bin")
}

/// The default specification that `ctr` prints, with the gate as hooks.
pub(crate) fn base_spec(ctr: &Path, dir: &Path) -> Result<Value> {
    let text = host::run(Command::new(ctr).args(["oci", "spec"]))?;
    let mut spec: Value = serde_json::from_str(&text).context("ctr printed a bad specification")?;
    spec["hooks"] = hooks(dir);
    Ok(spec)
}

/// The hooks of the gate in the lab in `dir`. They get the mark: a hook's environment is not inherited.
pub(crate) fn hooks(dir: &Path) -> Value {
    let hook = |place: Place| {
        let mark = format!("PLEGTRACE_LAB={}", dir.display());
        json!([{ "path": directory(dir).join(NAME), "args": [NAME, place.name()], "env": [mark] }])
    };
    json!({ "createRuntime": hook(Place::CreateRuntime), "poststop": hook(Place::Poststop) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Child, Stdio};

    use crate::process;

    fn gate(dir: &Path, args: &[&str], cni: Option<&str>, input: &str) -> Child {
        let mut command = Command::new(program().unwrap());
        command.args(args).env("PLEGTRACE_LAB", dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(pod) = cni {
            command
                .env("CNI_COMMAND", "ADD")
                .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAME={pod};X=1"));
        }
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child
    }

    #[test]
    fn the_gate_is_open_for_all_but_the_one_it_is_closed_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("gates")).unwrap();
        let state = |id: &str| format!("{{\"ociVersion\":\"1.0\",\"id\":\"{id}\",\"status\":\"creating\"}}");
        let limit = Duration::from_secs(10);
        let file = close(dir.path(), Place::CreateRuntime, "abc", &Order::Sleep(600)).unwrap();
        assert!(
            process::wait(&mut gate(dir.path(), &["createRuntime"], None, &state("other")), limit)
                .unwrap()
                .success()
        );
        assert!(
            process::wait(&mut gate(dir.path(), &["poststop"], None, &state("abc")), limit)
                .unwrap()
                .success()
        );
        let answer = gate(dir.path(), &[], Some("abc"), "{}").wait_with_output().unwrap();
        assert!(serde_json::from_slice::<Value>(&answer.stdout).unwrap()["ips"].is_array());

        let mut held = gate(dir.path(), &["createRuntime"], None, &state("abc"));
        let pid = held.id();
        process::wait_for("a sleeping gate", limit, || {
            Ok(process::blocked_threads(pid)
                .iter()
                .any(|thread| thread.syscall == libc::SYS_clock_nanosleep)
                .then_some(()))
        })
        .unwrap();
        held.kill().unwrap();
        held.wait().unwrap();
        fs::remove_file(file).unwrap();
        assert!(
            process::wait(&mut gate(dir.path(), &["createRuntime"], None, &state("abc")), limit)
                .unwrap()
                .success()
        );
    }

    #[test]
    fn a_plugin_that_fails_says_why() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("gates")).unwrap();
        close(dir.path(), Place::Cni, "abc", &Order::Fail("no subnet".into())).unwrap();
        let answer = gate(dir.path(), &[], Some("abc"), "{}").wait_with_output().unwrap();
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap();
        assert!(!answer.status.success() && said["msg"] == "no subnet", "{said}");
    }

    #[test]
    fn a_gate_that_is_slow_for_all_says_what_each_took() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("gates")).unwrap();
        let taken = Duration::from_millis(120);
        close(dir.path(), Place::Cni, ALL, &Order::Take(taken)).unwrap();
        for pod in ["p1", "p2"] {
            gate(dir.path(), &[], Some(pod), "{}").wait_with_output().unwrap();
        }
        let passed = passed(dir.path(), Place::Cni).unwrap();
        assert!(passed.len() == 2 && passed.iter().all(|one| *one >= taken), "{passed:?}");
        assert_eq!(super::passed(dir.path(), Place::Poststop).unwrap(), []);
    }
}
