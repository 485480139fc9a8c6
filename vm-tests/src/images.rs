//! Images in the guest's own containerd: of nothing, for its CRI to remove, or of a few files, to run.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::wait::{self, BUDGET};

/// Where they are made (OCI image layout).
const LAYOUT: &str = "/var/tmp/plegtrace-images";
/// The label that CRI puts on its images.
const MARK: &str = "io.cri-containerd.image=managed";

/// Some images. Removed when dropped, as far as they are still there.
#[derive(Debug)]
pub struct Images(Vec<String>);

impl Images {
    /// Makes so many and gives them to containerd.
    ///
    /// # Errors
    /// When containerd does not take them.
    pub fn import(count: usize) -> Result<Self> {
        let names: Vec<String> = (0..count).map(|number| format!("localhost/plegtrace:{number}")).collect();
        let images = Self::made(names, None, &["import", "--no-unpack"])?;
        images.adopted()?;
        Ok(images)
    }

    /// Makes one of the files in a folder, ready to run.
    ///
    /// # Errors
    /// As [`Self::import`].
    pub fn with_files(folder: &Path) -> Result<Self> {
        let names = vec!["localhost/plegtrace-files:1".to_owned()];
        Self::made(names, Some(folder), &["import", "--snapshotter", "overlayfs"])
    }

    fn made(names: Vec<String>, files: Option<&Path>, import: &[&str]) -> Result<Self> {
        let layout = Path::new(LAYOUT);
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let layer = files.map(|folder| layer(&blobs, folder)).transpose()?;
        let manifests: Vec<String> =
            names.iter().map(|name| manifest(&blobs, name, layer.as_ref())).collect::<Result<_>>()?;
        fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, manifests.join(","));
        fs::write(layout.join("index.json"), index)?;
        let archive = layout.with_extension("tar");
        pack(layout, &archive)?;
        fs::remove_dir_all(layout)?;
        let images = Self(names);
        wait::output(ctr().args(import).arg(&archive), BUDGET)?;
        fs::remove_file(archive)?;
        Ok(images)
    }

    /// Waits until CRI has them: it gives each a second name, that of its content, and marks both.
    fn adopted(&self) -> Result<()> {
        wait::until("CRI to have the images", BUDGET, || {
            let list = wait::output(ctr().arg("list"), BUDGET)?;
            let marked = list.lines().filter(|line| line.contains(MARK)).count();
            Ok((marked == 2 * self.0.len()).then_some(()))
        })
    }

    /// What they are called.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        drop(wait::output(ctr().arg("remove").args(&self.0), BUDGET));
    }
}

/// What an image consists of.
struct Layer {
    digest: String,
    descriptor: String,
}

/// Writes a layer with the files of a folder.
fn layer(blobs: &Path, folder: &Path) -> Result<Layer> {
    let file = blobs.join("new");
    pack(folder, &file)?;
    let size = fs::metadata(&file)?.len();
    let digest = named_by_content(blobs, &file)?;
    let kind = "application/vnd.oci.image.layer.v1.tar";
    let descriptor = format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":{size}}}"#);
    Ok(Layer { digest, descriptor })
}

fn pack(folder: &Path, into: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    wait::output(tar.arg("-cf").arg(into).arg("-C").arg(folder).arg("."), BUDGET).map(drop)
}

/// Writes an image with this layer, or without a file in it; gives the entry of the index for it.
fn manifest(blobs: &Path, name: &str, layer: Option<&Layer>) -> Result<String> {
    let digests = layer.map(|layer| format!("\"{}\"", layer.digest)).unwrap_or_default();
    let config = format!(
        r#"{{"author":"{name}","architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":[{digests}]}}}}"#
    );
    let config = blob(blobs, "config", &config, "")?;
    let layers = layer.map_or("", |layer| &layer.descriptor);
    let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#);
    let name = format!(r#","annotations":{{"io.containerd.image.name":"{name}"}}"#);
    blob(blobs, "manifest", &manifest, &name)
}

/// Writes a blob under the name of its content; gives its descriptor, with `more` at the end.
fn blob(blobs: &Path, kind: &str, text: &str, more: &str) -> Result<String> {
    let file = blobs.join("new");
    fs::write(&file, text)?;
    let (digest, size) = (named_by_content(blobs, &file)?, text.len());
    Ok(format!(
        r#"{{"mediaType":"application/vnd.oci.image.{kind}.v1+json","digest":"{digest}","size":{size}{more}}}"#
    ))
}

/// Renames a file to the sum of its content; gives its digest.
fn named_by_content(blobs: &Path, file: &Path) -> Result<String> {
    let sum = wait::output(Command::new("sha256sum").arg(file), BUDGET)?;
    let sum = sum.split(' ').next().context("sha256sum says nothing")?;
    fs::rename(file, blobs.join(sum))?;
    Ok(format!("sha256:{sum}"))
}

fn ctr() -> Command {
    let mut command = Command::new("ctr");
    command.args(["--namespace", "k8s.io", "images"]);
    command
}
