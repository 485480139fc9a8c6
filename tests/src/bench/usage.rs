//! `/proc/PID/stat` and `status` → processor time and memory of a process, and of a process with all its children.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use plegtrace_lab::process;

/// What a process and its children have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time of the process itself.
    pub(crate) own: Duration,
    /// Processor time of all its descendants: those that live, and those that were waited for.
    pub(crate) children: Duration,
    /// Resident memory of the process, bytes.
    pub(crate) rss: u64,
    /// Resident memory of its descendants that live, bytes; what they share counts for each.
    pub(crate) children_rss: u64,
}

impl Usage {
    /// What `pid` has used so far. Only a missing process is an error; a descendant that ends meanwhile is left out.
    ///
    /// # Errors
    ///
    /// There is no such process.
    pub(crate) fn read(pid: u32) -> Result<Usage> {
        let children = descendants(pid);
        let stat = stat(pid).with_context(|| format!("process {pid} has gone"))?;
        let mut usage = Usage { own: stat.own, children: stat.waited_for, rss: rss(pid), children_rss: 0 };
        for child in children {
            if let Some(stat) = self::stat(child) {
                usage.children += stat.own + stat.waited_for;
                usage.children_rss += rss(child);
            }
        }
        Ok(usage)
    }
}

/// Processor time of a process without its children.
///
/// # Errors
///
/// There is no such process.
pub(super) fn processor_time(pid: u32) -> Result<Duration> {
    Ok(stat(pid).with_context(|| format!("process {pid} has gone"))?.own)
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    own: Duration,
    waited_for: Duration,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 to 17 of proc(5): user and system time, own and of children that were waited for, in clock ticks.
fn parse(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, system, children_user, children_system] = ticks[..] else { return None };
    Some(Stat { own: time(user + system), waited_for: time(children_user + children_system) })
}

/// USER_HZ is 100 on every architecture that Linux runs containers on.
fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Children, their children and so on, as far as the kernel lists them; else by the parents of all processes.
fn descendants(pid: u32) -> Vec<u32> {
    let by_parent =
        if Path::new("/proc/self/task").join(std::process::id().to_string()).join("children").exists() {
            None
        } else {
            Some(by_parent())
        };
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        let children = match &by_parent {
            Some(all) => all.get(&parent).cloned().unwrap_or_default(),
            None => listed_children(parent),
        };
        next.extend(&children);
        found.extend(children);
    }
    found
}

fn listed_children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn by_parent() -> HashMap<u32, Vec<u32>> {
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in process::all() {
        if let Some(parent) = process::parent(pid) {
            found.entry(parent).or_default().push(pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A hostile name does not move the fields.
    #[test]
    fn times_are_read() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 7 3 20 0";
        let expected = Stat { own: Duration::from_secs(2), waited_for: Duration::from_millis(100) };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a) S 1"), None);
    }

    /// A child's memory and, once it has burnt some, its time are counted, also below another child.
    #[test]
    fn children_are_counted() {
        let script =
            "sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo; exec sleep 1000' & wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let seen = process::wait_for("the work of the grandchild", Duration::from_secs(60), || {
            let usage = Usage::read(child.id())?;
            Ok((usage.children >= Duration::from_millis(50)).then_some(usage))
        });
        let grandchildren = descendants(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        grandchildren.iter().for_each(|pid| drop(process::signal(*pid, libc::SIGKILL)));
        let seen = seen.unwrap();
        assert!(seen.children_rss > 0 && seen.rss > 0, "{seen:?}");
        assert!(Usage::read(u32::MAX).is_err());
    }
}
