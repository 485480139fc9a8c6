//! Cargo's list of test programs → layers, and the modules of those programs that hold a whole layer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::tier::Tier;
use crate::build::host_cargo;
use crate::cmd;
use crate::ebpf::Object;

/// The program of integration tests that needs root and the lab.
pub(crate) const PRIVILEGED: &str = "lab";

/// All tests of this package outside its library need root.
const LAB_PACKAGE: &str = "plegtrace-lab";

/// Which part of the tests a program belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// Beside the code.
    Unit,
    /// Properties, goldens, replays, the command line: no root.
    Integration,
    /// Real daemons: root.
    Lab,
}

/// A compiled test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) layer: Layer,
    /// Unique among the programs: package and target.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    /// Where cargo would run it.
    pub(crate) directory: PathBuf,
    /// Only these tests of it; all when there are none.
    pub(crate) tests: Vec<String>,
}

impl Program {
    /// Does it prove the lab, and not the product?
    pub(crate) fn is_of_lab_package(&self) -> bool {
        self.name.starts_with(LAB_PACKAGE)
    }

    /// The same program, asked for one test only.
    pub(crate) fn only(&self, test: &str) -> Self {
        Self { tests: vec![test.to_owned()], ..self.clone() }
    }
}

/// What `tier` has of these programs. Those that hold a whole layer come once for each of their modules: so each has a log, a time and a
/// budget of its own, and what one module does to its process cannot disturb the next.
///
/// # Errors
/// When a program does not list its tests.
pub(crate) fn by_module(programs: Vec<Program>, tier: Tier) -> Result<Vec<Program>> {
    let mut split = Vec::new();
    for program in programs {
        if program.layer == Layer::Unit {
            split.extend(tier.of(program, ""));
            continue;
        }
        for (module, tests) in modules(&tests(&program)?) {
            let name =
                if module.is_empty() { program.name.clone() } else { format!("{}-{module}", program.name) };
            split.extend(tier.of(Program { name, tests, ..program.clone() }, &module));
        }
    }
    Ok(split)
}

/// The same programs, each with the names of its tests: one that runs whole has none before.
///
/// # Errors
/// When a program does not list its tests.
pub(crate) fn listed(mut programs: Vec<Program>) -> Result<Vec<Program>> {
    for program in programs.iter_mut().filter(|program| program.tests.is_empty()) {
        program.tests = tests(program)?;
    }
    Ok(programs)
}

/// The names of its tests.
fn tests(program: &Program) -> Result<Vec<String>> {
    let list = cmd::output(Command::new(&program.file).args(["--list", "--format", "terse"]))?;
    Ok(listing(&list))
}

fn listing(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Tests by their outermost module; those outside of modules have an empty one.
fn modules(tests: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        found.entry(module.to_owned()).or_default().push(test.clone());
    }
    found
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Compiles all test programs of the workspace and lists them, layer by layer.
///
/// # Errors
/// When something does not compile.
pub(crate) fn compile(object: &Object, features: &[String]) -> Result<Vec<Program>> {
    let mut command: Command = host_cargo();
    command
        .args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .args(features)
        .envs(object.envs())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let out = command.output().with_context(|| format!("cannot start `{}`", cmd::shown(&command)))?;
    cmd::check(&command, out.status)?;
    list(&String::from_utf8_lossy(&out.stdout))
}

fn list(messages: &str) -> Result<Vec<Program>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cargo's messages are not understood")?;
        if message.reason != "compiler-artifact" {
            continue;
        }
        let (Some(file), Some(manifest), Some(target)) =
            (message.executable, message.manifest_path, message.target)
        else {
            continue;
        };
        let test = message.profile.is_some_and(|profile| profile.test);
        if test && seen.insert(file.clone()) {
            found.push(program(file, &manifest, &target)?);
        }
    }
    found.sort_by(|a, b| (a.layer, &a.name).cmp(&(b.layer, &b.name)));
    Ok(found)
}

fn program(file: PathBuf, manifest: &Path, target: &Target) -> Result<Program> {
    let directory = manifest.parent().context("a manifest has a directory")?.to_path_buf();
    let integration = target.kind.iter().any(|kind| kind == "test");
    let text =
        std::fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let package =
        package_name(&text).with_context(|| format!("no package name in {}", manifest.display()))?;
    let layer = match integration {
        false => Layer::Unit,
        true if package == LAB_PACKAGE || target.name == PRIVILEGED => Layer::Lab,
        true => Layer::Integration,
    };
    let kind = if target.kind.iter().any(|kind| kind == "bin") { "-bin" } else { "" };
    Ok(Program {
        layer,
        name: format!("{package}-{}{kind}", target.name),
        file,
        directory,
        tests: Vec::new(),
    })
}

fn package_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"').map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs are sorted into layers by their kind and name; what is not a test program is left out.
    #[test]
    fn programs_are_sorted() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let artifact = |name: &str, kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","executable":"/t/{name}-{kind}","manifest_path":"{manifest}","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}}}}"#
            )
        };
        let messages = [
            artifact("lab", "test", true),
            artifact("xtask", "bin", true),
            artifact("cli", "test", true),
            artifact("xtask", "bin", false),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = list(&messages.join("\n")).unwrap();
        let seen: Vec<(Layer, &str)> = programs.iter().map(|p| (p.layer, p.name.as_str())).collect();
        let expected =
            [(Layer::Unit, "xtask-xtask-bin"), (Layer::Integration, "xtask-cli"), (Layer::Lab, "xtask-lab")];
        assert_eq!(seen, expected);
    }

    /// Each test is in exactly one module, with all that are below it; benchmarks are no tests.
    #[test]
    fn tests_are_sorted_into_modules() {
        let list = "alone: test\nstory::a: test\nstory::deep::b: test\nstory_two::a: test\nx::y: benchmark\n";
        let found: Vec<(String, Vec<String>)> = modules(&listing(list)).into_iter().collect();
        let of = |module: &str, tests: &[&str]| {
            (module.to_owned(), tests.iter().map(|test| (*test).to_owned()).collect::<Vec<_>>())
        };
        let expected = [
            of("", &["alone"]),
            of("story", &["story::a", "story::deep::b"]),
            of("story_two", &["story_two::a"]),
        ];
        assert_eq!(found, expected);
    }

    /// One that runs whole says which tests it has: some of them can be chosen.
    #[test]
    fn a_program_that_runs_whole_lists_its_tests() {
        let file = std::env::current_exe().unwrap();
        let (name, directory) = ("xtask".to_owned(), ".".into());
        let whole = Program { layer: Layer::Unit, name, file, directory, tests: Vec::new() };
        let chosen = Program { tests: vec!["a".to_owned()], ..whole.clone() };
        let found = listed(vec![whole, chosen]).unwrap();
        let this = "test::layers::tests::a_program_that_runs_whole_lists_its_tests".to_owned();
        assert!(found[0].tests.contains(&this), "{:?}", found[0].tests);
        assert_eq!(found[1].tests, ["a"]);
    }
}
