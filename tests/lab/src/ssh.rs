//! A machine to which one comes over ssh: this one, by a real sshd of bookworm. It listens on the loopback interface, lets in who has its
//! key, and knows itself by a name of its own. What it needs in `/etc` and in the home of root it finds in a mount namespace, and its users have that,
//! too: [`Ssh::shell`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::daemon::Daemon;
use crate::packages::{self, Suite};
use crate::scratch::Scratch;
use crate::{host, http, process};

const PACKAGES: &[&str] = &["openssh-server", "openssh-client", "libwrap0"];
/// By this name it is reached.
pub const NAME: &str = "plegtrace-node";
/// sshd separates its privileges in this directory, by a path that is compiled in, and as this user.
const EMPTY: &str = "/run/sshd";
const USER: &str = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n";
const START_LIMIT: Duration = Duration::from_secs(30);
/// Files of the lab over those of the machine, each `OWN PLACE`, then the command.
const OVER: &str =
    "while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" && shift 2 || exit 125; done; shift; exec \"$@\"";

/// A running sshd; it ends when it is dropped.
#[derive(Debug)]
pub struct Ssh {
    daemon: Daemon,
    dir: PathBuf,
    programs: PathBuf,
    /// Directories of the machine that were not there before.
    made: Vec<PathBuf>,
    keys: PathBuf,
}

impl Ssh {
    /// Starts it in the lab of `scratch`.
    ///
    /// # Errors
    ///
    /// When its packages cannot be had, or it does not listen in time.
    pub fn start(scratch: &Scratch) -> Result<Ssh> {
        let tree = packages::unpack(Suite::Bookworm, PACKAGES)?;
        let (dir, port) = (scratch.path().join("ssh"), http::free_port()?);
        fs::create_dir_all(dir.join("root")).context("cannot make the directory of sshd")?;
        let programs = tree.path("usr/bin")?;
        write_files(&dir, &programs, port)?;
        let keys = keys()?;
        let both = [Path::new(EMPTY), &keys].into_iter().filter(|dir| fs::create_dir(dir).is_ok());
        let made = both.map(Path::to_owned).collect();
        let mut command = over(&dir, &keys);
        let libraries = tree.path("usr/lib/x86_64-linux-gnu")?;
        command.arg("env").arg(format!("LD_LIBRARY_PATH={}", libraries.display()));
        command.arg(tree.path("usr/sbin/sshd")?).args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
        let daemon = Daemon::start(scratch, command, &dir.join("sshd.log"))?;
        let ssh = Ssh { daemon, dir, programs, made, keys };
        process::wait_for("an sshd that listens", START_LIMIT, || {
            ensure!(ssh.daemon.ended()?.is_none(), "sshd has ended: {}", ssh.log());
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })?;
        Ok(ssh)
    }

    /// A shell that runs `line` on another machine, as far as that line can tell: one that has ssh and scp, and reaches this one as
    /// `root@`[`NAME`].
    #[must_use]
    pub fn shell(&self, line: &str) -> Command {
        let mut command = over(&self.dir, &self.keys);
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["sh", "-c", line]).env("PATH", format!("{}:{path}", self.programs.display()));
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("sshd.log")).unwrap_or_default()
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.daemon.close();
        for dir in &self.made {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Downloads its packages.
///
/// # Errors
///
/// When they cannot be had.
pub fn fetch() -> Result<()> {
    packages::unpack(Suite::Bookworm, PACKAGES).map(drop)
}

/// Where root's keys are on this machine.
fn keys() -> Result<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let root = users.lines().find(|line| line.starts_with("root:")).and_then(|line| line.split(':').nth(5));
    Ok(Path::new(root.context("root has no home")?).join(".ssh"))
}

/// A command, to be named, among the files of the lab.
fn over(dir: &Path, keys: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "--", "sh", "-c", OVER, "sh"]);
    for (own, place) in [("hosts", "/etc/hosts"), ("passwd", "/etc/passwd")] {
        command.arg(dir.join(own)).arg(place);
    }
    command.arg(dir.join("root")).arg(keys);
    command.arg("--");
    command
}

fn write_files(dir: &Path, programs: &Path, port: u16) -> Result<()> {
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let others: String = users
        .lines()
        .filter(|line| !line.starts_with("sshd:"))
        .fold(String::new(), |all, line| all + line + "\n");
    for key in ["host", "root/id_ed25519"] {
        let mut make = Command::new(programs.join("ssh-keygen"));
        host::run(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key)))?;
    }
    let client = format!("Host {NAME}\n  Port {port}\n  StrictHostKeyChecking accept-new\n");
    let sshd = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nPidFile none\nUsePAM no\nPermitRootLogin prohibit-password\n\
         PasswordAuthentication no\nSubsystem sftp internal-sftp\n",
        dir.display()
    );
    let key = fs::read_to_string(dir.join("root/id_ed25519.pub")).context("cannot read a key")?;
    let texts = [
        ("hosts", format!("127.0.0.1 localhost {NAME}\n")),
        ("passwd", others + USER),
        ("root/config", client),
        ("root/authorized_keys", key),
        ("sshd_config", sshd),
    ];
    for (name, text) in texts {
        fs::write(dir.join(name), text).with_context(|| format!("cannot write {name} for sshd"))?;
    }
    Ok(())
}
