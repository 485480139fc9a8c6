//! Frozen cgroups, of both versions.

use std::{fs, path::PathBuf};

use plegtrace::input::Component;
use plegtrace_lab::process::wait_for;

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
    /// Those of this machine; what it lacks is declared.
    fn all() -> Vec<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let unified = mounts.find(|words| words[2] == "cgroup2").map(|words| PathBuf::from(words[1]));
        let v1 = Hierarchy {
            version: 1,
            point: "/sys/fs/cgroup/freezer".into(),
            switch: ("freezer.state", ["FROZEN", "THAWED"]),
            told: ("freezer.state", "FROZEN"),
        };
        let v2 = unified.map(|point| Hierarchy {
            version: 2,
            point,
            switch: ("cgroup.freeze", ["1", "0"]),
            told: ("cgroup.events", "frozen 1"),
        });
        let found = [Some(v1), v2].into_iter().flatten().filter(|one| one.procs().exists());
        let found: Vec<Hierarchy> = found.collect();
        for version in [1, 2] {
            if !found.iter().any(|one| one.version == version) {
                println!("SKIP: no cgroups of version {version} with a freezer");
            }
        }
        found
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

/// A frozen component, and a frozen container below a shim that is not frozen itself; by each version of cgroups.
#[test]
fn frozen() {
    for hierarchy in Hierarchy::all() {
        let mut shim = WaitingProgram::start("containerd-shim-runc-v2", &["child", HELPER]);
        let workload = shim.child();
        let shim = shim.wait_until_ready();
        let runc = WaitingProgram::start("runc", &["rest"]).wait_until_ready();
        let [of_runc, of_workload] = [runc.pid(), workload].map(|pid| Frozen::make(&hierarchy, pid));
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
}
