//! Turns (suite, package names) into downloaded files, through an apt state of our own in the cache: the machine's
//! package lists, pins and dpkg database are neither read nor changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Suite;
use super::sources::{KEYRING, mirror, sources_file};
use crate::cache::{self, Lock};
use crate::host;

/// Lists younger than this are used as they are.
const LISTS_FRESH: Duration = Duration::from_secs(12 * 3600);
/// Lists younger than this are not read again when a download fails: the fault lies elsewhere.
const LISTS_NEW: Duration = Duration::from_secs(15 * 60);

/// What a caller may want to tell apart from a broken network or machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mirror no longer has that suite or package: a declared skip, not a failure of ours.
    #[error(
        "{what} is gone from the mirror; skip it, or set PLEGTRACE_DEBIAN_MIRROR to an archive that has it"
    )]
    Gone {
        /// The suite, or package and suite.
        what: String,
    },
}

impl Error {
    /// Whether `error` says, anywhere in its chain, that something has left the archive.
    #[must_use]
    pub fn is_gone(error: &anyhow::Error) -> bool {
        error.chain().any(<dyn std::error::Error>::is::<Error>)
    }
}

/// Downloads the `.deb` files of `packages` of `suite` into `into`.
///
/// # Errors
///
/// [`Error::Gone`] when the archive has no such suite or package; otherwise what apt-get said.
pub(super) fn download(suite: Suite, packages: &[&str], into: &Path) -> Result<()> {
    fetch(suite, &[&["download"], packages].concat(), into)
}

/// Downloads the files of the source package `name` of `suite` into `into`, without unpacking them.
///
/// # Errors
///
/// As for binary packages: [`Error::Gone`], or what apt-get said.
pub fn download_source(suite: Suite, name: &str, into: &Path) -> Result<()> {
    fetch(suite, &["source", "--download-only", "-qq", name], into)
}

fn fetch(suite: Suite, args: &[&str], into: &Path) -> Result<()> {
    let apt = PrivateApt::open(suite)?;
    apt.update(LISTS_FRESH)?;
    match apt.run(args, into) {
        // The archive may have moved on since the lists were read.
        Err(_) if apt.age_of_lists().is_none_or(|age| age >= LISTS_NEW) => {
            apt.update(LISTS_NEW)?;
            apt.run(args, into)
        }
        result => result,
    }
}

/// The apt state of one suite, held under a lock.
struct PrivateApt {
    suite: Suite,
    dir: PathBuf,
    _lock: Lock,
}

impl PrivateApt {
    fn open(suite: Suite) -> Result<PrivateApt> {
        if !Path::new(KEYRING).exists() {
            host::ensure(&["debian-archive-keyring"])?;
        }
        let dir = cache::root()?.join("apt").join(suite.name());
        for sub in ["lists/partial", "archives/partial", "parts"] {
            fs::create_dir_all(dir.join(sub)).context("cannot make the private apt state")?;
        }
        let lock = Lock::wait(&dir.join("lock"))?;
        fs::write(dir.join("status"), "").context("cannot write the private apt state")?;
        let wanted = sources_file(&mirror()?, suite);
        let file = dir.join("suite.sources");
        if fs::read_to_string(&file).ok().as_deref() != Some(wanted.as_str()) {
            fs::write(&file, wanted).context("cannot write the private apt state")?;
            let _ = fs::remove_file(dir.join("updated")); // Another mirror: the lists are stale.
        }
        Ok(PrivateApt { suite, dir, _lock: lock })
    }

    fn age_of_lists(&self) -> Option<Duration> {
        let read = fs::metadata(self.dir.join("updated")).and_then(|meta| meta.modified());
        read.ok()?.elapsed().ok()
    }

    /// Reads the package lists unless they are younger than `limit`.
    fn update(&self, limit: Duration) -> Result<()> {
        if self.age_of_lists().is_some_and(|age| age < limit) {
            return Ok(());
        }
        host::progress(&format!("reading the package lists of {}", self.suite));
        self.run(&["update", "-o", "APT::Update::Error-Mode=any"], &self.dir)?;
        fs::write(self.dir.join("updated"), "").context("cannot write the private apt state")
    }

    fn run(&self, args: &[&str], cwd: &Path) -> Result<()> {
        let dir = self.dir.display();
        let options = [
            format!("Dir::State={dir}"),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::Cache={dir}"),
            format!("Dir::Cache::archives={dir}/archives"),
            format!("Dir::Etc::sourcelist={dir}/suite.sources"),
            format!("Dir::Etc::sourceparts={dir}/parts"),
            format!("Dir::Etc::preferences={dir}/none"),
            format!("Dir::Etc::preferencesparts={dir}/parts"),
            "APT::Sandbox::User=root".to_owned(), // The cache may lie where the user _apt cannot go.
            "Acquire::Languages=none".to_owned(),
            "Acquire::Check-Valid-Until=false".to_owned(), // Old suites are no longer re-signed.
            "Acquire::Retries=3".to_owned(),
        ];
        let mut command = Command::new("apt-get");
        command.current_dir(cwd).env("LC_ALL", "C").stdin(Stdio::null());
        for option in &options {
            command.args(["-o", option]);
        }
        let output =
            command.args(args).output().context("cannot run apt-get: the lab needs a machine with apt")?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(failure(self.suite, args, &text))
    }
}

/// Tells a thing that left the archive from everything else that can go wrong.
fn failure(suite: Suite, args: &[&str], text: &str) -> anyhow::Error {
    let suite_gone = ["does not have a Release file", "no longer has a Release file"];
    let package_gone =
        ["Unable to locate package", "Can't find a source to download", "Unable to find a source package"];
    if suite_gone.iter().any(|phrase| text.contains(phrase)) {
        // apt says the same of an unreachable mirror, but then without the 404.
        if text.contains("404") {
            return Error::Gone { what: format!("suite {suite}") }.into();
        }
    }
    if package_gone.iter().any(|phrase| text.contains(phrase)) {
        let names: Vec<&str> = args[1..].iter().filter(|arg| !arg.starts_with('-')).copied().collect();
        return Error::Gone { what: format!("{} of {suite}", names.join(" ")) }.into();
    }
    let is_noise =
        |line: &&str| ["Ign:", "Hit:", "Get:", "Reading "].iter().any(|word| line.starts_with(word));
    let telling: Vec<&str> = text.lines().filter(|line| !is_noise(line)).collect();
    anyhow::anyhow!("apt-get {} failed for {suite}: {}", args[0], host::tail(&telling.join("\n"), 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_left_the_archive_is_told_from_a_broken_network() {
        let gone = "Err:1 http://m buster Release\n  404  Not Found\n\
            E: The repository 'http://m buster Release' does not have a Release file.";
        assert!(Error::is_gone(&failure(Suite::Bullseye, &["update"], gone)));
        let offline = "Err:1 http://m buster Release\n  Could not resolve 'm'\n\
            E: The repository 'http://m buster Release' does not have a Release file.";
        let offline =
            failure(Suite::Bullseye, &["update"], &format!("Ign:1 http://m buster InRelease\n{offline}"));
        assert!(!Error::is_gone(&offline));
        assert!(!offline.to_string().contains("Ign:"), "{offline}");
    }

    #[test]
    fn a_missing_package_is_named() {
        let error = failure(Suite::Sid, &["download", "nope"], "E: Unable to locate package nope");
        assert!(Error::is_gone(&error.context("while unpacking")));
        let error = failure(
            Suite::Sid,
            &["source", "--download-only", "nope"],
            "Unable to find a source package for nope",
        );
        assert!(error.to_string().starts_with("nope of sid is gone"), "{error}");
    }
}
