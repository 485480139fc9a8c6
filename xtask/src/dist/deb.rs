//! A Debian package: an `ar` archive of its version, its control files and its files (deb(5)).
//!
//! It installs the service but does not enable it: whether plegtrace runs for months is for the administrator to say.
//! Removing it leaves nothing behind but what `watch` has written; purging it takes that, too.

use anyhow::Result;

use super::payload::{Layout, Payload};
use super::release::Release;
use super::tarball::{self, Member};

/// A new version is run by whoever ran the old one.
const POSTINST: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ -n \"$2\" ]; then
        systemctl try-restart plegtrace.service || true
    fi
fi
";

/// Stopped, not killed: it takes its probes off first, for up to a minute on old kernels.
const PRERM: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now plegtrace.service || true
fi
";

const POSTRM: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ \"$1\" = purge ]; then
    rm -rf /var/lib/plegtrace
fi
";

/// What such a package is called.
pub(crate) fn file_name(release: &Release) -> String {
    format!("plegtrace_{}_amd64.deb", release.version)
}

/// The package.
///
/// # Errors
/// When memory runs out.
pub(crate) fn package(release: &Release, payload: &Payload) -> Result<Vec<u8>> {
    let files = payload.members(Layout::Debian, "./");
    let script = |name: &str, text: &str| member(name, 0o755, text);
    let control_files = [
        member("./control", 0o644, &control(release, &files)),
        script("./postinst", POSTINST),
        script("./prerm", PRERM),
        script("./postrm", POSTRM),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tarball::gzipped(&control_files, release.time)?),
        ("data.tar.gz", tarball::gzipped(&files, release.time)?),
    ];
    for (name, contents) in parts {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), u64::try_from(contents.len())?);
        header.set_mtime(release.time);
        header.set_mode(0o100_644);
        archive.append(&header, &contents[..])?;
    }
    Ok(archive.into_inner()?)
}

/// The fields of the package. It depends on nothing: the program is static.
fn control(release: &Release, files: &[Member]) -> String {
    let bytes: usize = files.iter().map(|file| file.contents.len()).sum();
    format!(
        "Package: plegtrace
Version: {version}
Architecture: amd64
Maintainer: the plegtrace authors <plegtrace@localhost>
Installed-Size: {size}
Section: admin
Priority: optional
Description: names what makes a Kubernetes node report \"PLEG is not healthy\"
 plegtrace looks at the calls of kubelet and container runtime that have not
 returned: which component blocks the node, since when, for which pod and
 container, on what evidence, and what to do.
 .
 Commit {commit}.
",
        version = release.version,
        size = bytes.div_ceil(1024),
        commit = release.commit,
    )
}

fn member(path: &str, mode: u32, contents: &str) -> Member {
    Member { path: path.to_owned(), mode, contents: contents.as_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Command;

    use super::super::tarball::tests::{files, gunzip};
    use super::*;
    use crate::cmd;

    fn sample() -> (Release, Payload, Vec<u8>) {
        let release = Release::sample();
        let payload = Payload::sample();
        let package = package(&release, &payload).unwrap();
        (release, payload, package)
    }

    /// The three parts in their order, with the files in them.
    #[test]
    fn a_package_has_its_three_parts() {
        let (release, payload, package) = sample();
        let mut archive = ar::Archive::new(&package[..]);
        let mut parts = Vec::new();
        while let Some(entry) = archive.next_entry() {
            let mut entry = entry.unwrap();
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            parts.push((String::from_utf8(entry.header().identifier().to_vec()).unwrap(), contents));
        }
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(parts[0].1, b"2.0\n");
        let control = files(&gunzip(&parts[1].1), release.time);
        let scripts = control.iter().filter(|file| file.mode == 0o755).count();
        assert_eq!((control.len(), scripts), (4, 3));
        let mut expected = payload.members(Layout::Debian, "./");
        expected.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(files(&gunzip(&parts[2].1), release.time), expected);
    }

    /// dpkg itself reads it, where there is one.
    #[test]
    fn dpkg_reads_it() {
        let Some(dpkg) = cmd::which("dpkg-deb") else { return };
        let (release, _, package) = sample();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(file_name(&release));
        std::fs::write(&file, package).unwrap();
        let ask = |what: &str| cmd::output(Command::new(&dpkg).arg(what).arg(&file)).unwrap();
        let fields = ask("--field");
        assert!(fields.contains("Package: plegtrace\nVersion: 1.2.3\nArchitecture: amd64\n"), "{fields}");
        let contents = ask("--contents");
        let program = contents.lines().find(|line| line.ends_with(" ./usr/bin/plegtrace")).unwrap();
        assert!(program.starts_with("-rwxr-xr-x root/root"), "{program}");
    }

    /// The scripts are what a shell can read.
    #[test]
    fn a_shell_reads_the_scripts() {
        for script in [POSTINST, PRERM, POSTRM] {
            cmd::run(Command::new("sh").args(["-n", "-c", script])).unwrap();
        }
    }
}
