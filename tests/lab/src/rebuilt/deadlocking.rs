//! containerd 1.7 with the go-cni of containerd 2.0.1 and 2.0.2 (1.1.11): setting up or removing a network holds
//! the read lock from start to end, and takes it once more for the result. A reload that comes in between waits for the first
//! lock and blocks the second (containerd issue 11186, go-cni pull request 126).

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::{LOSSY, Program, build};

pub(super) const PROGRAM: Program = Program {
    name: "containerd",
    main: MAIN,
    changed: &[("github.com/containerd/go-cni/cni.go", with_second_lock)],
};

/// As short as this, and called as the package's is.
const MAIN: &str = r#"package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/containerd/containerd/diff/walking/plugin"
	_ "github.com/containerd/containerd/events/plugin"
	_ "github.com/containerd/containerd/gc/scheduler"
	_ "github.com/containerd/containerd/leases/plugin"
	_ "github.com/containerd/containerd/metadata/plugin"
	_ "github.com/containerd/containerd/metrics/cgroups"
	_ "github.com/containerd/containerd/metrics/cgroups/v2"
	_ "github.com/containerd/containerd/pkg/cri"
	_ "github.com/containerd/containerd/pkg/nri/plugin"
	_ "github.com/containerd/containerd/plugins/sandbox"
	_ "github.com/containerd/containerd/plugins/streaming"
	_ "github.com/containerd/containerd/plugins/transfer"
	_ "github.com/containerd/containerd/runtime/v2"
	_ "github.com/containerd/containerd/runtime/v2/runc/options"
	_ "github.com/containerd/containerd/services/containers"
	_ "github.com/containerd/containerd/services/content"
	_ "github.com/containerd/containerd/services/diff"
	_ "github.com/containerd/containerd/services/events"
	_ "github.com/containerd/containerd/services/healthcheck"
	_ "github.com/containerd/containerd/services/images"
	_ "github.com/containerd/containerd/services/introspection"
	_ "github.com/containerd/containerd/services/leases"
	_ "github.com/containerd/containerd/services/namespaces"
	_ "github.com/containerd/containerd/services/opt"
	_ "github.com/containerd/containerd/services/sandbox"
	"github.com/containerd/containerd/services/server"
	"github.com/containerd/containerd/services/server/config"
	_ "github.com/containerd/containerd/services/snapshots"
	_ "github.com/containerd/containerd/services/streaming"
	_ "github.com/containerd/containerd/services/tasks"
	_ "github.com/containerd/containerd/services/transfer"
	_ "github.com/containerd/containerd/services/version"
	_ "github.com/containerd/containerd/services/warning"
	_ "github.com/containerd/containerd/snapshots/native/plugin"
	_ "github.com/containerd/containerd/snapshots/overlay/plugin"
	"github.com/containerd/containerd/sys"
)

func try(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Called as the package's program is: containerd -c FILE.
func main() {
	var settings config.Config
	settings.StreamProcessors = map[string]config.StreamProcessor{}
	try(config.LoadConfig(os.Args[2], &settings))
	try(server.CreateTopLevelDirectories(&settings))
	containerd, err := server.New(context.Background(), &settings)
	try(err)
	serve := func(on func(net.Listener) error, address string) {
		socket, err := sys.GetLocalListener(address, 0, 0)
		try(err)
		go func() { try(on(socket)) }()
	}
	serve(containerd.ServeTTRPC, settings.TTRPC.Address)
	serve(containerd.ServeGRPC, settings.GRPC.Address)
	metrics, err := net.Listen("tcp", settings.Metrics.Address)
	try(err)
	go func() { try(containerd.ServeMetrics(metrics)) }()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	containerd.Stop()
}
"#;

/// The path of the program, built when the cache does not have it yet (two minutes on two cores).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`crate::packages::Error::Gone`] in the chain when they left the
/// archive), or the build fails.
pub fn program() -> Result<PathBuf> {
    build(&LOSSY, &PROGRAM)
}

/// Where go-cni begins to work on a network, in all four of its functions that do.
const BEGIN: &str = "\tns, err := newNamespace(id, path, opts...)\n";

/// Takes the read lock there, until the function returns.
fn with_second_lock(text: &str) -> Result<String> {
    ensure!(text.matches(BEGIN).count() == 4, "this is another go-cni");
    Ok(text.replace(BEGIN, &format!("\tc.RLock()\n\tdefer c.RUnlock()\n{BEGIN}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_functions_take_the_lock() {
        let text = with_second_lock(&BEGIN.repeat(4)).unwrap();
        assert_eq!(text, format!("\tc.RLock()\n\tdefer c.RUnlock()\n{BEGIN}").repeat(4));
        with_second_lock(&BEGIN.repeat(3)).unwrap_err();
    }
}
