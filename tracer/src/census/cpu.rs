//! [`CpuReader`]: what kubelet and runtime get of the processors. Nothing of it waits for the process that it is about:
//! `schedstat` is two counters of a thread, `cpu.stat` those of a cgroup (Documentation/scheduler/sched-stats.rst,
//! sched-bwc.rst; Documentation/admin-guide/cgroup-v2.rst).

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    runners::Runners,
    text::{schedstat, throttling, total_pressure_ns},
};
use crate::input::{CpuFact, DaemonCpu, QuotaFact};

/// Threads of one process that are looked at.
const MAX_THREADS: usize = 512;
/// Cgroups above each other that are looked at.
const MAX_LEVELS: usize = 8;
/// Each of these files is shorter.
const MAX_BYTES: u64 = 4096;
/// Who waits longer than this share of the time, in percent, lets us ask who runs.
const WAITS: u64 = 10;

/// Reads it again and again.
#[derive(Debug)]
pub struct CpuReader {
    proc: PathBuf,
    daemons: BTreeMap<u32, Daemon>,
    runners: Runners,
    /// When it was read last.
    last_ns: u64,
}

#[derive(Debug, Default)]
struct Daemon {
    /// Directory of its cgroup with the controller of processors, once it is known.
    group: Option<PathBuf>,
    /// What each thread had run and waited at the last look; `None` before the first.
    threads: Option<HashMap<u32, (u64, u64)>>,
    ran_ns: u64,
    waited_ns: u64,
    left_out: u32,
}

impl Default for CpuReader {
    fn default() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            daemons: BTreeMap::new(),
            runners: Runners::default(),
            last_ns: 0,
        }
    }
}

impl CpuReader {
    /// In which cgroup a process is, as the census found it: to ask for that can wait, to read its counters cannot.
    pub fn belongs(&mut self, pid: u32, group: &Path) {
        self.daemons.entry(pid).or_default().group = Some(group.to_owned());
    }

    /// Looks at these processes, and forgets others.
    pub fn read(&mut self, pids: &[u32], at_ns: u64) -> CpuFact {
        self.daemons.retain(|pid, _| pids.contains(pid));
        let (mut daemons, mut waits) = (Vec::new(), false);
        let long_ns = at_ns.saturating_sub(self.last_ns) / 100 * WAITS;
        self.last_ns = at_ns;
        for pid in pids {
            let daemon = self.daemons.entry(*pid).or_default();
            let before = daemon.waited_ns;
            daemon.look(&self.proc.join(pid.to_string()).join("task"));
            waits |= daemon.waited_ns.saturating_sub(before) > long_ns;
            daemons.push(DaemonCpu {
                pid: *pid,
                ran_ns: daemon.ran_ns,
                waited_ns: daemon.waited_ns,
                threads: daemon
                    .threads
                    .as_ref()
                    .map_or(0, |all| u32::try_from(all.len()).unwrap_or(u32::MAX)),
                left_out: daemon.left_out,
                quotas: daemon.group.as_deref().map(quotas).unwrap_or_default(),
            });
        }
        let pressure = text(&self.proc.join("pressure/cpu"));
        let pressure_ns = pressure.and_then(|text| total_pressure_ns(&text, "some"));
        let runners = if waits { self.runners.look(&self.proc) } else { Vec::new() };
        if !waits {
            self.runners.rest();
        }
        CpuFact { at_ns, daemons, pressure_ns, runners }
    }
}

impl Daemon {
    /// Adds what its threads ran and waited since the last look.
    fn look(&mut self, tasks: &Path) {
        let mut now = HashMap::new();
        let entries = fs::read_dir(tasks).into_iter().flatten().flatten();
        let tids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for tid in tids.iter().take(MAX_THREADS) {
            let Some(times) = text(&tasks.join(tid.to_string()).join("schedstat")) else { continue };
            now.extend(schedstat(&times).map(|times| (*tid, times)));
        }
        // What was not looked at before is young, unless there were too many.
        let all_known = self.left_out == 0;
        if let Some(before) = &self.threads {
            for (tid, (ran, waited)) in &now {
                let fresh = if all_known { (0, 0) } else { (*ran, *waited) };
                let (ran_before, waited_before) = before.get(tid).copied().unwrap_or(fresh);
                self.ran_ns = self.ran_ns.saturating_add(ran.saturating_sub(ran_before));
                self.waited_ns = self.waited_ns.saturating_add(waited.saturating_sub(waited_before));
            }
        }
        self.left_out = u32::try_from(tids.len().saturating_sub(MAX_THREADS)).unwrap_or(u32::MAX);
        self.threads = Some(now);
    }
}

/// The quotas over a cgroup. Where the files are missing, its tree ends, or has no such controller.
fn quotas(group: &Path) -> Vec<QuotaFact> {
    let mut found = Vec::new();
    for dir in group.ancestors().take(MAX_LEVELS) {
        let quota = match (text(&dir.join("cpu.max")), text(&dir.join("cpu.cfs_quota_us"))) {
            (Some(v2), _) => {
                v2.trim().split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))
            }
            (None, Some(v1)) => text(&dir.join("cpu.cfs_period_us")).map(|period| (v1, period)),
            (None, None) => break,
        };
        let number = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1000);
        // "max" and -1 are no numbers: there is none.
        let Some((quota_ns, period_ns)) =
            quota.and_then(|(quota, period)| Some((number(&quota)?, number(&period)?)))
        else {
            continue;
        };
        let Some(stat) = text(&dir.join("cpu.stat")).map(|stat| throttling(&stat)) else { continue };
        found.push(QuotaFact { path: dir.display().to_string(), quota_ns, period_ns, ..stat });
    }
    found
}

