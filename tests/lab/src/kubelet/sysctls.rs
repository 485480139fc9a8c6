//! Remembers the settings that every kubelet changes for the whole machine (`setupKernelTunables` of
//! `pkg/kubelet/cm/container_manager_linux.go`), so that the teardown can put them back.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const CHANGED: [&str; 6] = [
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/kernel/keys/root_maxbytes",
];

/// Writes the current values into the lab's directory. When another lab runs, its kubelet has changed them already:
/// then that lab's record is the truth.
pub(super) fn save(dir: &Path) -> Result<()> {
    let record = match other_record(dir) {
        Some(record) => record,
        None => current(),
    };
    fs::write(dir.join("sysctls"), record).context("cannot record the machine's settings")
}

fn other_record(dir: &Path) -> Option<String> {
    let base = dir.parent()?;
    let siblings = fs::read_dir(base).ok()?.flatten().map(|entry| entry.path());
    let is_lab = |path: &PathBuf| {
        path != dir
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("plegtrace-lab-"))
    };
    siblings.filter(is_lab).find_map(|path| fs::read_to_string(path.join("sysctls")).ok())
}

fn current() -> String {
    let mut record = String::new();
    for file in CHANGED {
        if let Ok(value) = fs::read_to_string(file) {
            writeln!(record, "{file} {}", value.trim()).expect("writing to a string cannot fail");
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lab_takes_over_the_record_of_the_first() {
        let base = tempfile::tempdir().unwrap();
        let (first, second) = (base.path().join("plegtrace-lab-1"), base.path().join("plegtrace-lab-2"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        save(&first).unwrap();
        assert!(fs::read_to_string(first.join("sysctls")).unwrap().contains("/vm/overcommit_memory "));
        fs::write(first.join("sysctls"), "from before\n").unwrap();
        save(&second).unwrap();
        assert_eq!(fs::read_to_string(second.join("sysctls")).unwrap(), "from before\n");
    }
}
