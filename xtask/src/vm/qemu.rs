//! Image, payload and accelerator → the command line of QEMU, and a running machine that ends when we do.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::accel::Accel;
use super::image::Image;

/// `panic=-1` reboots at once, which `-no-reboot` turns into the end of QEMU. Emulated processors are starved by a
/// busy host, so the kernel's own watchdogs get more time than usual, and the check that the timer ticks within ten
/// ticks is left out. Every device that tests use is there without udev, which would load drivers for processors and buttons for
/// a third of the time that a guest takes to start.
const KERNEL_ARGUMENTS: &str = "root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check rcupdate.rcu_cpu_stall_timeout=120 \
                                sysctl.kernel.watchdog_thresh=60 systemd.show_status=0 systemd.mask=apt-daily.timer \
                                systemd.mask=apt-daily-upgrade.timer systemd.mask=systemd-networkd-wait-online.service \
                                systemd.mask=systemd-udev-trigger.service";

/// The third disk is the payload once more, for a test that needs one which is busy for half a second with each write, be it large:
/// newer kernels make writes of many mebibytes. QEMU does not hold reads and flushes back.
const SLOW: &str = "snapshot=on,throttling.iops-write=2,throttling.bps-write=1048576";

/// What a guest is made of.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) image: Image,
    pub(crate) payload: PathBuf,
    pub(crate) accel: Accel,
    /// Whether it may restart; a kernel that panics would do so, too, until its budget ends.
    pub(crate) restarts: bool,
    /// Where the guest's console goes.
    pub(crate) console: PathBuf,
}

impl Machine {
    /// QEMU with the second serial port on its standard streams. Nothing is written to the image, there is no
    /// network, and QEMU itself may neither start programs nor gain privileges.
    pub(crate) fn command(&self) -> Command {
        let drive = |path: &Path, rest: &str| format!("file={},if=virtio,format=raw,{rest}", path.display());
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-nic", "none"])
            .args((!self.restarts).then_some("-no-reboot"))
            .args(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"])
            .args(["-smp", "2", "-m", "2048"])
            .args(self.accel.options())
            .arg("-kernel")
            .arg(self.image.kernel())
            .arg("-initrd")
            .arg(self.image.initrd())
            .args(["-append", KERNEL_ARGUMENTS, "-drive"])
            .arg(drive(&self.image.root(), "snapshot=on"))
            .arg("-drive")
            .arg(drive(&self.payload, "readonly=on"))
            .arg("-drive")
            .arg(drive(&self.payload, SLOW))
            .args(["-device", "virtio-rng-pci", "-serial"])
            .arg(format!("file:{}", self.console.display()))
            .args(["-serial", "stdio"]);
        command
    }

    /// Starts the guest; its second serial port is the child's standard output.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub(crate) fn start(&self) -> Result<Child> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: prctl is async-signal-safe and touches nothing but the new process.
        unsafe {
            command.pre_exec(|| {
                // A guest must not outlive us, however we end.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        command.spawn().context("cannot start qemu-system-x86_64: run `cargo xtask setup`")
    }
}
