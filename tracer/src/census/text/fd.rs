//! Links in `/proc/PID/fd`.

/// Longest text of a link that is kept (`PATH_MAX`).
const MAX_LINK: usize = 4096;

/// What the link of a descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// `pipe:[INODE]`.
    Pipe(u64),
    /// `socket:[INODE]`.
    Socket(u64),
    /// A path.
    Path(String),
    /// `anon_inode:[eventpoll]` and the like.
    Other(String),
}

/// Reads the text of a link.
#[must_use]
pub fn link(text: &str) -> Link {
    let inode = |name: &str| text.strip_prefix(name)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok();
    if let Some(inode) = inode("pipe") {
        return Link::Pipe(inode);
    }
    if let Some(inode) = inode("socket") {
        return Link::Socket(inode);
    }
    let mut end = text.len().min(MAX_LINK);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text[..end].to_owned();
    if text.starts_with('/') { Link::Path(text) } else { Link::Other(text) }
}

/// What a descriptor was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// It can be read.
    pub reads: bool,
    /// It can be written.
    pub writes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind; what only looks like one is a text.
    #[test]
    fn links() {
        assert_eq!(link("pipe:[12345]"), Link::Pipe(12345));
        assert_eq!(link("socket:[7]"), Link::Socket(7));
        assert_eq!(link("/run/a b"), Link::Path("/run/a b".into()));
        assert_eq!(link("pipe:[]"), Link::Other("pipe:[]".into()));
        assert_eq!(link("anon_inode:[eventpoll]"), Link::Other("anon_inode:[eventpoll]".into()));
        let long = link(&format!("/{}", "ä".repeat(5000)));
        assert!(matches!(long, Link::Path(path) if path.len() <= MAX_LINK));
    }
}
