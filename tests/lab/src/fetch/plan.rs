//! What the gate needs, and what any test needs.

use anyhow::Result;

use super::Step;
use crate::kubelet::{self, KubeletBuild};
use crate::packages::{self, Suite};
use crate::{Generation, control_plane, docker, go_client, golang, host, image, rc93, rebuilt, ssh};

/// What tests of the gate and builds install on the machine.
const HOST: &[&str] = &[
    "binutils",
    "curl",
    "dbus",
    "dbus-broker",
    "debian-archive-keyring",
    "dpkg-dev",
    "gcc",
    "iproute2",
    "libc6-dev",
    "strace",
    "xz-utils",
];
/// What only other tests install.
const HOST_ALL: &[&str] = &["gdb", "openssl", "python3", "python3-pip"];
/// Toolchains besides bookworm's, for the shapes that a Go program can have.
const TOOLCHAINS: &[(Suite, &str)] = &[
    (Suite::Bullseye, "1.15"),
    (Suite::BookwormBackports, "1.21"),
    (Suite::BookwormBackports, "1.22"),
    (Suite::BookwormBackports, "1.23"),
    (Suite::Trixie, "1.24"),
    (Suite::TrixieBackports, "1.25"),
    (Suite::Sid, "1.26"),
    (Suite::Sid, "1.27"),
];

/// What comes from archives. Nothing is compiled.
pub(super) fn downloads(all: bool) -> Vec<Step> {
    let packages = if all { [HOST, HOST_ALL, &docker::LIBRARIES].concat() } else { HOST.to_vec() };
    let host = Step {
        name: "host packages".to_owned(),
        suite: None,
        make: Box::new(move || host::ensure(&packages)),
    };
    let mut steps = vec![
        host,
        package("runc", Suite::Bookworm),
        package("busybox-static", Suite::Bookworm),
        package("containernetworking-plugins", Suite::Bookworm),
        package("prometheus", Suite::Bookworm),
        Step::new("sources of kubernetes and Go 1.19", Suite::Bookworm, || {
            kubelet::fetch(KubeletBuild::Go119)
        }),
    ];
    steps.extend(Generation::ALL.map(|generation| package("containerd", generation.suite())));
    if all {
        let others = Suite::ALL.into_iter().filter(|suite| *suite != Suite::Bookworm);
        steps.extend(others.map(|suite| package("runc", suite)));
        let with_docker = Generation::ALL.into_iter().filter(|generation| generation.has_docker());
        steps.extend(with_docker.map(|generation| package("docker.io", generation.suite())));
        steps.extend(TOOLCHAINS.iter().map(|&(suite, version)| {
            Step::new(&format!("Go {version}"), suite, move || packages::go(suite, version).map(drop))
        }));
        steps.push(Step::new("sources of runc 1.0.0-rc93", Suite::Bullseye, || rc93::fetch().map(drop)));
        steps.push(Step::new("sources of containerd 1.7", Suite::Trixie, || rebuilt::fetch().map(drop)));
        steps.push(Step::new("sshd", Suite::Bookworm, ssh::fetch));
        steps.push(Step::new("etcd and kubectl", Suite::Trixie, control_plane::fetch));
        steps.push(Step::new("sources of a client in Go", Suite::Sid, || go_client::fetch().map(drop)));
    }
    steps
}

fn package(name: &'static str, suite: Suite) -> Step {
    Step::new(&format!("{name} of {suite}"), suite, move || packages::unpack(suite, &[name]).map(drop))
}

/// Two lists, one beside the other: the long one would leave a processor idle while it links.
pub(super) fn builds(all: bool) -> Vec<Vec<Step>> {
    let mut kubelets =
        vec![Step::new("kubelet", Suite::Bookworm, || kubelet::program(KubeletBuild::Go119).map(drop))];
    let mut others = vec![
        Step::new("image", Suite::Bookworm, || image::archive().map(drop)),
        Step::new("library of Go 1.19 for cgo", Suite::Bookworm, library),
    ];
    if all {
        // After the plain one, most of which they share.
        kubelets.push(Step::new("kubelet of v1", Suite::Bookworm, || kubelet::program_of_v1().map(drop)));
        kubelets.push(Step::new("kubelet that locks itself out", Suite::Bookworm, || {
            kubelet::program_that_locks_itself_out().map(drop)
        }));
        kubelets.push(Step::new("control plane", Suite::Bookworm, || control_plane::program().map(drop)));
        kubelets.push(Step::new("kubelet whose relist waits", Suite::Bookworm, || {
            kubelet::program_with_blocking_pleg().map(drop)
        }));
        kubelets.push(Step::new("kubelet of Go 1.15", Suite::Bullseye, || {
            kubelet::program(KubeletBuild::Go115).map(drop)
        }));
        others.push(Step::new("runc 1.0.0-rc93", Suite::Bullseye, || rc93::program().map(drop)));
        // All of them are built at once.
        others.push(Step::new("containerd 1.7 with bugs", Suite::Trixie, || {
            rebuilt::lossy_shim::program().map(drop)
        }));
        others.push(Step::new("client in Go", Suite::Sid, || go_client::program().map(drop)));
    }
    vec![kubelets, others]
}

fn library() -> Result<()> {
    golang::compile_library(&packages::go(Suite::Bookworm, "1.19")?)
}
