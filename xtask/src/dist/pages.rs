//! Manual pages and completions, as the program itself prints them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::payload::{Item, Role};
use super::tarball;
use crate::{cmd, paths};

/// For each shell the file that it looks for.
const SHELLS: &[(Role, &str, &str)] = &[
    (Role::Bash, "bash", "plegtrace"),
    (Role::Zsh, "zsh", "_plegtrace"),
    (Role::Fish, "fish", "plegtrace.fish"),
];

/// Asks the program for all of them.
///
/// # Errors
/// When it fails, or has no page of itself.
pub(crate) fn of(program: &Path) -> Result<Vec<Item>> {
    let mut items = manual(program)?;
    for (role, shell, name) in SHELLS {
        let script = cmd::output(Command::new(program).args(["completions", shell]))?;
        ensure!(!script.is_empty(), "no completions for {shell}");
        items.push(Item { role: *role, name: (*name).to_owned(), contents: script.into_bytes() });
    }
    Ok(items)
}

/// The pages, packed as `man` reads them, by name.
fn manual(program: &Path) -> Result<Vec<Item>> {
    let dir = paths::target().join(format!("dist-man-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let pages = cmd::output(Command::new(program).arg("man").arg("--dir").arg(&dir)).and_then(|_| read(&dir));
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    let pages = pages?;
    ensure!(pages.iter().any(|page| page.name == "plegtrace.1.gz"), "no manual page of plegtrace");
    Ok(pages)
}

fn read(dir: &Path) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{}.gz", entry.file_name().to_string_lossy());
        items.push(Item { role: Role::Manual, name, contents: tarball::gzip(&fs::read(entry.path())?)? });
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(items)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tarball::tests::gunzip;
    use super::*;

    /// Writes a script that can be run at once. By another process: what this one has had open for writing, a child of another thread may
    /// have open until it executes its own program, and so long the script cannot be executed (ETXTBSY).
    pub(crate) fn write_script(path: &Path, text: &str) {
        let source = path.with_extension("text");
        fs::write(&source, text).unwrap();
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755"]).args([&source, path]).status().unwrap().success());
    }

    /// A program that answers as plegtrace does.
    fn program(dir: &Path, man: &str) -> std::path::PathBuf {
        let path = dir.join("program");
        write_script(&path, &format!("#!/bin/sh\ncase $1 in man) {man};; *) echo \"for $2\";; esac\n"));
        path
    }

    /// Every page and every shell.
    #[test]
    fn the_program_is_asked_for_its_pages() {
        let dir = tempfile::tempdir().unwrap();
        let items =
            of(&program(dir.path(), "echo b > $3/plegtrace.1; echo a > $3/plegtrace-check.1")).unwrap();
        let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        let pages = ["plegtrace-check.1.gz", "plegtrace.1.gz"];
        assert_eq!(names, [&pages[..], &["plegtrace", "_plegtrace", "plegtrace.fish"]].concat());
        assert_eq!(gunzip(&items[0].contents), b"a\n");
        assert_eq!(items[3].contents, b"for zsh\n");
    }

    /// A program that prints nothing about itself is not shipped so.
    #[test]
    fn a_program_without_a_page_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(of(&program(dir.path(), ":")).is_err());
    }
}
