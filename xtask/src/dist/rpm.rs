//! A package for distributions of the RPM kind. As the Debian package, it installs the service and does not enable it.

use ::rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder};
use anyhow::{Context as _, Result};

use super::payload::{Layout, Payload};
use super::release::Release;

const SUMMARY: &str = "Names what makes a Kubernetes node report \"PLEG is not healthy\"";

const DESCRIPTION: &str = "\
plegtrace looks at the calls of kubelet and container runtime that have not returned: which component
blocks the node, since when, for which pod and container, on what evidence, and what to do.";

/// Directories of ours alone: removed with the package.
const DIRECTORIES: &[&str] = &["/usr/share/plegtrace", "/usr/share/doc/plegtrace"];

const POST: &str = "[ ! -d /run/systemd/system ] || systemctl daemon-reload || :\n";

/// `$1` is how many versions stay installed. Stopped, not killed: it takes its probes off first.
const PREUN: &str = "\
if [ \"$1\" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl disable --now plegtrace.service || :
fi
";

/// A new version is run by whoever ran the old one.
const POSTUN: &str = "\
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ \"$1\" -ge 1 ]; then
        systemctl try-restart plegtrace.service || :
    fi
fi
";

/// What such a package is called.
pub(crate) fn file_name(release: &Release) -> String {
    format!("plegtrace-{}-1.x86_64.rpm", release.version)
}

/// The package.
///
/// # Errors
/// When the release was made after 2106, or a path is none of RPM.
pub(crate) fn package(release: &Release, payload: &Payload) -> Result<Vec<u8>> {
    let time = u32::try_from(release.time).context("RPM knows no time after 2106")?;
    let config = BuildConfig::v4().compression(CompressionType::Gzip).source_date(time);
    let mut builder =
        PackageBuilder::new("plegtrace", &release.version, env!("CARGO_PKG_LICENSE"), "x86_64", SUMMARY);
    builder
        .using_config(config)
        .release("1")
        .description(DESCRIPTION)
        .vcs(&release.commit)
        .build_host("localhost")
        .post_install_script(POST)
        .pre_uninstall_script(PREUN)
        .post_uninstall_script(POSTUN);
    for directory in DIRECTORIES {
        builder.with_dir_entry(FileOptions::dir(*directory).permissions(0o755))?;
    }
    for file in payload.members(Layout::Rpm, "/") {
        let options = FileOptions::new(&file.path).permissions(u16::try_from(file.mode)?);
        builder.with_file_contents(file.contents, options)?;
    }
    let mut bytes = Vec::new();
    builder.build()?.write(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::tarball::Member;
    use super::*;
    use crate::cmd;

    fn sample() -> (Release, Payload, ::rpm::Package) {
        let (release, payload) = (Release::sample(), Payload::sample());
        let bytes = package(&release, &payload).unwrap();
        (release, payload, ::rpm::Package::parse(&mut &bytes[..]).unwrap())
    }

    /// Name, time and sums, as rpm checks them before it installs.
    #[test]
    fn the_header_says_what_it_is() {
        let (release, _, package) = sample();
        package.verify_digests().unwrap();
        let about = &package.metadata;
        assert_eq!(
            (about.get_name().unwrap(), about.get_version().unwrap(), about.get_release().unwrap()),
            ("plegtrace", "1.2.3", "1")
        );
        assert_eq!(about.get_arch().unwrap(), "x86_64");
        assert_eq!(about.get_build_time().unwrap(), release.time);
        assert_eq!(package.canonical_filename().unwrap(), file_name(&release));
    }

    /// Every file of the payload, and the directories that are ours.
    #[test]
    fn the_files_come_out_as_they_went_in() {
        let (release, payload, package) = sample();
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for file in package.files().unwrap() {
            let file = file.unwrap();
            let path = file.metadata.path().to_string_lossy().into_owned();
            let mode = u32::from(file.metadata.permissions());
            if file.metadata.mode().file_type() == ::rpm::FileType::Dir {
                directories.push(path);
            } else {
                files.push(Member { path, mode, contents: file.content().unwrap_or_default().to_vec() });
            }
        }
        let mut expected = payload.members(Layout::Rpm, "/");
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(files, expected);
        directories.sort_unstable();
        assert_eq!(directories, ["/usr/share/doc/plegtrace", "/usr/share/plegtrace"]);
        let times = package.metadata.get_file_entries().unwrap();
        assert!(times.iter().all(|file| u64::from(u32::from(file.modified_at())) == release.time));
    }

    /// The scripts are what a shell can read.
    #[test]
    fn a_shell_reads_the_scripts() {
        for script in [POST, PREUN, POSTUN] {
            cmd::run(Command::new("sh").args(["-n", "-c", script])).unwrap();
        }
    }
}
