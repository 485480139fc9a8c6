//! tar and gzip, the same bytes every time: entries by name, one time, no owner but root.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A regular file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) contents: Vec<u8>,
}

/// An archive of the files, and of the directories they are in.
///
/// # Errors
/// When a path is longer than the 100 bytes a tar header has room for, or occurs twice.
pub(crate) fn tar(members: &[Member], time: u64) -> Result<Vec<u8>> {
    let mut entries: BTreeMap<&str, Option<&Member>> = BTreeMap::new();
    for member in members {
        let parents = member.path.match_indices('/').map(|(at, _)| &member.path[..=at]);
        entries.extend(parents.map(|parent| (parent, None)));
        ensure!(entries.insert(&member.path, Some(member)).is_none(), "{} occurs twice", member.path);
    }
    let mut archive = tar::Builder::new(Vec::new());
    for (path, member) in entries {
        let contents = member.map_or(&[][..], |member| &member.contents);
        let mut header = tar::Header::new_gnu();
        let room = &mut header.as_old_mut().name;
        ensure!(path.len() <= room.len(), "the path {path} is too long for a tar header");
        room[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(if member.is_some() {
            tar::EntryType::Regular
        } else {
            tar::EntryType::Directory
        });
        header.set_mode(member.map_or(0o755, |member| member.mode));
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_size(u64::try_from(contents.len())?);
        header.set_cksum();
        archive.append(&header, contents).with_context(|| format!("cannot pack {path}"))?;
    }
    Ok(archive.into_inner()?)
}

/// The same, packed.
///
/// # Errors
/// As [`tar()`].
pub(crate) fn gzipped(members: &[Member], time: u64) -> Result<Vec<u8>> {
    gzip(&tar(members, time)?)
}

/// Packs bytes, with neither a name nor a time in the header.
///
/// # Errors
/// When memory runs out.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;

    use super::*;

    pub(crate) fn member(path: &str, mode: u32, contents: &str) -> Member {
        Member { path: path.to_owned(), mode, contents: contents.as_bytes().to_vec() }
    }

    pub(crate) fn gunzip(bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        plain
    }

    /// The files of an archive in their order; of all entries, directories included, owner and time are checked.
    pub(crate) fn files(archive: &[u8], time: u64) -> Vec<Member> {
        let mut files = Vec::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, time));
            if header.entry_type().is_dir() {
                assert_eq!((entry.size(), header.mode().unwrap()), (0, 0o755));
                continue;
            }
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            files.push(Member { path, mode: header.mode().unwrap(), contents });
        }
        files
    }

    /// What comes out is what went in, by name, whatever the order was.
    #[test]
    fn what_was_packed_comes_out_sorted() {
        let (a, b) = (member("./a/x", 0o755, "one"), member("./b", 0o644, ""));
        let packed = gzipped(&[b.clone(), a.clone()], 77).unwrap();
        assert_eq!(packed, gzipped(&[a.clone(), b.clone()], 77).unwrap());
        assert_eq!(files(&gunzip(&packed), 77), [a, b]);
    }

    /// Directories come before what is in them, each once.
    #[test]
    fn directories_come_first() {
        let packed = tar(&[member("./a/x", 0o644, ""), member("./a/y", 0o644, "")], 0).unwrap();
        let mut archive = tar::Archive::new(&packed[..]);
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned());
        let names: Vec<String> = names.map(|name| String::from_utf8(name).unwrap()).collect();
        assert_eq!(names, ["./", "./a/", "./a/x", "./a/y"]);
    }

    /// Neither a name that would be cut nor one that would replace another.
    #[test]
    fn paths_are_refused_that_would_be_lost() {
        assert!(tar(&[member(&"x".repeat(101), 0o644, "")], 0).is_err());
        assert!(tar(&[member("x", 0o644, ""), member("x", 0o644, "")], 0).is_err());
    }
}
