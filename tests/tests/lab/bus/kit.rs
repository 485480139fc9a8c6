//! A private bus (a real dbus-daemon), whoever plays systemd there, a monitor of the bus, and the real runc with the
//! systemd cgroup driver.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{Containerd, host, packages, process};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::json;
use zbus::blocking::{Connection, connection};
use zbus::message::{Flags, Message};
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};

use super::numbers::Numbers;

/// Connections that root may have to such a bus.
pub(super) const MOST_CONNECTIONS: usize = 16;
/// Bytes that a narrow bus keeps for a client that does not read, and calls of that length that fill it and the socket, too.
const KEPT: usize = 50_000;
const CALLS: usize = 40;
/// So long the bus tries to start somebody for a name that nobody has.
const START_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const LIMIT: Duration = Duration::from_secs(60);
pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(super) const MANAGER: &str = "/org/freedesktop/systemd1";

/// A dbus-daemon that allows everything.
#[derive(Debug)]
pub(super) struct Bus {
    dir: PathBuf,
    pub(super) daemon: Child,
}

impl Bus {
    pub(super) fn start(containerd: &Containerd, name: &str) -> Result<Bus> {
        Self::start_with(containerd, name, "")
    }

    /// One that keeps little for a client that does not read.
    pub(super) fn start_narrow(containerd: &Containerd, name: &str) -> Result<Bus> {
        Self::start_with(containerd, name, &format!("<limit name=\"max_outgoing_bytes\">{KEPT}</limit>"))
    }

    fn start_with(containerd: &Containerd, name: &str, limits: &str) -> Result<Bus> {
        let dir = containerd.scratch().path().join(name);
        let mut command = Self::prepare(&dir, limits)?;
        let daemon = containerd.scratch().spawn(&mut command, &dir.join("log"))?;
        Self::started(dir, daemon)
    }

    /// The same, as a child of this process and with nobody to clean up after it.
    pub(super) fn start_here(dir: &Path) -> Result<Bus> {
        let daemon = Self::prepare(dir, "")?.spawn()?;
        Self::started(dir.to_owned(), daemon)
    }

    fn started(dir: PathBuf, daemon: Child) -> Result<Bus> {
        let socket = dir.join("dbus/system_bus_socket");
        process::wait_for("a bus", LIMIT, || Ok(UnixStream::connect(&socket).ok().map(drop)))?;
        Ok(Bus { dir, daemon })
    }

