//! A suite → a cached directory with a root disk, the suite's kernel and its initrd.
//!
//! Only the suite itself is used, without its security archive: the image then changes with point releases only.
//! The directory's name holds the suite, a hash of the recipe and the day it was made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use super::suites::{self, Suite};
use crate::progress::step;
use crate::{apt, cmd, paths};

/// Between one try and the next.
const PAUSES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(40)];

const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,containerd,runc,ca-certificates,initramfs-tools,linux-image-cloud-amd64,man-db";

/// Grows with the file system's contents only: the file is sparse.
const DISK_SIZE: &str = "3G";

/// Runs whatever the second disk holds, on the second serial port, when the guest's services are up. The port is not
/// given to systemd as a terminal, because it would write control sequences into our lines.
const UNIT: &str = "\
[Unit]
Description=Tests from the second disk
After=containerd.service dbus.service systemd-logind.service

[Service]
ExecStartPre=/bin/sh -c 'mkdir -p /run/payload && mount -o ro /dev/vdb /run/payload'
ExecStart=/bin/sh -c 'exec /run/payload/start </dev/ttyS1 >/dev/ttyS1 2>&1'
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
";

/// What makes a guest.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    dir: PathBuf,
}

/// What came of looking for an image.
#[derive(Debug)]
pub(crate) enum Found {
    Image(Image),
    /// The archive does not have this suite any more.
    Gone(String),
}

impl Image {
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root.ext4")
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(crate) fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }
}

/// The image of a suite: the cached one while it is fresh, or a new one.
///
/// # Errors
/// When the image cannot be made and there is no older one to fall back to.
pub(crate) fn get(suite: Suite, refresh: bool) -> Result<Found> {
    let _lock = paths::Lock::take(&format!("image-{}", suite.name))?;
    let images = paths::cache()?.join("images");
    let prefix = format!("{}-{:08x}-", suite.name, recipe_hash());
    let today = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400);
    let newest = newest(&images, &prefix);
    if let Some((day, dir)) =
        newest.clone().filter(|(day, _)| !refresh && today.saturating_sub(*day) < suite.fresh_days)
    {
        step("vm", &format!("{}: image of day {day} from the cache", suite.name));
        return Ok(Found::Image(Image { dir }));
    }
    step("vm", &format!("{}: making the image (about a minute)", suite.name));
    match make(suite, &images.join(format!("{prefix}{today}"))) {
        Ok(found) => Ok(found),
        Err(error) => match newest {
            // An old image is better than none, as long as it is said.
            Some((day, dir)) => {
                step("vm", &format!("{}: using the image of day {day}, because: {error:#}", suite.name));
                Ok(Found::Image(Image { dir }))
            }
            None => Err(error),
        },
    }
}

/// The newest finished image and the day it was made, in days since 1970.
fn newest(images: &Path, prefix: &str) -> Option<(u64, PathBuf)> {
    let entries = fs::read_dir(images).ok()?.filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let day = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((day, entry.path()))
        })
        .max()
}

/// Makes the image, again when the archive did not play along.
fn make(suite: Suite, dir: &Path) -> Result<Found> {
    let mut made = try_to_make(suite, dir);
    for pause in PAUSES {
        if !made.as_ref().is_err_and(|error| is_mood(&format!("{error:#}"))) {
            return made;
        }
        step(
            "vm",
            &format!(
                "{}: the archive does not answer as it should; once more in {} s",
                suite.name,
                pause.as_secs()
            ),
        );
        thread::sleep(pause);
        made = try_to_make(suite, dir);
    }
    match made {
        // What a mirror is up to must fail nobody; the suite that everything rests on has to be there.
        Err(error) if is_mood(&format!("{error:#}")) && suite.name != suites::BASE => Ok(Found::Gone(
            format!("cannot be had: {}", error.root_cause().to_string().lines().next().unwrap_or_default()),
        )),
        made => made,
    }
}

fn try_to_make(suite: Suite, dir: &Path) -> Result<Found> {
    let half = dir.with_extension("half");
    if half.exists() {
        cmd::run(cmd::as_root("rm")?.arg("-rf").arg(&half))?;
    }
    fs::create_dir_all(&half).with_context(|| format!("cannot create {}", half.display()))?;
    let log = paths::target().join(format!("vm-logs/{}.image.log", suite.name));
    let tree = half.join("tree");
    if let Err(error) = cmd::run_logged(&mut bootstrap(suite, &half, &tree)?, &log) {
        let text = fs::read_to_string(&log).unwrap_or_default();
        cmd::run(cmd::as_root("rm")?.arg("-rf").arg(&half))?;
        return match gone(&text) {
            Some(reason) => Ok(Found::Gone(reason)),
            None => Err(error).with_context(|| format!("cannot make the image of {}", suite.name)),
        };
    }
    pack(&half, &tree)?;
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::rename(&half, dir).with_context(|| format!("cannot move the image to {}", dir.display()))?;
    Ok(Found::Image(Image { dir: dir.to_path_buf() }))
}

