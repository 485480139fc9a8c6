//! What an executable is by what is in it, not by its name.

use std::{path::Path, sync::Arc};

use super::{buildinfo, elf::Elf, identity, source::ByteSource};

/// Sections that Go's linker makes; with external linking the first is still there.
const GO: [&str; 3] = [".go.buildinfo", ".gopclntab", ".data.rel.ro.gopclntab"];

/// Is it a Go program? `None` when that cannot be told: it cannot be read, or has no sections, as packed ones have not. Reads
/// headers, and of what is no Go program the first megabyte of data.
#[must_use]
pub fn is_go(exe: &Path) -> Option<bool> {
    let source = ByteSource::from_file(identity::open(exe).ok()?).ok()?;
    let elf = Elf::parse(Arc::new(source)).ok()?;
    // Whatever the segments say: a doubt is no reason to call it something else.
    if elf.sections.iter().any(|section| GO.contains(&section.name.as_str())) {
        return Some(true);
    }
    let info = buildinfo::read(&elf).ok()?;
    (info.is_some() || !elf.sections.is_empty()).then_some(info.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test of Rust is no Go program, and neither is what cannot be read.
    #[test]
    fn what_is_no_go_program() {
        assert_eq!(is_go(Path::new("/proc/self/exe")), Some(false));
        assert_eq!(is_go(Path::new("/nonexistent")), None);
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "#!/bin/sh\n").unwrap();
        assert_eq!(is_go(text.path()), None, "no executable of its own");
    }
}
