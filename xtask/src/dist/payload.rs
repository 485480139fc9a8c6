//! The files that people get, and where each kind of package puts them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::tarball::Member;

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Program,
    /// A unit of systemd.
    Unit,
    /// A page of the manual, packed.
    Manual,
    /// Completions, for one shell each.
    Bash,
    Zsh,
    Fish,
    /// Data for other programs: alerts, dashboards, manifests.
    Share,
    Document,
}

/// Who decides where files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// An archive that is unpacked anywhere.
    Archive,
    /// A package of Debian, below `/`.
    Debian,
    /// A package of Fedora, RHEL or SUSE, below `/`.
    Rpm,
}

/// A file of the release.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) contents: Vec<u8>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Payload {
    items: Vec<Item>,
}

/// Where the files are that tell other programs how to run plegtrace.
const PACKAGING: &str = "tracer/packaging/";

/// Files of the checkout that are shipped as they are.
const FILES: &[(Role, &str)] = &[
    (Role::Program, "tracer/packaging/kubectl-plegtrace"),
    (Role::Unit, "tracer/packaging/plegtrace.service"),
    (Role::Share, "tracer/packaging/plegtrace-alerts.yml"),
    (Role::Share, "tracer/packaging/plegtrace-dashboard.json"),
    (Role::Share, "tracer/packaging/node-problem-detector.json"),
    (Role::Share, "tracer/packaging/kustomize/daemonset.yaml"),
    (Role::Share, "tracer/packaging/kustomize/kustomization.yaml"),
    (Role::Share, "tracer/packaging/kustomize/debug-pod/debug-pod.yaml"),
    (Role::Share, "tracer/packaging/kustomize/debug-pod/kustomization.yaml"),
    (Role::Document, "README.md"),
    (Role::Document, "tracer/docs/causes.md"),
    (Role::Document, "tracer/docs/guide.md"),
    (Role::Document, "LICENSE-APACHE"),
    (Role::Document, "LICENSE-MIT"),
];

impl Payload {
    /// Reads the files of a checkout; the program and its pages are given.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(crate) fn collect(checkout: &Path, program: &[u8], pages: Vec<Item>) -> Result<Self> {
        let mut items =
            vec![Item { role: Role::Program, name: "plegtrace".to_owned(), contents: program.to_vec() }];
        for (role, path) in FILES {
            let file = checkout.join(path);
            let contents = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let name = [PACKAGING, "tracer/docs/"]
                .iter()
                .find_map(|part| path.strip_prefix(part))
                .unwrap_or(path)
                .to_owned();
            items.push(Item { role: *role, name, contents });
        }
        items.extend(pages);
        Ok(Self { items })
    }

    /// The kustomize bases alone, for who has a cluster and no package.
    pub(crate) fn kustomize(&self) -> Vec<Member> {
        let of_kustomize = self.items.iter().filter(|item| item.name.starts_with("kustomize/"));
        of_kustomize.map(|item| item.member(item.name.clone())).collect()
    }

    /// One file alone, below no directory.
    pub(crate) fn flat(&self, name: &str) -> Option<Member> {
        self.items.iter().find(|item| item.name == name).map(|item| item.member(name.to_owned()))
    }

    /// The files where this layout has them, below `prefix`.
    pub(crate) fn members(&self, layout: Layout, prefix: &str) -> Vec<Member> {
        let path = |item: &Item| format!("{prefix}{}{}", item.role.directory(layout), item.name);
        self.items.iter().map(|item| item.member(path(item))).collect()
    }
}

impl Item {
    fn member(&self, path: String) -> Member {
        let mode = if self.role == Role::Program { 0o755 } else { 0o644 };
        Member { path, mode, contents: self.contents.clone() }
    }
}

