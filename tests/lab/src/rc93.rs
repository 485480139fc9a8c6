//! Turns Debian's source of runc 1.0.0-rc93 into the genuine rc93, once, in the cache: Debian's own program carries the
//! fix of rc94, which is taken back here. Its `runc init` exports the seccomp filter into a pipe that it would read
//! afterwards, so a filter larger than the pipe holds blocks it for ever (runc pull request 2871).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::packages::{self, Suite, Tree};
use crate::{cache, golang, host};

/// runc's source and what it imports, and the library for its cgo part: all of bullseye.
const SOURCES: [&str; 29] = [
    "golang-dbus-dev",
    "golang-github-checkpoint-restore-go-criu-dev",
    "golang-github-cilium-ebpf-dev",
    "golang-github-containerd-console-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-github-cpuguy83-go-md2man-v2-dev",
    "golang-github-cyphar-filepath-securejoin-dev",
    "golang-github-docker-go-units-dev",
    "golang-github-moby-sys-dev",
    "golang-github-mrunalp-fileutils-dev",
    "golang-github-opencontainers-runc-dev",
    "golang-github-opencontainers-selinux-dev",
    "golang-github-opencontainers-specs-dev",
    "golang-github-pkg-errors-dev",
    "golang-github-pmezard-go-difflib-dev",
    "golang-github-russross-blackfriday-v2-dev",
    "golang-github-seccomp-libseccomp-golang-dev",
    "golang-github-shurcool-sanitized-anchor-name-dev",
    "golang-github-sirupsen-logrus-dev",
    "golang-github-urfave-cli-dev",
    "golang-github-vishvananda-netlink-dev",
    "golang-github-vishvananda-netns-dev",
    "golang-github-willf-bitset-dev",
    "golang-gocapability-dev",
    "golang-golang-x-net-dev",
    "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev",
    "golang-goprotobuf-dev",
    "libseccomp-dev",
];

/// The file with the fix, below the GOPATH's `src`.
const FIXED: &str = "github.com/opencontainers/runc/libcontainer/seccomp/patchbpf/enosys_linux.go";

/// A filter of one instruction of eight bytes per rule, larger than a pipe's 64 KiB.
const RULES: u32 = 8300;

/// The path of the program, built when the cache does not have it yet (half a minute on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry("runc-1.0.0-rc93-genuine", |dir| {
        let sources = fetch()?;
        let goroot = packages::go(Suite::Bullseye, "1.15")?;
        host::progress("building the genuine runc 1.0.0-rc93: half a minute, once");
        compile(&sources, &goroot, dir)
    })?;
    Ok(dir.join("runc"))
}

/// Its sources, downloaded when the cache does not have them yet.
///
/// # Errors
///
/// As for [`program`], but for the build.
pub fn fetch() -> Result<Tree> {
    packages::unpack_as("runc-source", Suite::Bullseye, &SOURCES)
}

