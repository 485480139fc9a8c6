//! What is compiled into the program, as CycloneDX 1.5 has it: <https://cyclonedx.org/docs/1.5/json/>.
//!
//! The crates are those that cargo resolves for the program and for its eBPF programs, each with the sum of Cargo.lock.
//! Rust's own libraries and the C library are linked in, too, and not listed: the document says that it is incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::release::Release;
use super::sums::sha256;
use crate::build::host_cargo;
use crate::{cmd, ebpf, paths};

/// A crate that is compiled in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crate {
    name: String,
    version: String,
    license: String,
    repository: String,
}

/// Sums of crates, by name and version.
type Sums = BTreeMap<(String, String), String>;

/// What such a document is called.
pub(crate) fn file_name(release: &Release) -> String {
    format!("plegtrace-{}-x86_64.cdx.json", release.version)
}

/// The crates of the program and of what it embeds.
///
/// # Errors
/// When cargo cannot resolve them.
pub(crate) fn crates() -> Result<BTreeSet<Crate>> {
    let mut crates = tree("plegtrace", crate::build::TRIPLE)?;
    crates.extend(tree("plegtrace-ebpf", ebpf::TARGET)?);
    ensure!(crates.iter().any(|one| one.name == "aya"), "cargo names no crates of plegtrace");
    Ok(crates)
}

fn tree(package: &str, target: &str) -> Result<BTreeSet<Crate>> {
    let mut command = host_cargo();
    command.args(["tree", "--locked", "--package", package, "--target", target]);
    command.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}|{r}"]);
    cmd::output(&mut command)?.lines().map(line).collect()
}

/// `name vVERSION (PATH)|LICENSE|REPOSITORY (*)`; path and star are not always there.
fn line(text: &str) -> Result<Crate> {
    let text = text.strip_suffix(" (*)").unwrap_or(text);
    let mut fields = text.split('|');
    let mut package = fields.next().unwrap_or_default().split(' ');
    let (name, version) = (package.next(), package.next().and_then(|word| word.strip_prefix('v')));
    let (Some(name), Some(version), Some(license), Some(repository)) =
        (name, version, fields.next(), fields.next())
    else {
        anyhow::bail!("cargo tree says `{text}`, which is no crate");
    };
    let [name, version, license, repository] = [name, version, license, repository].map(str::to_owned);
    Ok(Crate { name, version, license, repository })
}

/// The sums that this checkout's Cargo.lock has.
///
/// # Errors
/// When there is none.
pub(crate) fn locked() -> Result<Sums> {
    let path = paths::workspace().join("Cargo.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.split("[[package]]").filter_map(sum).collect())
}

fn sum(package: &str) -> Option<((String, String), String)> {
    let field = |name: &str| {
        let value = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
        Some(value.trim_matches('"').to_owned())
    };
    Some(((field("name")?, field("version")?), field("checksum")?))
}

/// The document.
///
/// # Errors
/// When the release has no date.
pub(crate) fn bom(
    release: &Release,
    program: &[u8],
    crates: &BTreeSet<Crate>,
    sums: &Sums,
) -> Result<Vec<u8>> {
    let root = format!("plegtrace@{}", release.version);
    let components: Vec<Value> =
        crates.iter().filter(|one| one.name != "plegtrace").map(|one| component(one, sums)).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date()?,
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "plegtrace",
                "version": release.version,
                "hashes": [{ "alg": "SHA-256", "content": sha256(program) }],
                "licenses": [{ "expression": env!("CARGO_PKG_LICENSE") }],
                "properties": [{ "name": "plegtrace:commit", "value": release.commit }],
            },
        },
        "components": components,
        "compositions": [{ "aggregate": "incomplete", "assemblies": [root] }],
    });
    Ok(serde_json::to_vec_pretty(&document)?)
}

fn component(one: &Crate, sums: &Sums) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": format!("{}@{}", one.name, one.version),
        "name": one.name,
        "version": one.version,
    });
    if !one.license.is_empty() {
        // The slash is how older manifests say "or".
        let expression = one.license.replace('/', " OR ").replace("  OR  ", " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    // Ours are in no registry.
    if let Some(sum) = sums.get(&(one.name.clone(), one.version.clone())) {
        component["purl"] = json!(format!("pkg:cargo/{}@{}", one.name, one.version));
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if !one.repository.is_empty() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": one.repository }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of cargo, with and without a path and a star.
    #[test]
    fn crates_are_read_from_cargos_lines() {
        let aya = line("aya v0.14.0|MIT OR Apache-2.0|https://example.org/aya (*)").unwrap();
        let expected = ["aya", "0.14.0", "MIT OR Apache-2.0", "https://example.org/aya"].map(str::to_owned);
        assert_eq!([aya.name, aya.version, aya.license, aya.repository], expected);
        let ours = line("plegtrace v0.1.0 (/somewhere/tracer)|MIT|").unwrap();
        assert_eq!((ours.version.as_str(), ours.repository.as_str()), ("0.1.0", ""));
        assert!(line("[build-dependencies]").is_err());
    }

    /// Every crate of a registry is listed once, with the sum of Cargo.lock; no path of this machine is.
    #[test]
    fn this_checkout_is_described() {
        let (crates, sums) = (crates().unwrap(), locked().unwrap());
        let bytes = bom(&Release::sample(), b"program", &crates, &sums).unwrap();
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let components = document["components"].as_array().unwrap();
        let names: BTreeSet<String> = components.iter().map(|one| one["bom-ref"].to_string()).collect();
        assert_eq!(names.len(), components.len());
        for expected in ["aya", "aya-ebpf", "clap", "plegtrace-common", "plegtrace-ebpf"] {
            assert!(components.iter().any(|one| one["name"] == expected), "no {expected}");
        }
        for one in components.iter().filter(|one| !one["name"].as_str().unwrap().starts_with("plegtrace-")) {
            assert_eq!(one["hashes"][0]["content"].as_str().map(str::len), Some(64), "{one}");
        }
        assert!(!String::from_utf8(bytes).unwrap().contains(&paths::workspace().display().to_string()));
    }
}
