//! Programs that answer for the kernel and do not: one that must permit an access to a file (X11), one that serves a
//! FUSE file system (R12). Both are this process: however it ends, the kernel lets go of whoever waits for it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::extra;
use super::gated::{self, hook_in};
use super::guard::{CALL_LIMIT, EFFECT_LIMIT, Facts, Fault, HANGING};
use crate::cri::{Call, Pod};
use crate::gate::{self, Order, Place};
use crate::node::Node;
use crate::process;

/// Requests of FUSE (include/uapi/linux/fuse.h): the first one of a mount, and two that `df` and the end of a mount make.
const INIT: u32 = 26;
const STATFS: u32 = 17;
const DESTROY: u32 = 38;
/// Bytes of a request's head, and of an answer's.
const IN_HEAD: usize = 40;
const OUT_HEAD: usize = 16;
/// Version 7.31 without any option; a kernel may send as much as it likes.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
const BUFFER: usize = 1 << 17;

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")
}

fn done(result: libc::c_int, what: &str) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context(what.to_owned()) }
}

/// Asks to permit each open of a file, and never answers.
fn listener(path: &Path) -> Result<OwnedFd> {
    let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    // SAFETY: plain numbers; a descriptor or -1 comes back.
    let fd = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as libc::c_uint) };
    ensure!(fd >= 0, "fanotify_init: {}", std::io::Error::last_os_error());
    // SAFETY: nobody else has this descriptor.
    let listener = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = c_path(path)?;
    // SAFETY: an open descriptor and a string that ends with a zero.
    let marked = unsafe {
        libc::fanotify_mark(fd, libc::FAN_MARK_ADD, libc::FAN_OPEN_PERM, libc::AT_FDCWD, name.as_ptr())
    };
    done(marked, "fanotify_mark")?;
    Ok(listener)
}

/// A container in the sandbox of `pod` whose createRuntime hook opens a file that an agent must permit, and does not: its
/// StartContainer hangs in `runc create`.
///
/// # Errors
///
/// When the node has no gates, the kernel no fanotify, or the hook is not seen.
pub fn silent_agent(node: &Node, pod: &Pod) -> Result<Fault> {
    let dir = gated::gates(node)?;
    let client = node.containerd().client();
    let container = extra::create(node, pod, "scanned", None)?;
    let guard = Fault::new(Facts::default()).cleaned_by(extra::removal(client, &container));
    let scanned = dir.join(format!("scanned-{container}"));
    fs::write(&scanned, "").context("cannot write a file")?;
    let agent = listener(&scanned)?;
    let let_go = move || {
        // The kernel permits what waits.
        drop(agent);
        Ok(())
    };
    opening_hook(node, pod, container, scanned, guard, let_go)
}

/// A manifest that an agent must permit the kubelet to read, and does not: one of its threads hangs, and no static pod changes any more.
///
/// # Errors
///
/// When the kernel has no fanotify, or the kubelet does not read it.
pub fn agent_before_kubelet(node: &Node) -> Result<Fault> {
    let (kubelet, manifests) = (node.kubelet().pid(), node.kubelet().manifests());
    // Names that begin with a dot are not read, so that it is marked before it is.
    let (hidden, scanned) = (manifests.join(".scanned"), manifests.join("scanned.json"));
    fs::write(&hidden, "{}").context("cannot write a file")?;
    let agent = listener(&hidden)?;
    fs::rename(&hidden, &scanned).context("cannot publish a manifest")?;
    let facts = Facts {
        victims: vec![kubelet],
        culprits: vec![std::process::id()],
        path: Some(scanned.clone()),
        ..Facts::default()
    };
    let guard = Fault::new(facts).healed_by(move || {
        // The kernel permits what waits.
        drop(agent);
        fs::remove_file(scanned).context("cannot remove a manifest")
    });
    process::wait_for("a kubelet in open", EFFECT_LIMIT, || {
        let waits = |thread: &process::Blocked| thread.syscall == libc::SYS_openat;
        Ok(process::blocked_threads(kubelet).iter().any(waits).then_some(()))
    })?;
    Ok(guard)
}