pub(super) fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn reader(root: &Path) -> CpuReader {
        CpuReader { proc: root.join("proc"), ..CpuReader::default() }
    }

    /// Sums grow with what threads ran and waited since the first look, those that came later included; those that went
    /// take nothing back.
    #[test]
    fn sums_since_the_first_look() {
        let root = tempfile::tempdir().unwrap();
        let thread =
            |tid: u32, times: &str| write(root.path(), &format!("proc/7/task/{tid}/schedstat"), times);
        let mut reader = reader(root.path());
        let mut read = || {
            let fact = reader.read(&[7], 1);
            (fact.daemons[0].ran_ns, fact.daemons[0].waited_ns, fact.daemons[0].threads)
        };
        thread(7, "1000 500 3\n");
        thread(8, "10 20 1\n");
        assert_eq!(read(), (0, 0, 2));
        thread(7, "1100 700 4\n");
        thread(9, "5 6 1\n");
        assert_eq!(read(), (105, 206, 3));
        fs::remove_dir_all(root.path().join("proc/7/task/7")).unwrap();
        thread(8, "11 20 1\n");
        assert_eq!(read(), (106, 206, 2));
    }

    /// Quotas of version 1 and 2, of the cgroup and of those above it; without one nothing is told.
    #[test]
    fn quotas_of_both_versions() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("v1/a/cpu.cfs_quota_us", "1500\n"),
            ("v1/a/cpu.cfs_period_us", "100000\n"),
            ("v1/a/cpu.stat", "nr_periods 10\nnr_throttled 9\nthrottled_time 8000\n"),
            ("v1/a/b/cpu.cfs_quota_us", "-1\n"),
            ("v1/a/b/cpu.cfs_period_us", "100000\n"),
            ("v1/a/b/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
            ("v2/c/cpu.max", "20000 100000\n"),
            ("v2/c/cpu.stat", "usage_usec 1\nnr_periods 4\nnr_throttled 2\nthrottled_usec 7\n"),
            ("v2/d/cpu.max", "max 100000\n"),
            ("v2/d/cpu.stat", "usage_usec 1\n"),
        ] {
            write(root.path(), path, text);
        }
        let of = |group: &str| {
            let found = quotas(&root.path().join(group));
            let fact =
                |it: &QuotaFact| (it.quota_ns, it.period_ns, it.periods, it.throttled, it.throttled_ns);
            found.iter().map(fact).collect::<Vec<_>>()
        };
        assert_eq!(of("v1/a/b"), [(1_500_000, 100_000_000, 10, 9, 8000)]);
        assert_eq!(of("v2/c"), [(20_000_000, 100_000_000, 4, 2, 7000)]);
        assert_eq!(of("v2/d"), []);
        assert_eq!(of("gone"), []);
    }

    /// While a daemon waits, those that run are reported, the one that ran most first; before and after, nobody is asked.
    #[test]
    fn who_runs_while_others_wait() {
        const S: u64 = 1_000_000_000;
        let root = tempfile::tempdir().unwrap();
        let mut reader = reader(root.path());
        let mut at = |second: u64, waited: u64, ticks: [u64; 2]| {
            write(root.path(), "proc/7/task/7/schedstat", &format!("1000 {waited} 3\n"));
            for (pid, ticks) in [(8, ticks[0]), (9, ticks[1])] {
                let stat = format!("{pid} (a) b) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 5 0 0 20 0 1 0 4 0 0\n");
                write(root.path(), &format!("proc/{pid}/stat"), &stat);
            }
            let told = reader.read(&[7], second * S).runners;
            told.into_iter().map(|it| (it.pid, it.comm, it.ran_ns / 1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(at(1, 0, [10, 10]), []);
        assert_eq!(at(2, S / 5, [20, 80]), [], "the first look");
        let runs = |pid, ms| (pid, "a) b".to_owned(), ms);
        assert_eq!(at(3, S / 2, [30, 180]), [runs(9, 1000), runs(8, 100)]);
        assert_eq!(at(4, S / 2 + S / 20, [40, 190]), [], "it does not wait any more");
    }

    /// The cgroup is told before or after the first look, and forgotten with the process.
    #[test]
    fn cgroups_of_daemons() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "g/cpu.max", "1000 100000\n");
        write(root.path(), "g/cpu.stat", "nr_periods 4\n");
        write(root.path(), "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n");
        let mut reader = reader(root.path());
        let group = root.path().join("g").display().to_string();
        reader.belongs(7, Path::new(&group));
        let fact = reader.read(&[7], 2);
        assert_eq!((fact.daemons[0].quotas.len(), fact.pressure_ns), (1, Some(12_000)));
        reader.read(&[8], 3);
        assert_eq!(reader.read(&[7], 4).daemons[0].quotas.len(), 0);
    }
}
