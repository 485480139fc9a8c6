//! What programs print for `--version`.

/// The first word that looks like a version: `Kubernetes v1.20.2`, `runc version 1.1.5+ds1`,
/// `containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1`, `Docker version 20.10.24, build 297e128`.
pub(in crate::census) fn version(output: &str) -> Option<String> {
    const LONGEST: usize = 64;
    // A shim prints its own name first.
    let of_shim = output.lines().nth(1).and_then(|line| line.trim_start().strip_prefix("Version:"));
    let line = of_shim.or_else(|| output.lines().next())?;
    let words = line.split_ascii_whitespace().map(|word| word.trim_end_matches(','));
    let mut versions = words.filter_map(|word| {
        let plain = word.strip_prefix('v').unwrap_or(word);
        let dotted = plain.starts_with(|c: char| c.is_ascii_digit()) && plain.contains('.');
        let good = plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-~_".contains(&byte));
        // What Kubernetes says when it was built without a version.
        let none = plain.starts_with("0.0.0-master");
        (dotted && good && !none && plain.len() <= LONGEST).then(|| plain.to_owned())
    });
    versions.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the programs print them.
    #[test]
    fn as_printed() {
        let of = |text: &str| version(text).unwrap_or_default();
        assert_eq!(of("Kubernetes v1.20.2\n"), "1.20.2");
        assert_eq!(of("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1\nspec: 1.0.2-dev\n"), "1.1.5+ds1");
        let containerd = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1\n";
        assert_eq!(of(containerd), "1.6.20~ds1");
        assert_eq!(of("Docker version 20.10.24+dfsg1, build 297e128\n"), "20.10.24+dfsg1");
        assert_eq!(of("cri-dockerd 0.3.4 (e88b1605)\n"), "0.3.4");
        let shim =
            "/proc/self/fd/3:\n  Version:  1.6.20~ds1\n  Revision: 1.6.20~ds1-1+b1\n  Go version: go1.19.8\n";
        assert_eq!(of(shim), "1.6.20~ds1");
    }

    /// Nothing else passes.
    #[test]
    fn others() {
        assert_eq!(version("Kubernetes v0.0.0-master+$Format:%H$\n"), None);
        assert_eq!(version("Kubernetes v0.0.0-master+faecb196815e248d3ecfb03c680a4507229c2a56\n"), None);
        assert_eq!(version("no version\n1.2.3\n"), None);
        assert_eq!(version(""), None);
        assert_eq!(version(&format!("x 1.{}", "1".repeat(100))), None);
    }
}
