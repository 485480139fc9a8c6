//! `/proc/PID/mountinfo`, as far as the cgroup hierarchies need it.

/// Lines that are looked at; nodes with leaked mounts have tens of thousands.
const MAX_LINES: usize = 200_000;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Directory of the filesystem that is mounted.
    pub root: String,
    /// Where.
    pub point: String,
    /// "cgroup", "cgroup2", …
    pub kind: String,
    /// Options of the filesystem, comma-separated: for cgroup the controllers.
    pub options: String,
}

/// The mounts of these filesystems.
#[must_use]
pub fn mounts(text: &str) -> Vec<Mount> {
    let cgroups = text.lines().take(MAX_LINES).filter_map(line);
    cgroups.filter(|mount| matches!(mount.kind.as_str(), "cgroup" | "cgroup2")).take(64).collect()
}

/// "36 35 98:0 /root /point rw,noatime master:1 - kind source options"; any number of fields before the dash.
fn line(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(3);
    let (root, point) = (front.next()?, front.next()?);
    let mut back = back.split(' ');
    let (kind, _source, options) = (back.next()?, back.next()?, back.next()?);
    Some(Mount {
        root: unescape(root),
        point: unescape(point),
        kind: kind.to_owned(),
        options: options.to_owned(),
    })
}

/// Space, tab, newline and backslash are written as three octal digits (`mangle` in `fs/seq_file.c`).
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Optional fields come in any number, and paths are escaped.
    #[test]
    fn lines() {
        let text = "30 22 0:26 / /sys/fs/cgroup/freezer rw,nosuid shared:9 master:3 - cgroup cgroup rw,freezer\n\
                    31 22 0:27 /a\\040b /sys/fs/c\\134g rw - cgroup2 cgroup2 rw\n\
                    32 22 0:28 / / rw - ext4 /dev/vda rw\n33 broken\n";
        let found = mounts(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].options, "rw,freezer");
        assert_eq!((found[1].root.as_str(), found[1].point.as_str()), ("/a b", "/sys/fs/c\\g"));
        assert_eq!(unescape("\\9\\ä01\\"), "\\9\\ä01\\");
    }
}
