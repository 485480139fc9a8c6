//! Which versions a machine tests with: the suites move, so a result is worth more with them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::host;
use crate::packages::Suite;

/// Below the root of the cache.
const FILE: &str = "fetched.json";

/// A package of a suite, in one version.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fetched {
    suite: &'static str,
    package: String,
    version: String,
}

/// Writes the list of all packages that the cache at `root` has, and prints it suite by suite.
pub(super) fn write(root: &Path) -> Result<()> {
    let list = list(root)?;
    for of_suite in list.chunk_by(|one, next| one.suite == next.suite) {
        let names = of_suite.iter().map(|one| format!("{} {}", one.package, one.version));
        host::progress(&format!("{}: {}", of_suite[0].suite, names.collect::<Vec<_>>().join(", ")));
    }
    let entries: Vec<_> = list
        .iter()
        .map(|one| json!({ "suite": one.suite, "package": one.package, "version": one.version }))
        .collect();
    let text = serde_json::to_string_pretty(&entries).context("cannot write a list of versions")?;
    fs::write(root.join(FILE), text + "\n").context("cannot note the versions that were fetched")
}

fn list(root: &Path) -> Result<Vec<Fetched>> {
    let mut all = Vec::new();
    for tree in fs::read_dir(root.join("trees")).context("cannot list the packages in the cache")? {
        let tree = tree.context("cannot list the packages in the cache")?;
        let name = tree.file_name().to_string_lossy().into_owned();
        let Some(suite) = suite_of(&name) else { continue };
        let text = fs::read_to_string(tree.path().join("packages.txt")).unwrap_or_default();
        let packages = text.lines().filter_map(|line| line.split_once('_'));
        all.extend(packages.map(|(package, version)| Fetched {
            suite,
            package: package.to_owned(),
            version: version.to_owned(),
        }));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// Of a tree's name: `bookworm-runc`, `bookworm-backports-golang-1.21-go+golang-1.21-src`.
fn suite_of(tree: &str) -> Option<&'static str> {
    let backports = [Suite::BookwormBackports, Suite::TrixieBackports];
    let all = backports.into_iter().chain(Suite::ALL);
    all.map(Suite::name).find(|name| tree.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_of_every_tree_is_noted() {
        let root = tempfile::tempdir().unwrap();
        for (tree, packages) in [
            ("sid-containerd", "containerd_2.1.9+ds1-5\n"),
            ("bookworm-backports-golang-1.21-go", "golang-1.21-go_1.21.8-1\ngolang-1.21-src_1.21.8-1\n"),
            ("what else", "is_here"),
        ] {
            let dir = root.path().join("trees").join(tree);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("packages.txt"), packages).unwrap();
        }
        write(root.path()).unwrap();
        let text = fs::read_to_string(root.path().join(FILE)).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found.as_array().unwrap().len(), 3);
        assert_eq!(found[0]["suite"], "bookworm-backports");
        assert_eq!(found[2], json!({ "suite": "sid", "package": "containerd", "version": "2.1.9+ds1-5" }));
    }
}
