//! What the README types first on a node that stalls: the file is copied there over ssh, and started.

use std::{fs, os::unix::fs::symlink};

use plegtrace_lab::{Knobs, Node, fault::Kind, host, ssh};

use crate::{cluster::readme, contained::dist};

/// Where the README puts it.
const COPY: &str = "/tmp/plegtrace";

/// The copy, which is gone when this is dropped.
struct Copied;

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_file(COPY);
    }
}

#[test]
fn the_readme_works_over_ssh() {
    host::require_root().unwrap();
    assert!(!fs::exists(COPY).unwrap(), "{COPY} is somebody else's");
    let _copied = Copied;
    let node = Node::start(&Knobs { pods: 2, ..Knobs::default() }).unwrap();
    let ssh = ssh::Ssh::start(node.containerd().scratch()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dist()).unwrap() {
        let file = file.unwrap();
        symlink(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    let types = |line: &str| {
        let line = line.replace("NODE", ssh::NAME);
        let ended = ssh.shell(&line).current_dir(&dir).output().unwrap();
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        (ended.status.code(), said)
    };
    let fault = Kind::LockHostage.inject(&node, "p1").unwrap();
    let unpacked = types(readme("tar -xzf plegtrace-0.1.0-x86_64-linux.tar.gz"));
    assert_eq!(unpacked.0, Some(0), "{}", unpacked.1);
    let (code, said) = types(readme("scp "));
    fault.heal().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("STALL R1 "), "{said}");
}
