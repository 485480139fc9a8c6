//! Frozen cgroups, of both versions.

use std::{fs, path::PathBuf};

use plegtrace::input::Component;
use plegtrace_lab::{host, process::wait_for};

use super::{HELPER, LIMIT, census, request, target::WaitingProgram};

/// A hierarchy of cgroups that can freeze: where it is mounted, and its files.
#[derive(Clone, Debug)]
struct Hierarchy {
    version: u8,
    point: PathBuf,
    /// The file that freezes, and what is written there to freeze and to thaw.
    switch: (&'static str, [&'static str; 2]),
    /// The file that tells, and its line when all is frozen.
    told: (&'static str, &'static str),
}

impl Hierarchy {
    /// That of version 1, if this machine has it.
    fn v1() -> Option<Hierarchy> {
        let v1 = Hierarchy {
            version: 1,
            point: "/sys/fs/cgroup/freezer".into(),
            switch: ("freezer.state", ["FROZEN", "THAWED"]),
            told: ("freezer.state", "FROZEN"),
        };
        v1.or_declared()
    }

    /// That of version 2, if this machine has it.
    fn v2() -> Option<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let point = mounts.find(|words| words[2] == "cgroup2").map(|words| PathBuf::from(words[1]));
        let v2 = Hierarchy {
            version: 2,
            point: point.unwrap_or_default(),
            switch: ("cgroup.freeze", ["1", "0"]),
            told: ("cgroup.events", "frozen 1"),
        };
        v2.or_declared()
    }

    /// What is not there is declared as a skip.
    fn or_declared(self) -> Option<Hierarchy> {
        if !self.procs().exists() {
            let why = anyhow::anyhow!("no such hierarchy is mounted");
            host::declare_skip(&format!("freezer of cgroups v{}", self.version), &why);
            return None;
        }
        Some(self)
    }

    fn procs(&self) -> PathBuf {
        self.point.join("cgroup.procs")
    }
}

/// A frozen cgroup; thawed and removed when dropped.
struct Frozen(Hierarchy, PathBuf);

impl Frozen {
    fn make(hierarchy: &Hierarchy, pid: u32) -> Frozen {
        let dir = hierarchy.point.join(format!("plegtrace-test-{}-{pid}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let frozen = Frozen(hierarchy.clone(), dir);
        let Hierarchy { switch: (switch, [freeze, _]), told: (file, line), .. } = &frozen.0;
        fs::write(frozen.1.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(frozen.1.join(switch), freeze).unwrap();
        wait_for("a frozen cgroup", LIMIT, || {
            let told = fs::read_to_string(frozen.1.join(file))?;
            Ok(told.lines().any(|told| told == *line).then_some(()))
        })
        .unwrap();
        frozen
    }

    fn path(&self) -> String {
        format!("/{}", self.1.file_name().unwrap().to_string_lossy())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let (file, [_, thaw]) = self.0.switch;
        let _ = fs::write(self.1.join(file), thaw);
        for pid in fs::read_to_string(self.1.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.0.procs(), pid);
        }
        let gone = wait_for("an empty cgroup", LIMIT, || Ok(fs::remove_dir(&self.1).ok()));
        assert!(gone.is_ok() || std::thread::panicking(), "{} is left", self.1.display());
    }
}

/// A frozen component, and a frozen container below a shim that is not frozen itself.
fn is_told(hierarchy: &Hierarchy) {
    let mut shim = WaitingProgram::start("containerd-shim-runc-v2", &["child", HELPER]);
    let workload = shim.child();
    let shim = shim.wait_until_ready();
    let runc = WaitingProgram::start("runc", &["rest"]).wait_until_ready();
    let [of_runc, of_workload] = [runc.pid(), workload].map(|pid| Frozen::make(hierarchy, pid));
    let round = census(&request());
    let freezer = round.process(runc.pid()).freezer.as_ref().expect("a freezer");
    let told = (freezer.version, freezer.state.as_str(), freezer.own);
    assert_eq!(told, (hierarchy.version, "FROZEN", true));
    assert_eq!(freezer.path, of_runc.path());
    let inside = round.process(workload);
    assert_eq!((inside.component, inside.parent), (Component::Helper, shim.pid()));
    assert_eq!(inside.freezer.as_ref().map(|freezer| freezer.path.clone()), Some(of_workload.path()));
    assert_eq!(round.process(shim.pid()).freezer, None);
}

/// By the hierarchy of cgroups v1.
#[test]
fn frozen_by_v1() {
    Hierarchy::v1().iter().for_each(is_told);
}

/// By that of cgroups v2.
#[test]
fn frozen_by_v2() {
    Hierarchy::v2().iter().for_each(is_told);
}
