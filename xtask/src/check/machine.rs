//! Files of the repository → places that name the machine they were written on.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cmd;

/// Beginnings of paths that exist on one machine only. Put together here, so that this file does not name them.
fn patterns(workspace: &Path) -> Vec<String> {
    let mut found: Vec<String> =
        ["root", "home", "Users", "tmp/wt", "builds"].iter().map(|dir| format!("/{dir}/")).collect();
    found.push(workspace.display().to_string());
    found
}

/// Looks through everything that git tracks.
///
/// # Errors
/// When git cannot list the files.
pub(crate) fn violations(workspace: &Path) -> Result<Vec<String>> {
    let list = cmd::output(Command::new("git").current_dir(workspace).args(["ls-files", "-z"]))?;
    let patterns = patterns(workspace);
    let mut found = Vec::new();
    for name in list.split('\0').filter(|name| !name.is_empty()) {
        // Neither text nor there (deleted, a link to nowhere): nothing to read.
        let Ok(text) = fs::read_to_string(workspace.join(name)) else { continue };
        for (index, line) in text.lines().enumerate() {
            if let Some(pattern) = patterns.iter().find(|pattern| names(line, pattern)) {
                found.push(format!("{name}:{}: path of a machine: {pattern}", index + 1));
            }
        }
    }
    Ok(found)
}

/// Whether a line holds `pattern` as the beginning of a path, not inside one: a process has a root directory too.
fn names(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"}_-./$*>".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a path counts, the same word inside another path does not.
    #[test]
    fn only_whole_paths_count() {
        let pattern = ["/", "root", "/"].concat();
        assert!(names(&format!("see {pattern}x"), &pattern));
        assert!(names(&format!("\"{pattern}x\""), &pattern));
        assert!(!names(&format!("/proc/1{pattern}etc"), &pattern));
        assert!(!names(&format!("/proc/{{pid}}{pattern}etc"), &pattern));
    }
}
