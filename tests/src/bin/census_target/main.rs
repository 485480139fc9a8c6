//! Programs that wait in a certain way, for tests of the census: started under the name of a component, they say on
//! stdout that they are ready, and then wait until they are killed.

mod fuse;

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

/// Bytes left unread in the socket.
const UNREAD: &[u8] = b"nobody reads this";

fn main() -> Result<()> {
    die_with_parent();
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[1..] {
        ["rest", ..] => {}
        ["pipe"] => return pipe(),
        ["fifo", path] => return fifo(path),
        ["socket", program] => return socket(program),
        ["child", program] => return parent(program, "rest"),
        ["zombie", program] => return parent(program, "end"),
        ["end"] => return Ok(()),
        ["vfork"] => return vfork(),
        ["fuse-server", directory, program, content] => {
            return fuse::serve(directory, program, content);
        }
        ["path-from", path] => return path_from(path),
        _ => bail!("unknown way to wait"),
    }
    rest()
}

fn die_with_parent() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn ready() -> Result<()> {
    let mut out = io::stdout();
    out.write_all(b"ready\n")?;
    Ok(out.flush()?)
}

fn rest() -> Result<()> {
    ready()?;
    loop {
        // SAFETY: it has no arguments.
        unsafe { libc::pause() };
    }
}

/// Writes into a pipe of which it holds both ends, and never reads: the rc93 hang.
fn pipe() -> Result<()> {
    let (_reader, mut writer) = io::pipe()?;
    ready()?;
    writer.write_all(&vec![0; 8 << 20])?;
    bail!("a pipe took 8 MiB")
}

/// Opens a FIFO that nobody reads: `runc init` before `runc start`.
fn fifo(path: &str) -> Result<()> {
    ready()?;
    OpenOptions::new().write(true).open(path)?;
    bail!("somebody read the FIFO")
}

/// Leaves bytes unread in the socket that a child holds as its stdin.
fn socket(program: &str) -> Result<()> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    let child = command.arg("rest").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
    // It keeps the other end, too.
    drop(command);
    ours.write_all(UNREAD)?;
    println!("{}", child.id());
    rest()
}

/// Has a child, and never asks how it ended.
fn parent(program: &str, word: &str) -> Result<()> {
    let child = Command::new(program).arg(word).stdout(Stdio::null()).spawn()?;
    println!("{}", child.id());
    rest()
}

/// Waits for the `execve` of a child that never comes, which no signal but SIGKILL ends: so does a Go program whose child
/// cannot read its executable.
fn vfork() -> Result<()> {
    ready()?;
    // SAFETY: without CLONE_VM the child has a copy of our memory, as after a fork; there are no other threads.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_VFORK | libc::SIGCHLD, 0, 0, 0, 0) };
    ensure!(child == 0, "the child is gone: {}", io::Error::last_os_error());
    die_with_parent();
    loop {
        // SAFETY: it has no arguments.
        unsafe { libc::pause() };
    }
}

/// Opens a FIFO that nobody reads; the memory that holds its path is a file, whose page is dropped meanwhile.
fn path_from(path: &str) -> Result<()> {
    const PAGE: usize = 4096;
    let file = fs::File::open(path)?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a new mapping at a place of the kernel's choice, which stays until we end.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
    ensure!(at != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    let address = at as usize;
    let (to, from) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: a number.
        let _ = to.send(unsafe { libc::gettid() });
        // SAFETY: the file holds a text that ends with zero.
        unsafe { libc::open(address as *const libc::c_char, libc::O_WRONLY) }
    });
    let wchan = format!("/proc/self/task/{}/wchan", from.recv()?);
    while !fs::read_to_string(&wchan)?.contains("wait_for_partner") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // SAFETY: our own mapping, which nobody uses any more.
    let dropped = unsafe {
        libc::madvise(at, PAGE, libc::MADV_DONTNEED) == 0
            && libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) == 0
    };
    ensure!(dropped, "{}", io::Error::last_os_error());
    rest()
}

/// A path for a system call.
fn c_string(text: &str) -> Result<CString> {
    CString::new(text).context("a path has no zero byte")
}