impl Role {
    /// The directory, with its slash.
    fn directory(self, layout: Layout) -> &'static str {
        match (layout, self) {
            (Layout::Archive, Self::Program | Self::Unit | Self::Document) => "",
            (Layout::Archive, Self::Manual) => "man/man1/",
            (Layout::Archive, Self::Bash) => "completions/bash/",
            (Layout::Archive, Self::Zsh) => "completions/zsh/",
            (Layout::Archive, Self::Fish) => "completions/fish/",
            (Layout::Archive, Self::Share) => "share/",
            (_, Self::Program) => "usr/bin/",
            (_, Self::Unit) => "usr/lib/systemd/system/",
            (_, Self::Manual) => "usr/share/man/man1/",
            (_, Self::Bash) => "usr/share/bash-completion/completions/",
            // What Debian's zsh searches; elsewhere it is built to search the other.
            (Layout::Debian, Self::Zsh) => "usr/share/zsh/vendor-completions/",
            (Layout::Rpm, Self::Zsh) => "usr/share/zsh/site-functions/",
            (_, Self::Fish) => "usr/share/fish/vendor_completions.d/",
            (_, Self::Share) => "usr/share/plegtrace/",
            (_, Self::Document) => "usr/share/doc/plegtrace/",
        }
    }
}

#[cfg(test)]
impl Payload {
    /// What this checkout ships, with a program and a page for tests.
    pub(crate) fn sample() -> Self {
        let page = Item { role: Role::Manual, name: "plegtrace.1.gz".to_owned(), contents: b"page".to_vec() };
        Self::collect(&crate::paths::workspace(), b"program", vec![page]).expect("the checkout is complete")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit starts the program that a package installs.
    #[test]
    fn the_unit_starts_what_is_installed() {
        let members = Payload::sample().members(Layout::Debian, "/");
        let unit = members.iter().find(|member| member.path.ends_with(".service")).unwrap();
        let text = String::from_utf8(unit.contents.clone()).unwrap();
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let program = start.split(' ').next().unwrap();
        let installed = members.iter().find(|member| member.path == program).unwrap();
        assert_eq!((installed.mode, &installed.contents[..]), (0o755, &b"program"[..]));
    }

    /// node-problem-detector runs the program that a package installs, within its limits.
    #[test]
    fn node_problem_detector_runs_what_is_installed() {
        let members = Payload::sample().members(Layout::Debian, "/");
        let file =
            members.iter().find(|m| m.path == "/usr/share/plegtrace/node-problem-detector.json").unwrap();
        let monitor: serde_json::Value = serde_json::from_slice(&file.contents).unwrap();
        assert_eq!(monitor["plugin"], "custom");
        assert_eq!(monitor["pluginConfig"]["max_output_length"], 80);
        let conditions: Vec<_> =
            monitor["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
        for rule in monitor["rules"].as_array().unwrap() {
            assert!(members.iter().any(|member| rule["path"] == member.path.as_str()), "{rule}");
            assert_eq!(rule["args"], serde_json::json!(["check"]));
            assert!(conditions.contains(&&rule["condition"]), "{rule}");
        }
    }

    /// Each base names only files that are beside it, and all of them; the image is that of this version.
    #[test]
    fn kustomize_finds_its_files_and_the_image() {
        let members = Payload::sample().kustomize();
        let text = |path: &str| {
            let member =
                members.iter().find(|member| member.path == path).unwrap_or_else(|| panic!("no {path}"));
            String::from_utf8(member.contents.clone()).unwrap()
        };
        for (base, resource) in [("", "daemonset.yaml"), ("debug-pod/", "debug-pod.yaml")] {
            let kustomization = text(&format!("kustomize/{base}kustomization.yaml"));
            assert!(kustomization.lines().any(|line| line == format!("resources: [{resource}]")));
            text(&format!("kustomize/{base}{resource}"));
        }
        assert_eq!(members.len(), 4);
        let tag = format!("    newTag: \"{}\"", env!("CARGO_PKG_VERSION"));
        assert!(text("kustomize/kustomization.yaml").lines().any(|line| line == tag), "no {tag}");
    }
}
