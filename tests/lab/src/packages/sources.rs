//! Turns the machine's apt configuration (one-line `.list` files and deb822 `.sources` files) into the Debian mirror
//! to use, and that mirror plus a suite into a private sources file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Suite;

/// Where the package `debian-archive-keyring` (also in Ubuntu) puts the keys of all suites.
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One archive of the machine's apt configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
}

/// The mirror to take Debian packages from: `$PLEGTRACE_DEBIAN_MIRROR`, else the first Debian archive in the machine's
/// apt configuration.
///
/// # Errors
///
/// The machine is no Debian and the variable is not set.
pub(super) fn mirror() -> Result<String> {
    if let Some(own) = std::env::var("PLEGTRACE_DEBIAN_MIRROR").ok().filter(|value| !value.is_empty()) {
        return Ok(own);
    }
    let entries: Vec<Entry> = configured_files(Path::new("/etc/apt"))
        .iter()
        .filter_map(|path| Some((path, fs::read_to_string(path).ok()?)))
        .flat_map(|(path, text)| {
            if path.extension().is_some_and(|ext| ext == "sources") { deb822(&text) } else { one_line(&text) }
        })
        .collect();
    choose(&entries).context(
        "no Debian mirror in the apt configuration; name one: PLEGTRACE_DEBIAN_MIRROR=http://MIRROR/debian",
    )
}

fn configured_files(etc: &Path) -> Vec<PathBuf> {
    let mut files = vec![etc.join("sources.list")];
    let parts = fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    parts.retain(|path| path.extension().is_some_and(|ext| ext == "list" || ext == "sources"));
    parts.sort();
    files.extend(parts);
    files
}

/// The first archive that holds a whole Debian suite: security and updates archives carry a suffix in their suites.
fn choose(entries: &[Entry]) -> Option<String> {
    let known = |suite: &String| {
        let stable = ["stable", "testing", "unstable", "oldstable", "forky"];
        Suite::ALL.iter().any(|own| own.name() == suite) || stable.contains(&suite.as_str())
    };
    let is_debian =
        |entry: &&Entry| entry.suites.iter().any(known) && entry.components.iter().any(|c| c == "main");
    // `mirror+file:` and `cdrom:` sources cannot be expected to hold other suites.
    let usable =
        |uri: &&String| ["http://", "https://", "file:/"].iter().any(|scheme| uri.starts_with(scheme));
    entries.iter().filter(is_debian).flat_map(|entry| &entry.uris).find(usable).cloned()
}

/// Parses `deb [options] uri suite component…` lines.
fn one_line(text: &str) -> Vec<Entry> {
    text.lines().filter_map(one_line_entry).collect()
}

fn one_line_entry(line: &str) -> Option<Entry> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start(); // Not `deb-src`.
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Entry { uris: vec![words.next()?], suites: vec![words.next()?], components: words.collect() })
}

/// Parses deb822 stanzas, see sources.list(5).
fn deb822(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain(std::iter::once("")) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.extend(stanza(&std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    entries
}

fn stanza(fields: &[(String, String)]) -> Option<Entry> {
    let words = |wanted: &str| -> Vec<String> {
        let field = fields.iter().find(|(name, _)| name == wanted);
        field.map(|(_, value)| value.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
    };
    let is_disabled = words("enabled").first().is_some_and(|value| value == "no");
    let has_binaries = words("types").iter().any(|kind| kind == "deb");
    (has_binaries && !is_disabled).then(|| Entry {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
    })
}

/// The private sources file for one suite: packages and sources, signed by the Debian keyring, nothing else of the
/// mirror's indexes (no descriptions, icons or file lists).
pub(super) fn sources_file(mirror: &str, suite: Suite) -> String {
    format!(
        "Types: deb deb-src\nURIs: {mirror}\nSuites: {suite}\nComponents: main\n\
         Targets: Packages Sources\nSigned-By: {KEYRING}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_of_a_one_line_file_is_found() {
        let text = "# deb http://commented/ bookworm main\n\
            deb-src http://sources.example/debian bookworm main\n\
            deb http://security.example/debian-security bookworm-security main\n\
            deb [arch=amd64 signed-by=/k.gpg] https://m.example/debian bookworm main contrib # tail\n";
        assert_eq!(choose(&one_line(text)).as_deref(), Some("https://m.example/debian"));
    }

    #[test]
    fn the_main_archive_of_a_deb822_file_is_found() {
        let text = "Types: deb\nEnabled: no\nURIs: http://off.example/\nSuites: trixie\nComponents: main\n\n\
            # a comment inside\nTypes: deb deb-src\nURIs: http://one.example/debian\n http://two.example/debian\n\
            # and one here\nSuites: trixie trixie-updates\nComponents: main\n";
        let entries = deb822(text);
        assert_eq!(entries.len(), 1, "the disabled stanza is dropped");
        assert_eq!(entries[0].uris.len(), 2, "continuation lines belong to the field");
        assert_eq!(choose(&entries).as_deref(), Some("http://one.example/debian"));
    }

    #[test]
    fn foreign_archives_are_not_taken_for_debian() {
        let ubuntu = one_line("deb http://archive.example/ubuntu noble main universe\n");
        let tools = deb822("Types: deb\nURIs: https://tools.example\nSuites: nodistro\nComponents: main\n");
        assert_eq!(choose(&ubuntu), None);
        assert_eq!(choose(&tools), None);
        let security_only = one_line("deb http://s.example/debian-security bookworm-security main\n");
        assert_eq!(choose(&security_only), None);
    }

    #[test]
    fn the_private_sources_file_names_one_suite() {
        let text = sources_file("http://m.example/debian", Suite::Sid);
        let entries = deb822(&text);
        assert_eq!(entries[0].suites, ["sid"]);
        assert_eq!(choose(&entries).as_deref(), Some("http://m.example/debian"));
    }
}
