//! Program in, `target/dist` out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use super::payload::{Layout, Payload};
use super::release::Release;
use super::{deb, image, pages, plugin, program, rpm, sbom, sums, tarball};
use crate::build::{Profile, build};
use crate::ebpf::Want;
use crate::paths;
use crate::progress::step;

/// Options of `cargo xtask dist`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Package this static program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A file of the release.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) name: String,
    pub(crate) contents: Vec<u8>,
}

/// Makes the release and says what is in it.
///
/// # Errors
/// When the build fails, the program is not one to ship, or a file cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = match &options.program {
        Some(path) => path.clone(),
        None => build(Profile::Release, Want::Shipped)?.binary,
    };
    let (release, program, payload) = packed(&path)?;
    let bom = sbom::bom(&release, &program, &sbom::crates()?, &sbom::locked()?)?;
    let out = paths::target().join("dist");
    write(&out, &assets(&release, &payload, &program, bom)?)?;
    step("dist", &format!("done: {}", out.display()));
    Ok(())
}

/// What a program is a release of; the program as it is shipped, and everything that is shipped with it.
fn packed(path: &Path) -> Result<(Release, Vec<u8>, Payload)> {
    let release = Release::of_checkout(program::commit(path)?)?;
    let program = program::stripped(path, &release.version)?;
    let payload = Payload::collect(&paths::workspace(), &program, pages::of(path)?)?;
    Ok((release, program, payload))
}

/// All files of the release, the sums of the others last.
fn assets(release: &Release, payload: &Payload, program: &[u8], bom: Vec<u8>) -> Result<Vec<Asset>> {
    let base = format!("plegtrace-{}-x86_64-linux", release.version);
    let archive = tarball::gzipped(&payload.members(Layout::Archive, &format!("{base}/")), release.time)?;
    let mut assets = vec![
        Asset { name: format!("{base}.tar.gz"), contents: archive },
        Asset { name: deb::file_name(release), contents: deb::package(release, payload)? },
        Asset { name: rpm::file_name(release), contents: rpm::package(release, payload)? },
        Asset {
            name: format!("plegtrace-{}-x86_64-image.tar", release.version),
            contents: image::archive(release, program)?,
        },
        Asset {
            name: format!("plegtrace-{}-kustomize.tar.gz", release.version),
            contents: tarball::gzipped(&payload.kustomize(), release.time)?,
        },
        Asset { name: sbom::file_name(release), contents: bom },
    ];
    assets.extend(plugin::assets(release, payload)?);
    let sums = sums::of(&assets);
    assets.push(Asset { name: sums::NAME.to_owned(), contents: sums.into_bytes() });
    Ok(assets)
}

/// Replaces the directory: what an earlier version left behind has no sum in SHA256SUMS.
fn write(out: &Path, assets: &[Asset]) -> Result<()> {
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    for asset in assets {
        let path = out.join(&asset.name);
        fs::write(&path, &asset.contents).with_context(|| format!("cannot write {}", path.display()))?;
        step("dist", &format!("{} ({} KiB)", asset.name, asset.contents.len().div_ceil(1024)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice the same input: twice the same bytes. Every file but the sums has a sum.
    #[test]
    fn a_release_is_reproducible_and_summed() {
        let release = Release::sample();
        let payload = Payload::sample();
        let once = assets(&release, &payload, b"program", b"{}".to_vec()).unwrap();
        let again = assets(&release, &payload, b"program", b"{}".to_vec()).unwrap();
        for (a, b) in once.iter().zip(&again) {
            assert_eq!(a.name, b.name);
            assert!(a.contents == b.contents, "{} differs", a.name);
        }
        let (sums, files) = once.split_last().unwrap();
        let sums = String::from_utf8(sums.contents.clone()).unwrap();
        let summed: Vec<&str> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        let mut names: Vec<&str> = files.iter().map(|asset| asset.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(summed, names);
    }

    /// A file of an earlier release does not stay.
    #[test]
    fn the_directory_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("dist");
        let asset = |name: &str| Asset { name: name.to_owned(), contents: b"x".to_vec() };
        write(&out, &[asset("old")]).unwrap();
        write(&out, &[asset("new")]).unwrap();
        assert!(out.join("new").is_file() && !out.join("old").exists());
    }
}
