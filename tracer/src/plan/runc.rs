//! The rows for runc: functions in which it hangs when it hangs. Where they nest, the innermost says what it waits for.
//!
//! Read in Debian's runc 1.0.0~rc93 (bullseye), 1.1.5 (bookworm), 1.1.15 (trixie) and 1.3.6 (sid). The owner of a
//! function is the end of its package, because packages moved: `libcontainer/cgroups` became a module of its own in 1.3,
//! and Debian builds `godbus/dbus` without its version.
//!
//! Each program of runc pays for every probe when it maps the file (about 2 µs each, with a copy of its page), and a `runc exec`
//! maps it several times. So there are few rows, of functions that are called rarely and return in few places, and
//! those of `runc init` that end in `execve` have no ends. Left out is what has limits of its own (the freezer, the removal
//! of cgroups), what is called per cgroup, and what kernel stack and system call of the census tell as well: mounts.

use super::row::{Class, End, HookRole, Row, Select};
use crate::input::{Component, Layer};

const RUNC: &[Component] = &[Component::Runc];

type Functions = &'static [(&'static str, &'static [&'static str])];

const fn phase(
    id: &'static str,
    class: Class,
    end: End,
    functions: Functions,
    versions: &'static str,
    lost: &'static str,
) -> Row {
    Row {
        id,
        components: RUNC,
        select: Select::Functions(functions),
        class,
        what: HookRole::Calls { layer: Layer::RuncPhase, end },
        at_call: None,
        versions,
        lost_without: Some(lost),
    }
}

/// What runc itself does.
const fn step(id: &'static str, functions: Functions, versions: &'static str, lost: &'static str) -> Row {
    phase(id, Class::RuncStep, End::Returns(None), functions, versions, lost)
}

/// Where it waits for hooks and for systemd.
const fn wait(id: &'static str, functions: Functions, versions: &'static str, lost: &'static str) -> Row {
    phase(id, Class::RuncWait, End::Returns(None), functions, versions, lost)
}

/// The rows.
pub(super) const ROWS: &[Row] = &[
    // hook: runc 1.0..1.1: libcontainer.(*linuxContainer); 1.2..: (*Container). `start` makes the process of create, run
    // and exec, hooks after it included; `exec` opens the FIFO at which the init of a created container waits
    step(
        "runc-container",
        &[
            ("libcontainer.(*linuxContainer)", &["start", "exec"]),
            ("libcontainer.(*Container)", &["start", "exec"]),
        ],
        "runc 1.0 and later",
        "what create, exec and start are about",
    ),
    // hook: runc 1.0..: `runc init` of create and run, and of exec; both end in `execve`
    phase(
        "runc-init",
        Class::RuncStep,
        End::WithProgram,
        &[("libcontainer.(*linuxStandardInit)", &["Init"]), ("libcontainer.(*linuxSetnsInit)", &["Init"])],
        "runc 1.0 and later",
        "that runc init got as far as Go",
    ),
    // hook: runc 1.0..: libcontainer.parseSync, between runc and its init
    step(
        "runc-sync",
        &[("libcontainer", &["parseSync"])],
        "runc 1.0 and later",
        "that it waits for its init",
    ),
    // hook: runc 1.0.0-rc93..: libcontainer/seccomp/patchbpf.PatchAndLoad, in `runc init`
    step(
        "runc-seccomp",
        &[("patchbpf", &["PatchAndLoad"])],
        "runc 1.0.0-rc93 and later",
        "that runc init loads its seccomp filter",
    ),
    // hook: runc 1.0..: libcontainer/configs.HookList.RunHooks; beside it, and instead of it, 1.3: configs.Hooks.Run
    wait(
        "runc-hooks",
        &[("configs.HookList", &["RunHooks"]), ("configs.Hooks", &["Run"])],
        "runc 1.0 and later",
        "that it waits for hooks",
    ),
    // hook: runc 1.0..1.2: libcontainer/cgroups/systemd; 1.3..: github.com/opencontainers/cgroups/systemd. Both call
    // systemd, and then wait for the end of its job
    wait(
        "runc-unit",
        &[("cgroups/systemd", &["startUnit", "stopUnit"])],
        "runc 1.0 and later",
        "that it waits for a job of systemd",
    ),
    // hook: godbus 4..5: both wait for the answer, for ever
    wait(
        "runc-dbus",
        &[
            ("godbus/dbus.(*Object)", &["Call", "CallWithContext"]),
            ("dbus/v5.(*Object)", &["Call", "CallWithContext"]),
        ],
        "runc 1.0 and later",
        "that it waits for a D-Bus reply",
    ),
    // hook: runc 1.0..: libcontainer.destroy
    step("runc-destroy", &[("libcontainer", &["destroy"])], "runc 1.0 and later", "what delete is about"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CATALOGUE, wanted};

    /// Packages that moved, and types that were renamed, are found; namesakes are not.
    #[test]
    fn phases_of_all_versions() {
        let id = |symbol: &str| wanted(CATALOGUE, Component::Runc, symbol).map(|found| found.row.id);
        let (runc, cgroups) =
            ("github.com/opencontainers/runc/libcontainer", "github.com/opencontainers/cgroups");
        for (symbol, expected) in [
            (format!("{runc}.(*linuxContainer).start"), "runc-container"),
            (format!("{runc}.(*Container).exec"), "runc-container"),
            (format!("{runc}.(*linuxSetnsInit).Init"), "runc-init"),
            (format!("{runc}/configs.HookList.RunHooks"), "runc-hooks"),
            (format!("{runc}/configs.Hooks.Run"), "runc-hooks"),
            (format!("{runc}/cgroups/systemd.startUnit"), "runc-unit"),
            (format!("{cgroups}/systemd.stopUnit"), "runc-unit"),
            ("github.com/godbus/dbus.(*Object).Call".to_owned(), "runc-dbus"),
            ("github.com/godbus/dbus/v5.(*Object).CallWithContext".to_owned(), "runc-dbus"),
        ] {
            assert_eq!(id(&symbol), Some(expected), "{symbol}");
        }
        for symbol in [
            format!("{runc}/configs.(*HookList).RunHooks"),
            format!("{runc}/configs.(*Command).Run"),
            format!("{runc}.(*linuxContainer).start.func1"),
            "os/exec.(*Cmd).Run".to_owned(),
            "runtime.gopark".to_owned(),
        ] {
            assert_eq!(id(&symbol), None, "{symbol}");
        }
    }

    /// All are phases, and none ends at marks, for which another row would be needed.
    #[test]
    fn all_are_phases() {
        for row in ROWS {
            let HookRole::Calls { layer: Layer::RuncPhase, end } = row.what else { panic!("{}", row.id) };
            assert_ne!(end, End::Marks, "{}", row.id);
        }
    }
}
