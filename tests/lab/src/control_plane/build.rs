//! Turns Debian's source package `kubernetes` into a control plane 1.20.2, once, in the cache: API server, controllers and scheduler in one
//! program. The sources lack one file that Kubernetes' own build generates, what the API server says of its types (OpenAPI); it is made
//! here as that build makes it (`build/root/Makefile.generated_files`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::kubelet::Beside;
use crate::{cache, host};

/// Its name in the cache; another one when its source changes.
const ENTRY: &str = "control-plane-1.20.2-1";
const NAME: &str = "control-plane";
/// Packages with this comment are described.
const TAG: &str = "+k8s:openapi-gen=";
/// Where the packages lie that the program consists of.
const PLACES: [&str; 3] = ["cmd", "pkg", "staging/src/k8s.io"];
/// Examples, with the same comment.
const EXAMPLES: [&str; 2] = ["staging/src/k8s.io/code-generator", "staging/src/k8s.io/sample-apiserver"];
const GENERATOR: &str = "vendor/k8s.io/kube-openapi/cmd/openapi-gen";
const HEADER: &str = "vendor/k8s.io/code-generator/hack/boilerplate.go.txt";
const DESCRIBED: &str = "pkg/generated/openapi";
const FILE: &str = "zz_generated.openapi";

/// The path of the program, built when the cache does not have it yet (a minute or two on two cores, after the kubelet).
///
/// # Errors
///
/// When the sources or the toolchain cannot be had ([`crate::packages::Error::Gone`] in the chain when they left the archive), or the build
/// fails.
pub fn program() -> Result<PathBuf> {
    let dir = cache::entry(ENTRY, |dir| {
        host::progress("building a control plane of Kubernetes 1.20.2: minutes, once");
        let place = Beside::open()?;
        let work = tempfile::tempdir_in(dir).context("cannot make a build directory")?;
        let texts = [
            (format!("cmd/{NAME}/main.go"), include_str!("main.go").to_owned()),
            (format!("{DESCRIBED}/{FILE}.go"), described(&place, work.path())?),
        ];
        place.build(&format!("cmd/{NAME}"), &texts, &dir.join(NAME))
    })?;
    Ok(dir.join(NAME))
}

/// What the API server says of its types.
fn described(place: &Beside, work: &Path) -> Result<String> {
    let generator = work.join("openapi-gen");
    place.build(GENERATOR, &[], &generator)?;
    let mut packages = BTreeSet::new();
    for below in PLACES {
        find(&place.sources().join(below), place.sources(), &mut packages)?;
    }
    let packages: Vec<String> = packages.iter().map(|package| place.import(package)).collect();
    let out = work.join("out");
    let mut run = place.go(&generator);
    run.args(["--logtostderr", "-i", &packages.join(","), "-p", &place.import(DESCRIBED), "-O", FILE]);
    run.arg("-h").arg(place.sources().join(HEADER)).arg("-r").arg(work.join("report"));
    host::run(run.arg("--output-base").arg(&out)).context("cannot describe the types of the API")?;
    let file = out.join(place.import(DESCRIBED)).join(format!("{FILE}.go"));
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// Adds the packages below `dir` that are described, as paths below `sources`.
fn find(dir: &Path, sources: &Path, packages: &mut BTreeSet<String>) -> Result<()> {
    let here = dir.strip_prefix(sources).context("a package outside of the sources")?.to_string_lossy();
    if EXAMPLES.contains(&&*here) {
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.context("cannot list the sources")?.path();
        if path.is_dir() {
            find(&path, sources, packages)?;
        } else if path.extension().is_some_and(|extension| extension == "go")
            && fs::read_to_string(&path).is_ok_and(|text| text.contains(TAG))
        {
            packages.insert(here.replacen("staging/src", "vendor", 1));
        }
    }
    Ok(())
}
