//! A shim of containerd 1.7 that loses the exit of a container. Up to 1.7.21 a shim put that exit off for commands that
//! never started (containerd pull request 10651): the repair is taken back where a command cannot be started, which is where
//! it can be made to happen each time.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::{LOSSY, Program, build};

pub(super) const PROGRAM: Program = Program {
    // What containerd looks for.
    name: "containerd-shim-runc-v2",
    main: MAIN,
    changed: &[(SERVICE, without_repair)],
};

/// What a shim does for a task.
pub(super) const SERVICE: &str = "github.com/containerd/containerd/runtime/v2/runc/task/service.go";

/// The shim as containerd has it.
pub(super) const MAIN: &str = r#"package main

import (
	"context"

	"github.com/containerd/containerd/runtime/v2/runc/manager"
	_ "github.com/containerd/containerd/runtime/v2/runc/pause"
	_ "github.com/containerd/containerd/runtime/v2/runc/task/plugin"
	"github.com/containerd/containerd/runtime/v2/shim"
)

func main() {
	shim.RunManager(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
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

/// Takes the repair back: a command that could not be started counts as running for ever.
fn without_repair(text: &str) -> Result<String> {
    let (start, end) =
        ("\t\t// If we failed to even start the process, s.runningExecs\n", "\t\thandleStarted(");
    let (before, rest) = text.split_once(start).context("the repair is not there")?;
    let (repair, after) = rest.split_once(end).context("the repair has no end")?;
    ensure!(repair.contains("s.runningExecs[container]--"), "this is not the repair");
    Ok(format!("{before}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repair_is_taken_back() {
        let text = "\tif err != nil {\n\t\t// If we failed to even start the process, s.runningExecs\n\t\t// more\n\t\tif x {\n\t\t\t\
            s.runningExecs[container]--\n\t\t}\n\t\thandleStarted(container, p)\n\t\treturn\n";
        assert_eq!(
            without_repair(text).unwrap(),
            "\tif err != nil {\n\t\thandleStarted(container, p)\n\t\treturn\n"
        );
        without_repair("\t\thandleStarted(container, p)\n").unwrap_err();
    }
}
