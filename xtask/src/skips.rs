//! `xtask/expected-skips.txt`: which tests may be skipped, so that nothing stops being proved unseen.

const FILE: &str = include_str!("../expected-skips.txt");

/// The name of a test that may be skipped ends, and the reason begins, at so many spaces.
const GAP: &str = "  ";

/// May this be skipped? `name` is what the test declared; for a test of a guest, the guest before it: `GUEST: TEST`.
pub(crate) fn may(name: &str) -> bool {
    listed(FILE, name)
}

fn listed(file: &str, name: &str) -> bool {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(GAP)).any(|(pattern, reason)| {
        let fits = pattern.strip_suffix('*').map_or(pattern == name, |begin| name.starts_with(begin));
        fits && !reason.trim().is_empty()
    })
}

/// What is wrong with a skip that is not listed.
pub(crate) fn complaint(skip: &str) -> String {
    format!("skipped, which xtask/expected-skips.txt does not allow: {skip}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are compared whole, unless the line says otherwise; a line without a reason allows nothing.
    #[test]
    fn only_what_is_listed() {
        let file = "# comment  x\nlab_b  no cgroup2\ngolden *   changes\nbare\nblank   \n";
        assert!(listed(file, "lab_b") && listed(file, "golden sid"));
        assert!(
            ["lab_bc", "lab", "gold", "bare", "blank", "# comment"].iter().all(|name| !listed(file, name))
        );
    }

    /// The file itself is in order.
    #[test]
    fn the_file_is_read() {
        assert!(
            may("bullseye 5.10: attach_fires_multi") && !may("bullseye 5.10: boots") && !may("bookworm 6.1")
        );
    }
}