/// Starts a container whose createRuntime hook opens a file and waits there, until `let_go` lets it go on.
fn opening_hook(
    node: &Node,
    pod: &Pod,
    container: String,
    file: PathBuf,
    guard: Fault,
    let_go: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<Fault> {
    let (dir, client) = (gated::gates(node)?, node.containerd().client());
    let order = gate::close(dir, Place::CreateRuntime, &container, &Order::Lock(file.clone(), 0))?;
    let guard = guard.healed_by(gated::opening(order)).healed_by(let_go);
    let id = container.clone();
    let call = Call::start(client, "StartContainer", move |client| client.start_container(&id, HANGING))?;
    let guard = guard.holding(call);
    let (hook, runc) = process::wait_for("a hook in open", EFFECT_LIMIT, || {
        Ok(hook_in(dir, &container, libc::SYS_openat).or_else(|| hook_in(dir, &container, libc::SYS_open)))
    })?;
    let facts = Facts {
        victims: vec![hook.pid(), runc],
        culprits: vec![std::process::id()],
        pod: pod.name.clone(),
        ids: vec![pod.sandbox.clone(), container],
        path: Some(file),
    };
    Ok(guard.with(facts))
}

/// A container in the sandbox of `pod` whose createRuntime hook opens a file on a FUSE file system that does not answer: its
/// StartContainer hangs in `runc create`.
///
/// # Errors
///
/// When the node has no gates, the kernel no FUSE, or the hook is not seen.
pub fn dead_fuse(node: &Node, pod: &Pod) -> Result<Fault> {
    let dir = gated::gates(node)?;
    let container = extra::create(node, pod, "fused", None)?;
    let removal = extra::removal(node.containerd().client(), &container);
    let guard = Fault::new(Facts::default()).cleaned_by(removal);
    let mount = DeadMount::mount(dir.join(format!("fuse-{container}")))?;
    let file = mount.place.join("data");
    opening_hook(node, pod, container, file, guard, move || mount.unmount())
}

/// A FUSE file system that answers nothing but its first request, and how full it is.
#[derive(Debug)]
pub(super) struct DeadMount {
    device: File,
    pub(super) place: PathBuf,
}

impl DeadMount {
    pub(super) fn mount(place: PathBuf) -> Result<DeadMount> {
        fs::create_dir_all(&place).context("cannot make a directory")?;
        let mut options = OpenOptions::new();
        let device = options.read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/fuse");
        let device = device.context("this kernel has no FUSE")?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let (at, data) = (c_path(&place)?, CString::new(data).context("no zero byte")?);
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: strings that end with a zero and live until the call returns.
        let mounted = unsafe {
            libc::mount(c"plegtrace-lab".as_ptr(), at.as_ptr(), c"fuse".as_ptr(), flags, data.as_ptr().cast())
        };
        done(mounted, "cannot mount FUSE")?;
        let mount = DeadMount { device, place };
        let mut server = mount.device.try_clone().context("cannot serve FUSE")?;
        let serve = move || while serve_one(&mut server).is_ok() {};
        thread::Builder::new().name("dead-mount".to_owned()).spawn(serve).context("no thread")?;
        Ok(mount)
    }

    /// Whoever waits gets an error, and the mount is gone.
    pub(super) fn unmount(&self) -> Result<()> {
        let place = c_path(&self.place)?;
        // SAFETY: a string that ends with a zero and lives until the call returns.
        let unmounted = unsafe { libc::umount2(place.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        done(unmounted, "cannot unmount FUSE")?;
        // A kubelet may be faster, where it is the volume of a pod.
        match fs::remove_dir(&self.place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("cannot remove a mount point")
            }
            _ => Ok(()),
        }
    }
}

/// Reads a request, and answers it when it is one of the few.
fn serve_one(device: &mut File) -> std::io::Result<()> {
    let mut request = vec![0; BUFFER];
    let length = device.read(&mut request)?;
    let word = |at: usize| {
        request
            .get(at..at + 4)
            .map_or(0, |bytes| bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)))
    };
    let (opcode, unique) = (word(4), request[8..16].to_vec());
    let (error, body): (i32, Vec<u8>) = match opcode {
        INIT if length > IN_HEAD => (0, first_answer(word(IN_HEAD + 8))),
        STATFS => (-libc::ENOSYS, Vec::new()),
        DESTROY => (0, Vec::new()),
        _ => return Ok(()),
    };
    let length = u32::try_from(OUT_HEAD + body.len()).unwrap_or(0);
    let mut answer = length.to_ne_bytes().to_vec();
    answer.extend(error.to_ne_bytes());
    answer.extend(unique);
    answer.extend(body);
    device.write_all(&answer)
}

/// `fuse_init_out`: version, read ahead, no flags, requests in the background, largest write, grain of times.
fn first_answer(read_ahead: u32) -> Vec<u8> {
    let background: u32 = 12 | 9 << 16;
    let words = [MAJOR, MINOR, read_ahead, 0, background, 4096, 1];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    body
}

/// A container for `pod` with a host path on a FUSE file system whose program does not answer: its CreateContainer hangs.
///
/// # Errors
///
/// When the kernel has no FUSE, or containerd does not ask for the path.
pub fn dead_mount(node: &Node, pod: &Pod) -> Result<Fault> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let containerd = node.containerd();
    let name = format!("dead-mount{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mount = DeadMount::mount(containerd.scratch().path().join(&name))?;
    let (place, daemon) = (mount.place.clone(), containerd.pid());
    let facts = Facts {
        victims: vec![daemon],
        culprits: vec![std::process::id()],
        pod: pod.name.clone(),
        ids: vec![pod.sandbox.clone()],
        path: Some(place.clone()),
    };
    let guard = Fault::new(facts).healed_by(move || mount.unmount());
    let (node_extra, sandbox) = (extra::with_host_path(node, &name, place), pod.sandbox.clone());
    let call = Call::start(containerd.client(), "CreateContainer", move |client| {
        client.create_extra(&sandbox, &node_extra, HANGING).map(drop)
    })?;
    let guard = guard.holding(call);
    process::wait_for("a runtime that waits for FUSE", EFFECT_LIMIT, || {
        let waits = |thread: &process::Blocked| thread.wchan.contains("request_wait_answer");
        Ok(process::blocked_threads(daemon).iter().any(waits).then_some(()))
    })?;
    containerd.client().list_containers(CALL_LIMIT).context("the lists should be answered")?;
    Ok(guard)
}
