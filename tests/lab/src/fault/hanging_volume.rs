//! A volume that does not mount (H1): the driver of a FlexVolume waits for ever, and the kubelet for the driver.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::gated::{LONG, fresh_name};
use super::guard::{EFFECT_LIMIT, Facts, Fault};
use crate::node::Node;
use crate::process::{self, Process};

/// Vendor and name of the driver; its directory has both (`flexVolume` of a pod has a slash between them).
const DRIVER: &str = "lab~slow";
/// While this file is next to the driver, it does not mount.
const CLOSED: &str = ".closed";

/// The driver: it makes a directory, which is a volume already, unless it is to hang.
fn script(home: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         case \"$1\" in\n\
         init) echo '{{\"status\":\"Success\",\"capabilities\":{{\"attach\":false}}}}'; exit ;;\n\
         mount) [ -e '{}' ] && sleep {LONG}; mkdir -p \"$2\" ;;\n\
         esac\n\
         echo '{{\"status\":\"Success\"}}'\n",
        home.join(CLOSED).display()
    )
}

/// Puts the driver where the kubelet finds it: it watches the directory, and runs what it sees.
fn install(plugins: &Path) -> Result<PathBuf> {
    let home = plugins.join(DRIVER);
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    fs::write(home.join(CLOSED), "").context("cannot close the driver")?;
    // A kubelet that sees half of it runs half of it.
    let hidden = plugins.join(".slow");
    fs::write(&hidden, script(&home)).context("cannot write the driver")?;
    fs::set_permissions(&hidden, Permissions::from_mode(0o755))
        .context("cannot make the driver executable")?;
    fs::rename(&hidden, home.join("slow")).context("cannot install the driver")?;
    Ok(home)
}

/// The driver that waits below this kubelet: its shell, and the program that this runs.
fn driver_of(kubelet: u32) -> Option<(u32, Process)> {
    let sleeps = |pid: &u32| process::name(*pid) == "sleep";
    let below = |pid: u32| {
        let shell = process::parent(pid)?;
        Some((shell, Process::running(pid)?)).filter(|_| process::parent(shell) == Some(kubelet))
    };
    process::all().into_iter().filter(sleeps).find_map(below)
}

/// A pod with a volume whose driver does not come back from `mount`: the pod does not start, and nothing else hangs.
///
/// # Errors
///
/// When the driver cannot be installed, or the kubelet does not run it.
pub fn hanging_volume(node: &Node) -> Result<Fault> {
    let (kubelet, pod) = (node.kubelet(), fresh_name("volume"));
    let home = install(&kubelet.volume_plugins())?;
    let manifests = kubelet.add_pod_with_volume(&pod, &DRIVER.replace('~', "/"))?;
    let guard = Fault::new(Facts::default()).cleaned_by(move || {
        fs::remove_file(manifests).context("cannot remove the manifest of the pod with the volume")
    });
    let closed = home.join(CLOSED);
    let guard = guard.healed_by(move || fs::remove_file(closed).context("cannot open the driver again"));
    let daemon = kubelet.pid();
    let (shell, sleeping) = process::wait_for("a driver that waits", EFFECT_LIMIT, || Ok(driver_of(daemon)))?;
    let facts = Facts { victims: vec![shell], culprits: vec![sleeping.pid()], ..Facts::default() };
    Ok(guard.with(facts).healed_by_killing(vec![sleeping]))
}