fn bootstrap(suite: Suite, half: &Path, tree: &Path) -> Result<Command> {
    let unit = half.join("guest.service");
    fs::write(&unit, UNIT).with_context(|| format!("cannot write {}", unit.display()))?;
    let mut command = cmd::as_root("mmdebstrap")?;
    command.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    command.arg("--aptopt=Acquire::Languages \"none\"");
    // The index of a rolling suite outlives its signature where a mirror or a clock is behind.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    for excluded in ["man", "doc", "locale", "info"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{excluded}/*"));
    }
    command.arg(format!("--customize-hook=upload '{}' /etc/systemd/system/guest.service", unit.display()));
    command.arg("--customize-hook=chroot \"$1\" systemctl enable guest.service");
    command.arg(suite.name).arg(tree);
    if let Some(uri) = apt::debian_mirror() {
        command.arg(format!("deb {uri} {} main", suite.name));
    }
    Ok(command)
}

/// The tree → disk, kernel and initrd; the tree is removed.
fn pack(half: &Path, tree: &Path) -> Result<()> {
    for (pattern, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd")] {
        let from = only_file(&tree.join("boot"), pattern)?;
        let to = half.join(name);
        cmd::run(cmd::as_root("cp")?.arg(&from).arg(&to))?;
        cmd::run(cmd::as_root("chmod")?.arg("0644").arg(&to))?;
    }
    let disk = half.join("root.ext4");
    cmd::output(
        cmd::as_root("mke2fs")?.args(["-q", "-t", "ext4", "-d"]).arg(tree).arg(&disk).arg(DISK_SIZE),
    )?;
    cmd::run(cmd::as_root("rm")?.arg("-rf").arg(tree))
}

fn only_file(dir: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    ensure!(found.len() == 1, "{} files {prefix}* in {}, expected one", found.len(), dir.display());
    Ok(found[0].clone())
}

/// Whether mmdebstrap failed because the archive has no such suite; anything else is an error of ours or of the
/// network.
fn gone(log: &str) -> Option<String> {
    let says = |line: &&str| {
        line.contains("does not have a Release file") || line.contains("no longer has a Release file")
    };
    log.lines().find(says).map(|line| format!("left the archive: {}", line.trim_start_matches("E: ")))
}

/// Whether the words of a failure are those of an archive, and not of our recipe.
fn is_mood(said: &str) -> bool {
    const WORDS: [&str; 7] = [
        "Failed to fetch",
        "Could not connect",
        "Could not resolve",
        "Connection failed",
        "Connection timed out",
        "Hash Sum mismatch",
        "File has unexpected size",
    ];
    WORDS.iter().any(|words| said.contains(words))
}

/// FNV-1a over everything that decides what is in an image.
fn recipe_hash() -> u32 {
    let recipe = [PACKAGES, UNIT, DISK_SIZE].concat();
    recipe.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a missing suite is a skip; a network that does not answer is not.
    #[test]
    fn gone_is_told_from_unreachable() {
        let left = "E: The repository 'http://mirror/debian potato Release' does not have a Release file.";
        assert!(gone(left).is_some_and(|reason| reason.contains("potato")));
        assert_eq!(gone("E: Failed to fetch http://mirror/debian  Could not connect to mirror:80"), None);
    }

    /// A mirror that hiccups is asked again; a package that no suite has is our mistake.
    #[test]
    fn an_archive_has_moods() {
        assert!(is_mood("E: Failed to fetch http://mirror/x.deb  503  Service Unavailable"));
        assert!(!is_mood("E: Unable to locate package containrd") && !is_mood("mke2fs: no space"));
    }

    /// The newest image of the right recipe is taken; half-made ones and other recipes are not seen.
    #[test]
    fn newest_image_is_found() {
        let dir = std::env::temp_dir().join(format!("plegtrace-images-{}", std::process::id()));
        for name in ["sid-aa-100", "sid-aa-120", "sid-aa-130.half", "sid-bb-200"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let found = newest(&dir, "sid-aa-");
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.map(|(day, _)| day), Some(120));
    }
}
