//! A filesystem with one file, small enough to be stopped at any moment (include/uapi/linux/fuse.h, protocol 7.31).

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::fd::AsRawFd as _,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::c_string;

/// The one file, and its size.
pub(super) const FILE: &str = "words";
const SIZE: u64 = 4096;
/// Node of the file; that of the directory is 1.
const NODE: u64 = 2;

/// Operations.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Mounts the filesystem for itself alone, starts `program` on its one file, and serves until it is killed.
pub(super) fn serve(directory: &str, program: &str, content: &str) -> Result<()> {
    let mut device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    mount(&device, directory)?;
    // Served by this thread alone, so whoever stops this process stops the filesystem.
    let file = format!("{directory}/{FILE}");
    let mut child = Command::new(program).args(["path-from", &file]).spawn()?;
    println!("{}", child.id());
    // Without it there is nobody to serve.
    std::thread::spawn(move || std::process::exit(child.wait().map_or(1, |_| 1)));
    let mut request = vec![0; 256 << 10];
    loop {
        match device.read(&mut request) {
            Ok(length) => answer(&mut device, &request[..length], content)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("/dev/fuse"),
        }
    }
}

fn mount(device: &File, directory: &str) -> Result<()> {
    let (kind, root, place) = (c_string("fuse")?, c_string("/")?, c_string(directory)?);
    let options = c_string(&format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd()))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: strings that end with zero and outlive the calls.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                kind.as_ptr(),
                root.as_ptr(),
                kind.as_ptr(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) == 0
    };
    ensure!(done, "cannot mount: {}", io::Error::last_os_error());
    Ok(())
}

fn answer(device: &mut File, request: &[u8], content: &str) -> Result<()> {
    let word = |at: usize| Some(u32::from_ne_bytes(request.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(request.get(at..at + 8)?.try_into().ok()?));
    let (operation, unique, node) =
        (word(4).context("cut")?, long(8).context("cut")?, long(16).context("cut")?);
    let body = match operation {
        INIT => init(),
        LOOKUP => entry(),
        GETATTR => [&[0; 16][..], &attributes(node)].concat(),
        OPEN => vec![0; 16],
        READ => {
            let mut body = content.as_bytes().to_vec();
            body.resize(usize::try_from(SIZE)?, 0);
            body
        }
        RELEASE | FLUSH => Vec::new(),
        FORGET | BATCH_FORGET | INTERRUPT => return Ok(()),
        _ => return reply(device, unique, -libc::ENOSYS, &[]),
    };
    reply(device, unique, 0, &body)
}

fn reply(device: &mut File, unique: u64, error: i32, body: &[u8]) -> Result<()> {
    let length = u32::try_from(16 + body.len())?;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(error.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(body);
    match device.write_all(&bytes) {
        // The one who asked has been killed meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.context("cannot answer"),
    }
}

/// `struct fuse_init_out`.
fn init() -> Vec<u8> {
    let mut body = Vec::new();
    for word in [7u32, 31, 0, 0] {
        body.extend(word.to_ne_bytes());
    }
    body.extend([0; 4]);
    body.extend(65_536u32.to_ne_bytes());
    body.resize(64, 0);
    body
}

/// `struct fuse_entry_out`.
fn entry() -> Vec<u8> {
    let mut body = NODE.to_ne_bytes().to_vec();
    body.resize(40, 0);
    body.extend(attributes(NODE));
    body
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let mode: u32 = if node == NODE { 0o100_444 } else { 0o040_555 };
    let mut body = node.to_ne_bytes().to_vec();
    body.extend(SIZE.to_ne_bytes());
    body.resize(60, 0);
    for word in [mode, 1, 0, 0, 0, 4096, 0] {
        body.extend(word.to_ne_bytes());
    }
    body
}
