//! Emulation or hardware? Hardware only where a guest's kernel really comes up with it: a `/dev/kvm` that opens
//! proves nothing, nested ones abort or hang in early boot.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::image::Image;
use crate::paths;
use crate::progress::step;

/// A kernel that has not come to its root file system by then never will.
const PROBE_BUDGET: Duration = Duration::from_secs(10);

/// How instructions of a guest are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accel {
    Kvm,
    Tcg,
}

impl Accel {
    /// The options of QEMU.
    pub(crate) fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // One thread runs both CPUs in turn. With a thread each, QEMU before 8.1 translates a page that the other
            // CPU is writing, and a kernel that patches its own code dies of an int3 that is long gone
            // (QEMU commits deba78709ae8 and cb62bd15e14e; Debian 12 has 7.2).
            // It also loses the flags of a cmpxchg16b that is interrupted, and Linux 6.12 dies of it in its allocator;
            // without five-level page tables there is less to walk.
            Self::Tcg => ["-accel", "tcg,thread=single", "-cpu", "max,cx16=off,la57=off"],
        }
    }

    /// What works on this machine; found out once per boot of it.
    ///
    /// # Errors
    /// When the cache cannot be used.
    pub(crate) fn detect(image: &Image) -> Result<Self> {
        if fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Self::Tcg);
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let _lock = paths::Lock::take("kvm-probe")?;
        let file = paths::cache()?.join("kvm-probe");
        let known = fs::read_to_string(&file).unwrap_or_default();
        if let Some(answer) = known.strip_prefix(boot.trim()).filter(|_| !boot.is_empty()) {
            return Ok(if answer.trim() == "works" { Self::Kvm } else { Self::Tcg });
        }
        let works = boots(image);
        step("vm", if works { "KVM works" } else { "KVM does not boot a guest: emulating" });
        let answer = format!("{} {}\n", boot.trim(), if works { "works" } else { "fails" });
        fs::write(&file, answer).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(if works { Self::Kvm } else { Self::Tcg })
    }
}

/// Starts the kernel without a disk and looks for its complaint that there is no root.
fn boots(image: &Image) -> bool {
    let child = Command::new("qemu-system-x86_64")
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-m",
            "512",
            "-serial",
            "stdio",
        ])
        .args(Accel::Kvm.options())
        .arg("-kernel")
        .arg(image.kernel())
        .args(["-append", "console=ttyS0 panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let Some(mut out) = child.stdout.take() else { return false };
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        drop(out.read_to_end(&mut text));
        String::from_utf8_lossy(&text).contains("Unable to mount root fs")
    });
    let begin = Instant::now();
    while begin.elapsed() < PROBE_BUDGET && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(50));
    }
    drop(child.kill());
    drop(child.wait());
    reader.join().unwrap_or(false)
}
