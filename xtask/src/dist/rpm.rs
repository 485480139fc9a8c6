//! A package for distributions of the RPM kind. As the Debian package, it installs the service and does not enable it.

use ::rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder};
use anyhow::{Context as _, Result};

use super::payload::{Layout, Payload};
use super::release::Release;

const SUMMARY: &str = "Names what makes a Kubernetes node report \"PLEG is not healthy\"";

const DESCRIPTION: &str = "\
plegtrace looks at the calls of kubelet and container runtime that have not returned: which component
blocks the node, since when, for which pod and container, on what evidence, and what to do.";

/// Directories of ours alone: removed with the package. RPM knows only those that a package names.
const DIRECTORIES: &[&str] = &[
    "/usr/share/doc/plegtrace",
    "/usr/share/plegtrace",
    "/usr/share/plegtrace/kustomize",
    "/usr/share/plegtrace/kustomize/debug-pod",
];

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
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;
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
        assert_eq!(directories, DIRECTORIES);
        let inside = |path: &str| path.contains("/share/plegtrace/") || path.contains("/doc/plegtrace/");
        let parents =
            files.iter().filter(|file| inside(&file.path)).filter_map(|file| file.path.rsplit_once('/'));
        let unowned: Vec<&str> =
            parents.map(|(parent, _)| parent).filter(|it| !DIRECTORIES.contains(it)).collect();
        assert!(unowned.is_empty(), "they would be left behind: {unowned:?}");
        let times = package.metadata.get_file_entries().unwrap();
        assert!(times.iter().all(|file| u64::from(u32::from(file.modified_at())) == release.time));
    }

    /// rpm itself lists it, installs it below another root, finds it there unchanged, and leaves nothing when it erases it. There is
    /// no shell below that root: its scripts are not run.
    #[test]
    fn rpm_installs_and_erases_it() {
        let Some(rpm) = cmd::which("rpm").filter(|_| cmd::is_root()) else {
            let skip = "SKIP rpm_installs_and_erases_it: needs rpm, and root for the other root";
            writeln!(std::io::stderr(), "{skip}").unwrap();
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let (release, payload) = (Release::sample(), Payload::sample());
        let file = dir.path().join(file_name(&release));
        fs::write(&file, package(&release, &payload).unwrap()).unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(&rpm);
            command.arg("--root").arg(&root).args(["--dbpath", "/var/lib/rpm"]).args(arguments);
            cmd::output(&mut command).unwrap()
        };
        let path = file.to_str().unwrap();
        let mut expected: Vec<String> =
            payload.members(Layout::Rpm, "/").into_iter().map(|member| member.path).collect();
        expected.extend(DIRECTORIES.iter().map(|path| (*path).to_owned()));
        expected.sort_unstable();
        let listed = ask(&["--query", "--list", "--package", path]);
        assert_eq!(sorted(&listed), expected);
        ask(&["--install", "--nodeps", "--noscripts", "--nosignature", path]);
        assert_eq!(sorted(&ask(&["--query", "--list", "plegtrace"])), expected);
        assert_eq!(ask(&["--verify", "--nodeps", "--noscripts", "plegtrace"]), "");
        assert_eq!(fs::read(root.join("usr/bin/plegtrace")).unwrap(), b"program");
        ask(&["--erase", "--noscripts", "plegtrace"]);
        let all = ["-path", "*/var/lib/rpm", "-prune", "-o", "-print"];
        let left = cmd::output(Command::new("find").arg(&root).args(all)).unwrap();
        // Directories of others stay: rpm does not know that nothing else is in them.
        let is_ours = |path: &&str| {
            let inside = path.strip_prefix(root.to_str().unwrap());
            Path::new(path).is_file() || inside.is_some_and(|inside| inside.contains("plegtrace"))
        };
        let ours = left.lines().filter(is_ours);
        assert_eq!(ours.count(), 0, "{left}");
    }

    fn sorted(list: &str) -> Vec<&str> {
        let mut lines: Vec<&str> = list.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// The scripts are what a shell can read.
    #[test]
    fn a_shell_reads_the_scripts() {
        for script in [POST, PREUN, POSTUN] {
            cmd::run(Command::new("sh").args(["-n", "-c", script])).unwrap();
        }
    }
}
