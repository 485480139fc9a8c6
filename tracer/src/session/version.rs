//! What `plegtrace --version` says beside the version: everything that distinguishes two programs of the same version.

use plegtrace_common::ABI_VERSION;

/// Of the embedded eBPF object, by the build script; empty without one.
const OBJECT: &str = env!("PLEGTRACE_BPF_SHA256");

/// The version, the commit, and the eBPF object.
pub(super) fn long(commit: Option<&str>) -> String {
    text(commit.filter(|commit| !commit.is_empty()), OBJECT)
}

fn text(commit: Option<&str>, object: &str) -> String {
    let object = match object {
        "" => "none: cargo xtask build embeds it".to_owned(),
        sum => format!("sha256:{sum}"),
    };
    format!(
        "{}\ncommit       {}\neBPF object  {object}\nABI version  {ABI_VERSION}",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or("unknown")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not known is called unknown.
    #[test]
    fn the_version_names_commit_and_object() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text(Some("c0ffee+"), "abcd"),
            format!("{version}\ncommit       c0ffee+\neBPF object  sha256:abcd\nABI version  {ABI_VERSION}")
        );
        let unknown = text(None, "");
        assert!(unknown.contains("\ncommit       unknown\neBPF object  none: "), "{unknown}");
        assert_eq!(long(Some("")), long(None));
    }

    /// The sum is that of the object that is embedded: 64 digits, or nothing for nothing.
    #[test]
    fn the_sum_is_that_of_the_object() {
        let digits = if crate::kernel::is_stub() { 0 } else { 64 };
        assert!(OBJECT.len() == digits && OBJECT.bytes().all(|it| it.is_ascii_hexdigit()), "{OBJECT}");
    }
}