/// A seccomp profile of the runtime specification that makes its `runc init` hang, in some seconds of computing.
#[must_use]
pub fn profile() -> Value {
    let rule = |value: u32| {
        let argument = json!({ "index": 0, "value": value, "op": "SCMP_CMP_EQ" });
        json!({ "names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [argument] })
    };
    let rules: Vec<Value> = (1..=RULES).map(rule).collect();
    json!({ "defaultAction": "SCMP_ACT_ERRNO", "architectures": [architecture()], "syscalls": rules })
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" }
}

fn compile(sources: &Tree, goroot: &Path, into: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(into).context("cannot make a build directory")?;
    let gopath = work.path().join("gopath");
    host::run(Command::new("cp").arg("-a").arg(sources.path("usr/share/gocode")?).arg(&gopath))?;
    let file = gopath.join("src").join(FIXED);
    let text = fs::read_to_string(&file).context("cannot read the fixed source")?;
    fs::write(&file, without_fix(&text)?).context("cannot write the source without the fix")?;
    let mut go = golang::build(goroot, &gopath, work.path())?;
    go.args(["-tags", "seccomp apparmor", "-ldflags", "-s -w -X main.version=1.0.0-rc93", "-o"]);
    go.arg(into.join("runc")).arg("github.com/opencontainers/runc");
    go.env("CGO_ENABLED", "1").env("PKG_CONFIG", pkg_config(sources, work.path())?);
    host::run(&mut go)
        .context("cannot build runc; install a C compiler (apt-get install gcc libc6-dev)")
        .map(drop)
}

/// A stand-in for pkg-config that knows one library: where it is unpacked, to be linked statically, because the machine
/// need not have it.
fn pkg_config(sources: &Tree, work: &Path) -> Result<PathBuf> {
    let library = work.join("lib");
    fs::create_dir(&library).context("cannot make a directory for the library")?;
    let triplet = host::run(Command::new("cc").arg("-dumpmachine"))?;
    let archive = sources.path(&format!("usr/lib/{}/libseccomp.a", multiarch(triplet.trim())))?;
    fs::copy(archive, library.join("libseccomp.a")).context("cannot copy libseccomp.a")?;
    let (include, library) = (sources.path("usr/include")?, library.display().to_string());
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*--cflags*) echo '-I{}' ;;\n*--libs*) echo '-L{library} -lseccomp' ;;\nesac\n",
        include.display()
    );
    let path = work.join("pkg-config");
    fs::write(&path, script).context("cannot write a stand-in for pkg-config")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("cannot make it executable")?;
    Ok(path)
}

/// The compiler's triplet as Debian spells it: without a vendor.
fn multiarch(triplet: &str) -> String {
    let words: Vec<&str> = triplet.split('-').collect();
    if let [machine, _, system, libc] = words[..] {
        format!("{machine}-{system}-{libc}")
    } else {
        triplet.to_owned()
    }
}

/// Takes the fix back: no reader runs while the filter is exported.
fn without_fix(text: &str) -> Result<String> {
    let cut = |text: &str, from: &str, to: &str| {
        let start = text.find(from)?;
        let end = start + text[start..].find(to)?;
        Some(format!("{}{}", &text[..start], &text[end..]))
    };
    let text = cut(text, "\treaderBuffer := new(bytes.Buffer)\n", "\tif err := filter.ExportBPF(wtr)")
        .and_then(|text| cut(&text, "\tif copyErr := <-errChan", "\t// Parse the instructions.\n"))
        .context("the source of runc is not that of 1.0.0~rc93 with Debian's patch 0010")?;
    let text = text.replace("parseProgram(readerBuffer)", "parseProgram(rdr)").replace("\t\"bytes\"\n", "");
    ensure!(
        !text.contains("readerBuffer"),
        "the source of runc reads the filter in more places than it should"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_is_taken_out_and_nothing_else() {
        let fixed = "import (\n\t\"bytes\"\n\t\"io\"\n)\n\tdefer rdr.Close()\n\n\treaderBuffer := new(bytes.Buffer)\n\
            \tgo func() {}()\n\n\tif err := filter.ExportBPF(wtr); err != nil {\n\t}\n\t_ = wtr.Close()\n\n\
            \tif copyErr := <-errChan; copyErr != nil {\n\t}\n\n\t// Parse the instructions.\n\
            \trawProgram, err := parseProgram(readerBuffer)\n";
        let genuine = "import (\n\t\"io\"\n)\n\tdefer rdr.Close()\n\n\tif err := filter.ExportBPF(wtr); err != nil {\n\
            \t}\n\t_ = wtr.Close()\n\n\t// Parse the instructions.\n\trawProgram, err := parseProgram(rdr)\n";
        assert_eq!(without_fix(fixed).unwrap(), genuine);
        assert!(without_fix(genuine).is_err(), "another source is refused");
    }

    #[test]
    fn the_profile_is_larger_than_a_pipe() {
        let profile = profile();
        assert!(profile["syscalls"].as_array().unwrap().len() * 8 > 65_536);
        assert_eq!(multiarch("x86_64-pc-linux-gnu"), multiarch("x86_64-linux-gnu"));
    }
}
