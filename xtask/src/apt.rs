//! Debian's package manager: what it offers, what is installed, and installing without questions.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;
use crate::progress::step;

/// Whether apt is there at all.
pub(crate) fn present() -> bool {
    Path::new("/usr/bin/apt-get").exists()
}

/// Names of the packages that begin with `prefix`.
///
/// # Errors
/// When apt-cache fails.
pub(crate) fn names(prefix: &str) -> Result<Vec<String>> {
    let text = cmd::output(Command::new("apt-cache").args(["pkgnames", prefix]))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The version apt would install, by package; packages without one are left out.
///
/// # Errors
/// When apt-cache fails.
pub(crate) fn candidates(packages: &[String]) -> Result<BTreeMap<String, String>> {
    if packages.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = cmd::output(Command::new("apt-cache").env("LC_ALL", "C").arg("policy").args(packages))?;
    Ok(parse_policy(&text))
}

/// The LLVM library that a compiler package depends on, directly or through its own libraries.
///
/// # Errors
/// When apt-cache fails.
pub(crate) fn llvm_of(package: &str) -> Result<Option<u32>> {
    let options = ["--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"];
    let text =
        cmd::output(Command::new("apt-cache").env("LC_ALL", "C").arg("depends").args(options).args([
            "--no-replaces",
            "--no-enhances",
            package,
        ]))?;
    Ok(parse_llvm(&text))
}

/// Installs packages without asking anything: refreshes the package lists only when the first try fails, because
/// lists that are good enough need not be fetched again.
///
/// # Errors
/// When apt cannot install them; the message holds the command.
pub(crate) fn install(packages: &[String]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    step("setup", &format!("apt-get install {}", missing.join(" ")));
    let log = crate::paths::target().join("setup-logs/apt.log");
    if cmd::run_logged(&mut install_command(&missing)?, &log).is_ok() {
        return Ok(());
    }
    update()?;
    cmd::run_logged(&mut install_command(&missing)?, &log)
        .with_context(|| format!("run `apt-get install {}` and try again", missing.join(" ")))
}

/// Refreshes the package lists.
///
/// # Errors
/// When apt-get update fails.
pub(crate) fn update() -> Result<()> {
    step("setup", "apt-get update");
    let log = crate::paths::target().join("setup-logs/apt-update.log");
    let mut command = apt_get()?;
    cmd::run_logged(command.arg("update"), &log).context("run `apt-get update` and try again")
}

fn install_command(packages: &[String]) -> Result<Command> {
    let mut command = apt_get()?;
    command.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    Ok(command)
}

/// apt-get that never asks and waits for another apt to finish.
fn apt_get() -> Result<Command> {
    let mut command = cmd::as_root("env")?;
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=600"]);
    Ok(command)
}

/// Where to get Debian's suites from: `$PLEGTRACE_DEBIAN_MIRROR`, else where this machine gets its own packages;
/// `None` on other distributions.
pub(crate) fn debian_mirror() -> Option<String> {
    if let Some(own) = std::env::var("PLEGTRACE_DEBIAN_MIRROR").ok().filter(|value| !value.is_empty()) {
        return Some(own);
    }
    let format = "$(ORIGIN)|$(RELEASE)|$(REPO_URI)";
    let text = cmd::output(Command::new("apt-get").args(["indextargets", "--format", format])).ok()?;
    parse_mirror(&text)
}

/// Security and other side archives do not have the suites.
fn parse_mirror(targets: &str) -> Option<String> {
    let mirror = |line: &str| {
        let (origin, rest) = line.split_once('|')?;
        let (release, uri) = rest.split_once('|')?;
        (origin == "Debian" && !release.contains('-')).then(|| uri.to_owned())
    };
    targets.lines().find_map(mirror)
}

/// Those of `packages` that dpkg does not have completely installed.
fn missing(packages: &[String]) -> Vec<String> {
    let query = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(packages)
        .output();
    let text = query.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let installed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    packages.iter().filter(|p| !installed.contains(&p.as_str())).cloned().collect()
}

fn parse_policy(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut package = "";
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|l| !l.starts_with(' ')) {
            package = name;
        } else if let Some(version) = line.trim().strip_prefix("Candidate: ")
            && version != "(none)"
        {
            found.insert(package.to_owned(), version.to_owned());
        }
    }
    found
}

/// In the output of `apt-cache depends --recurse`, only what packages of the Rust compiler depend on counts.
fn parse_llvm(text: &str) -> Option<u32> {
    let mut of_rust = false;
    text.lines().find_map(|line| {
        if !line.starts_with([' ', '|', '<']) {
            of_rust = line.contains("rust");
        }
        let library = line.trim().strip_prefix("Depends: libllvm").filter(|_| of_rust)?;
        let digits: String = library.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package without a candidate is as good as none.
    #[test]
    fn policy_lists_candidates() {
        let text = "rustc:\n  Installed: (none)\n  Candidate: 1.63.0+dfsg1-2\n  Version table:\n     1.63.0+dfsg1-2 500\n\
                    gone:\n  Installed: (none)\n  Candidate: (none)\n";
        let found = parse_policy(text);
        assert_eq!(found.get("rustc").map(String::as_str), Some("1.63.0+dfsg1-2"));
        assert_eq!(found.len(), 1);
    }

    /// The main archive is taken, not the security archive and not somebody else's.
    #[test]
    fn mirror_is_the_main_archive() {
        let text = "Debian|bookworm-security|http://a/security/\nOther|bookworm|http://b/\nDebian|bookworm|http://c/debian/\n";
        assert_eq!(parse_mirror(text).as_deref(), Some("http://c/debian/"));
        assert_eq!(parse_mirror("Ubuntu|noble|http://d/\n"), None);
    }

    /// The compiler's LLVM is told apart from that of an unrelated package in the same tree of dependencies.
    #[test]
    fn llvm_is_that_of_the_compiler() {
        let text = "rustc-web\n  Depends: libc6\nmesa\n  Depends: libllvm15\nlibstd-rust-web-1.96\n  Depends: libllvm22\n";
        assert_eq!(parse_llvm(text), Some(22));
        assert_eq!(parse_llvm("rustc\n  Depends: libc6\n"), None);
    }
}
