//! `kubectl plegtrace`: a script for whoever has a cluster and no package, as krew installs it.

use anyhow::{Context as _, Result};

use super::command::Asset;
use super::payload::Payload;
use super::release::Release;
use super::sums::sha256;
use super::tarball::{self, Member};

/// The script in the payload.
pub(crate) const SCRIPT: &str = "kubectl-plegtrace";
/// The manifest, with places for what is known only now.
const MANIFEST: &str = include_str!("../../../tracer/packaging/krew.yaml");

/// The archive that krew unpacks, and the manifest that names its sum.
///
/// # Errors
/// When the payload has no script.
pub(crate) fn assets(release: &Release, payload: &Payload) -> Result<[Asset; 2]> {
    let archive = tarball::gzipped(&members(payload)?, release.time)?;
    let manifest = MANIFEST.replace("@VERSION@", &release.version).replace("@SHA256@", &sha256(&archive));
    Ok([
        Asset { name: format!("{SCRIPT}-{}.tar.gz", release.version), contents: archive },
        Asset { name: format!("plegtrace-{}-krew.yaml", release.version), contents: manifest.into_bytes() },
    ])
}

/// krew wants the licences beside it.
fn members(payload: &Payload) -> Result<Vec<Member>> {
    ["LICENSE-APACHE", "LICENSE-MIT", SCRIPT]
        .into_iter()
        .map(|name| payload.flat(name).with_context(|| format!("the release has no {name}")))
        .collect()
}

#[cfg(test)]
#[path = "plugin_tests.rs"]
mod tests;
