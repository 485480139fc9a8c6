//! Turns busybox and a static `/pause` into a container image: a docker-archive tar that `ctr images import` reads, so
//! that no registry is needed. The same image serves as sandbox and as workload.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{cache, host, packages};

/// The image's name, as the runtimes spell it in full.
pub const REFERENCE: &str = "docker.io/library/plegtrace-lab:1";

/// The name of a large image that nobody runs.
pub const LARGE: &str = "docker.io/library/plegtrace-lab-large:1";
/// What its layer holds.
const LARGE_BYTES: usize = 96 << 20;

/// The applets that pods and tests use; each is a link to busybox.
const APPLETS: [&str; 8] = ["sh", "true", "false", "sleep", "cat", "echo", "ls", "sync"];

/// The image archive in the cache, made when it is not there yet.
///
/// # Errors
///
/// When busybox cannot be had or the C compiler fails.
pub fn archive() -> Result<PathBuf> {
    let dir = cache::entry("image-1", |dir| {
        let busybox = fs::read(packages::busybox()?).context("cannot read busybox")?;
        let pause = compile_pause(dir)?;
        let layer = layer(&busybox, &pause).context("cannot make the image's layer")?;
        let file = File::create(dir.join("image.tar")).context("cannot make the image")?;
        write_archive(REFERENCE, &layer, file).context("cannot write the image")
    })?;
    Ok(dir.join("image.tar"))
}

/// Writes the archive of the image [`LARGE`] into a file: an import of it takes seconds.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_large(path: &Path) -> Result<()> {
    // Each word is another one, so that nothing of it is stored twice.
    let words = (0..LARGE_BYTES as u64 / 8).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header(tar::EntryType::Regular, 0o644, bytes.len()), "large", bytes.as_slice())
        .and_then(|()| write_archive(LARGE, &tar.into_inner()?, File::create(path)?))
        .context("cannot write a large image")
}

fn compile_pause(dir: &Path) -> Result<Vec<u8>> {
    let (source, program) = (dir.join("pause.c"), dir.join("pause"));
    fs::write(&source, include_str!("pause.c")).context("cannot write pause.c")?;
    host::run(Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(&program).arg(&source)).context(
        "cannot compile /pause; install a C compiler with libc headers (apt-get install gcc libc6-dev)",
    )?;
    fs::read(&program).context("cannot read the compiled pause")
}

/// The root file system: an uncompressed tar.
fn layer(busybox: &[u8], pause: &[u8]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for dir in ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"] {
        tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), dir, io::empty())?;
    }
    for (path, bytes) in [("bin/busybox", busybox), ("pause", pause)] {
        tar.append_data(&mut header(tar::EntryType::Regular, 0o755, bytes.len()), path, bytes)?;
    }
    for applet in APPLETS {
        tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), format!("bin/{applet}"), "busybox")?;
    }
    tar.into_inner()
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(0); // The same input gives the same image.
    header
}

/// The archive around the layer, in the layout of `docker save`.
fn write_archive(name: &str, layer: &[u8], out: impl io::Write) -> io::Result<()> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": ["/pause"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(layer))] },
    });
    let config = config.to_string();
    let config_name = format!("{}.json", sha256(config.as_bytes()));
    let manifest =
        json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]).to_string();
    let mut tar = tar::Builder::new(out);
    for (name, bytes) in [
        (config_name.as_str(), config.as_bytes()),
        ("layer.tar", layer),
        ("manifest.json", manifest.as_bytes()),
    ] {
        tar.append_data(&mut header(tar::EntryType::Regular, 0o644, bytes.len()), name, bytes)?;
    }
    tar.into_inner()?.flush()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::Read as _;

    fn entries(bytes: &[u8]) -> HashMap<String, Vec<u8>> {
        let mut files = HashMap::new();
        for entry in tar::Archive::new(bytes).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
        files
    }

    #[test]
    fn the_archive_names_its_config_and_layer_by_content() {
        let layer = layer(b"busybox", b"pause").unwrap();
        let mut bytes = Vec::new();
        write_archive(REFERENCE, &layer, &mut bytes).unwrap();
        let files = entries(&bytes);
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        let config_name = manifest[0]["Config"].as_str().unwrap();
        assert_eq!(config_name, format!("{}.json", sha256(&files[config_name])));
        let config: serde_json::Value = serde_json::from_slice(&files[config_name]).unwrap();
        let diff_id = config["rootfs"]["diff_ids"][0].as_str().unwrap();
        assert_eq!(diff_id, format!("sha256:{}", sha256(&files["layer.tar"])));
        assert_eq!(manifest[0]["RepoTags"][0], REFERENCE);
    }

    #[test]
    fn the_layer_holds_the_programs_and_links() {
        let layer = layer(b"busybox", b"pause").unwrap();
        let mut links = 0;
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            links += usize::from(entry.header().entry_type().is_symlink());
        }
        assert_eq!(links, APPLETS.len());
        assert_eq!(entries(&layer)["pause"], b"pause");
        assert_eq!(entries(&layer)["bin/busybox"], b"busybox");
    }

    #[test]
    fn the_digest_is_that_of_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