    /// A dbus-broker, as a child of this process, which has a mount namespace of its own. Its launcher holds the socket at which the
    /// broker listens, too.
    pub(super) fn start_broker_here(dir: &Path) -> Result<Bus> {
        let config = Self::configure(dir, "")?;
        let listener = UnixListener::bind(dir.join("dbus/system_bus_socket"))?;
        keep_a_journal()?;
        // As systemd hands over a socket (sd_listen_fds(3)).
        let script =
            "export LISTEN_PID=$$ LISTEN_FDS=1; exec dbus-broker-launch --scope system --config-file \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(config).env("DBUS_SYSTEM_BUS_ADDRESS", address(dir));
        let socket = listener.as_raw_fd();
        // SAFETY: between fork and exec only dup2 or fcntl are called, which need no lock; the socket is open until then.
        unsafe {
            command.pre_exec(move || {
                let done = if socket == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(socket, 3) };
                if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        Self::started(dir.to_owned(), command.spawn()?)
    }

    fn prepare(dir: &Path, limits: &str) -> Result<Command> {
        let config = Self::configure(dir, limits)?;
        let mut command = Command::new("dbus-daemon");
        command.arg("--nofork").arg(format!("--config-file={}", config.display()));
        Ok(command)
    }

    /// The configuration file, which both understand.
    fn configure(dir: &Path, limits: &str) -> Result<PathBuf> {
        for part in ["dbus", "services"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let socket = dir.join("dbus/system_bus_socket");
        let config = format!(
            "<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/>\
             <allow user=\"*\"/></policy><servicedir>{}</servicedir><limit name=\"service_start_timeout\">{}</limit>\
             <limit name=\"max_connections_per_user\">{MOST_CONNECTIONS}</limit>{limits}</busconfig>",
            socket.display(),
            dir.join("services").display(),
            START_TIMEOUT.as_millis()
        );
        let path = dir.join("bus.conf");
        fs::write(&path, config)?;
        Ok(path)
    }

    pub(super) fn address(&self) -> String {
        address(&self.dir)
    }

    /// Takes one of root's connections: says Hello, and nothing more.
    pub(super) fn connect(&self) -> Result<Connection> {
        Ok(connection::Builder::address(self.address().as_str())?.build()?)
    }

    /// Sends systemd more than the bus keeps for it, and waits for no answer.
    pub(super) fn fill_queue_of_systemd(&self) -> Result<()> {
        let (ours, text) = (self.connect()?, "x".repeat(KEPT));
        for _ in 0..CALLS {
            let call = Message::method_call(MANAGER, "Fill")?.destination(SYSTEMD)?;
            ours.send(&call.with_flags(Flags::NoReplyExpected)?.build(&(&text,))?)?;
        }
        // What was sent before has been passed on, or refused.
        let bus = "org.freedesktop.DBus";
        ours.call_method(Some(bus), "/org/freedesktop/DBus", Some(bus), "GetId", &())?;
        Ok(())
    }

    /// Connections that the bus does not accept, as many as wait for that at most: it has to be stopped.
    pub(super) fn fill_backlog(&self) -> Result<Vec<OwnedFd>> {
        let path = SocketAddrUnix::new(self.dir.join("dbus/system_bus_socket"))?;
        let mut waiting = Vec::new();
        loop {
            let socket =
                net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
            match net::connect(&socket, &path) {
                Ok(()) => waiting.push(socket),
                Err(Errno::AGAIN) => return Ok(waiting),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// From now on the bus starts a program for the name of systemd that never takes it.
    pub(super) fn starts_nobody(&self) -> Result<()> {
        start_nobody(&self.dir)?;
        let ours = self.connect()?;
        let bus = "org.freedesktop.DBus";
        ours.call_method(Some(bus), "/org/freedesktop/DBus", Some(bus), "ReloadConfig", &())?;
        Ok(())
    }
}

/// The launcher writes its log to the journal, and does not start without one: in this mount namespace there is one that nobody reads.
fn keep_a_journal() -> Result<()> {
    host::run(Command::new("mount").args(["-t", "tmpfs", "none", "/run/systemd"]))?;
    fs::create_dir("/run/systemd/journal")?;
    let journal = UnixDatagram::bind("/run/systemd/journal/socket")?;
    thread::spawn(move || while journal.recv(&mut [0; 4096]).is_ok() {});
    Ok(())
}

/// Has a bus in this directory start a program for the name of systemd that never takes it; a dbus-broker asks systemd to do so.
pub(super) fn start_nobody(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("services"))?;
    let service = format!("[D-BUS Service]\nName={SYSTEMD}\nExec=/bin/sleep 600\nUser=root\n");
    Ok(fs::write(dir.join(format!("services/{SYSTEMD}.service")), service)?)
}

/// The file that keeps the systemd of a bus in this directory from setting properties of units.
pub(super) fn mute(dir: &Path) -> PathBuf {
    dir.join("mute")
}

/// The file that is there once the systemd of a bus in this directory was asked for a job.
pub(super) fn asked(dir: &Path) -> PathBuf {
    dir.join("asked")
}

/// The address of the bus in a directory.
pub(super) fn address(dir: &Path) -> String {
    format!("unix:path={}", dir.join("dbus/system_bus_socket").display())
}

/// Whoever plays systemd: jobs are done at once, or, once they are `endless`, only those of others; once it is `silent`, calls of
/// `StartTransientUnit` wait for ever.
#[derive(Debug)]
struct Manager {
    /// While there is such a file, properties of units are not set.
    mute: PathBuf,
    /// Made when it is asked for a job.
    asked: PathBuf,
    jobs: AtomicU32,
    silent: Arc<AtomicBool>,
    endless: Arc<AtomicBool>,
}

impl Manager {
    async fn job(&self, emitter: &SignalEmitter<'_>, unit: &str) -> zbus::fdo::Result<OwnedObjectPath> {
        let id = self.jobs.fetch_add(1, Ordering::Relaxed);
        let path = |id: u32| {
            let path = OwnedObjectPath::try_from(format!("{MANAGER}/job/{id}"));
            path.map_err(|e| zbus::fdo::Error::Failed(e.to_string()))
        };
        // Everybody hears of the jobs of others too.
        let done = if self.endless.load(Ordering::Relaxed) { id + 1000 } else { id };
        fs::write(&self.asked, "").map_err(|e| zbus::fdo::Error::IOError(e.to_string()))?;
        Self::job_removed(emitter, done, path(done)?, unit, "done").await?;
        path(id)
    }
}

type Properties = Vec<(String, OwnedValue)>;

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    async fn start_transient_unit(
        &self,
        unit: String,
        _mode: String,
        _properties: Properties,
        _more: Vec<(String, Properties)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> zbus::fdo::Result<OwnedObjectPath> {
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.job(&emitter, &unit).await
    }

    async fn stop_unit(
        &self,
        unit: String,
        _mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> zbus::fdo::Result<OwnedObjectPath> {
        self.job(&emitter, &unit).await
    }

    async fn set_unit_properties(&self, _unit: String, _runtime: bool, _properties: Properties) {
        if self.mute.exists() {
            std::future::pending::<()>().await;
        }
    }

    fn reset_failed_unit(&self, _unit: String) {}

    #[zbus(property)]
    fn version(&self) -> String {
        "252".to_owned()
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}

/// Plays systemd on a bus for as long as it lives.
#[derive(Debug)]
pub(super) struct Systemd {
    connection: Connection,
    pub(super) silent: Arc<AtomicBool>,
    pub(super) endless: Arc<AtomicBool>,
}

impl Systemd {
    pub(super) fn start(bus: &Bus) -> Result<Systemd> {
        Self::start_with(bus, None)
    }

    /// One whose serial numbers run out once `numbers` says so.
    pub(super) fn start_numbered(bus: &Bus, numbers: &Numbers) -> Result<Systemd> {
        Self::start_with(bus, Some(numbers))
    }

    fn start_with(bus: &Bus, numbered: Option<&Numbers>) -> Result<Systemd> {
        let silent = Arc::new(AtomicBool::new(false));
        let endless = Arc::new(AtomicBool::new(false));
        let mute = mute(&bus.dir);
        let manager = Manager {
            mute,
            asked: asked(&bus.dir),
            jobs: AtomicU32::new(1),
            silent: Arc::clone(&silent),
            endless: Arc::clone(&endless),
        };
        let socket = bus.dir.join("dbus/system_bus_socket");
        let address = numbered.map_or_else(|| Ok(bus.address()), |numbers| numbers.listen(&socket))?;
        let builder = connection::Builder::address(address.as_str())?;
        let connection = builder.name(SYSTEMD)?.serve_at(MANAGER, manager)?.build()?;
        Ok(Systemd { connection, silent, endless })
    }

    pub(super) fn name(&self) -> String {
        self.connection.unique_name().map(ToString::to_string).unwrap_or_default()
    }
}

/// Owns systemd's name, and reads nothing any more.
pub(super) fn deaf_systemd(bus: &Bus) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(bus.dir.join("dbus/system_bus_socket"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    // The uid in hexadecimal digits of its decimal ones: root.
    stream.write_all(b"\0AUTH EXTERNAL 30\r\n")?;
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer)?;
    ensure!(answer[..read].starts_with(b"OK "), "the bus does not take us");
    stream.write_all(b"BEGIN\r\n")?;
    let own = "org.freedesktop.DBus";
    let call =
        |member| Message::method_call("/org/freedesktop/DBus", member)?.interface(own)?.destination(own);
    stream.write_all(call("Hello")?.build(&())?.data())?;
    stream.write_all(call("RequestName")?.build(&(SYSTEMD, 0u32))?.data())?;
    let mut seen = Vec::new();
    process::wait_for("the name of systemd", LIMIT, || {
        let read = stream.read(&mut answer)?;
        seen.extend_from_slice(&answer[..read]);
        // NameAcquired, and the answer to the call.
        let text = String::from_utf8_lossy(&seen);
        Ok((text.contains("NameAcquired") && text.contains(SYSTEMD)).then_some(()))
    })?;
    Ok(stream)
}

/// dbus-monitor, which sees every call on a bus.
#[derive(Debug)]
pub(super) struct Monitor {
    child: Child,
    log: PathBuf,
}

impl Monitor {
    pub(super) fn start(containerd: &Containerd, bus: &Bus) -> Result<Monitor> {
        let log = bus.dir.join("monitor");
        let mut command = Command::new("dbus-monitor");
        command.args(["--address", &bus.address(), "type='method_call'"]);
        let child = containerd.scratch().spawn(&mut command, &log)?;
        process::wait_for("a monitor", LIMIT, || {
            Ok(fs::read_to_string(&log)?.contains("NameLost").then_some(()))
        })?;
        Ok(Monitor { child, log })
    }

    /// Calls by interface and method; those of the connection `but` are left out.
    pub(super) fn calls(&self, but: &str) -> Result<BTreeMap<(String, String), u64>> {
        let text = fs::read_to_string(&self.log)?;
        let mut calls = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("method call ")) {
            if word(line, "sender=")? != but {
                let name = (word(line, "interface=")?, word(line, "member=")?);
                *calls.entry(name).or_default() += 1;
            }
        }
        Ok(calls)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn word(line: &str, name: &str) -> Result<String> {
    let (_, rest) = line.split_once(name).with_context(|| format!("no {name} in {line}"))?;
    Ok(rest.split([' ', ';']).next().unwrap_or_default().to_owned())
}

/// Starts the node's runc with the systemd cgroup driver; it runs a program that ends at once.
pub(super) fn runc(containerd: &Containerd, bus: &str, name: &str) -> Result<Child> {
    let dir = containerd.scratch().path().join(format!("bundle-{name}"));
    fs::create_dir_all(dir.join("rootfs/proc"))?;
    fs::copy(packages::busybox()?, dir.join("rootfs/busybox"))?;
    let slice = format!("plegtracelab{}.slice", containerd.scratch().id());
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": ["PATH=/"], "args": ["/busybox", "true"],
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" }],
        "linux": {
            "cgroupsPath": format!("{slice}:lab:{name}"),
            "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "ipc" }],
        },
    });
    fs::write(dir.join("config.json"), config.to_string())?;
    let state = containerd.scratch().path().join("runc-by-hand");
    // runc asks whether systemd runs; only it sees that.
    let script = "mount -t tmpfs none /run/systemd && mkdir /run/systemd/system && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(containerd.runc_program());
    command.arg("--root").arg(state).args(["--systemd-cgroup", "run", "--bundle"]).arg(&dir).arg(name);
    command.env("DBUS_SYSTEM_BUS_ADDRESS", bus).stdin(Stdio::null());
    containerd.scratch().spawn(&mut command, &dir.join("log"))
}

/// What that runc said.
pub(super) fn said(containerd: &Containerd, name: &str) -> String {
    let log: &Path = &containerd.scratch().path().join(format!("bundle-{name}/log"));
    fs::read_to_string(log).unwrap_or_default()
}
