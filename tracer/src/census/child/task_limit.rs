//! Cgroups that have as many tasks as they may have (Documentation/admin-guide/cgroup-v1/pids.rst, cgroup-v2.rst).

use std::path::Path;

use super::read;
use crate::input::TaskLimit;

/// Cgroups above each other that are looked at.
const MAX_DEPTH: usize = 16;

/// The first cgroup from this one up to `top` that is full. What was refused is counted where it was asked for before Linux 6.11,
/// and since then where the limit is: so it is added up on the way.
pub(super) fn full(group: &Path, top: &Path) -> Option<TaskLimit> {
    let number = |dir: &Path, file: &str| read::text(&dir.join(file)).ok()?.trim().parse::<u64>().ok();
    let mut refused = 0_u64;
    for dir in group.ancestors().take_while(|dir| dir.starts_with(top)).take(MAX_DEPTH) {
        refused = refused.saturating_add(refusals(&read::text(&dir.join("pids.events")).unwrap_or_default()));
        // "max" is no number: there is no limit. The root has none of these files.
        let Some(limit) = number(dir, "pids.max") else { continue };
        let tasks = number(dir, "pids.current").unwrap_or_default();
        if tasks >= limit {
            return Some(TaskLimit { path: dir.display().to_string(), tasks, limit, refused });
        }
    }
    None
}

/// The figure in the line `max 7`.
fn refusals(events: &str) -> u64 {
    let line = events.lines().find_map(|line| line.strip_prefix("max "));
    line.and_then(|figure| figure.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The nearest that is full, with all that was refused on the way to it; without a limit, or below it, nobody is.
    #[test]
    fn the_nearest_that_is_full() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, tasks: &str, limit: &str, events: &str| {
            let dir = root.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            for (file, text) in [("pids.current", tasks), ("pids.max", limit), ("pids.events", events)] {
                fs::write(dir.join(file), format!("{text}\n")).unwrap();
            }
        };
        group("a", "40", "40", "max 2");
        group("a/b", "7", "max", "max 3");
        group("a/b/c", "5", "9", "max 1");
        let of = |path: &str| full(&root.path().join(path), root.path());
        let found = of("a/b/c").unwrap();
        assert_eq!(Path::new(&found.path), root.path().join("a"));
        assert_eq!((found.tasks, found.limit, found.refused), (40, 40, 6));
        group("a/b/c", "9", "9", "max 1");
        assert_eq!(of("a/b/c").map(|it| (it.tasks, it.refused)), Some((9, 1)));
        group("a", "39", "40", "max 2");
        assert_eq!((of("a/b"), of("gone")), (None, None));
    }
}
