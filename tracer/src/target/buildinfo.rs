//! What `go version -m` would print: Go version, module versions and build settings of a binary.
//!
//! Format (Go's debug/buildinfo): 16-aligned magic, pointer size at byte 14, flags at byte 15. Flag 2 (Go ≥ 1.18): two
//! length-prefixed strings follow at byte 32. Without it (Go ≤ 1.17): two pointers to Go strings at byte 16. The second
//! string, the module text, is framed by 16 bytes on each side. Distribution builds in GOPATH mode have no modules.

use super::elf::{Elf, Machine};
use super::error::RefuseReason;
use super::source::u64_at;

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Without a section of its own the linker puts it near the start of the data segment.
const SEARCH: u64 = 1 << 20;
const MAX_VERSION: u64 = 256;
/// containerd's module text has about 12 KB.
const MAX_MODULES: u64 = 1 << 20;
const FRAME: usize = 16;

/// One module linked into the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Import path.
    pub path: String,
    /// Version, or "(devel)".
    pub version: String,
}

/// The build information of a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// As the toolchain calls itself: "go1.19.8".
    pub go_version: String,
    /// Import path of the main package, when there is module information.
    pub main_path: Option<String>,
    /// The main module.
    pub main: Option<Module>,
    /// Its dependencies, with replacements applied.
    pub dependencies: Vec<Module>,
    /// Build settings: GOARCH, CGO_ENABLED, -buildmode, GOEXPERIMENT, … (Go ≥ 1.18).
    pub settings: Vec<(String, String)>,
}

impl BuildInfo {
    /// Version of a dependency (or of the main module).
    #[must_use]
    pub fn module_version(&self, path: &str) -> Option<&str> {
        let mut modules = self.main.iter().chain(&self.dependencies);
        modules.find(|module| module.path == path).map(|module| module.version.as_str())
    }

    /// A build setting.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Was this GOEXPERIMENT switched on (or off, as "noregabi")?
    #[must_use]
    pub fn experiment(&self, name: &str) -> bool {
        let in_version = self.go_version.split_once(" X:").map_or("", |(_, list)| list);
        let in_settings = self.setting("GOEXPERIMENT").unwrap_or("");
        in_version.split(',').chain(in_settings.split(',')).any(|word| word == name)
    }

    /// Does `GOARCH` (if recorded) agree with the ELF header?
    pub(crate) fn matches_machine(&self, machine: Machine) -> bool {
        self.setting("GOARCH").is_none_or(|arch| arch == machine.goarch())
    }
}

/// Reads the build information; `None` when there is none that can be read.
pub(crate) fn read(elf: &Elf) -> Result<Option<BuildInfo>, RefuseReason> {
    for (vaddr, size) in places(elf) {
        let block = elf.read_vaddr(vaddr, size, "build info")?;
        let start = block.chunks(16).position(|line| line.starts_with(MAGIC));
        if let Some(line) = start {
            return Ok(parse(elf, vaddr + 16 * line as u64));
        }
    }
    Ok(None)
}

/// Where it may be: its section, else the first writable segment, else any.
fn places(elf: &Elf) -> Vec<(u64, u64)> {
    if let Some(section) = elf.section(".go.buildinfo") {
        return vec![(section.vaddr, section.size.min(SEARCH))];
    }
    let mut loads: Vec<_> = elf.loads.iter().filter(|load| load.filesz > 0).collect();
    loads.sort_by_key(|load| !load.writable);
    loads.into_iter().map(|load| (load.vaddr, load.filesz.min(SEARCH))).collect()
}

fn parse(elf: &Elf, vaddr: u64) -> Option<BuildInfo> {
    let header = elf.read_relocated(vaddr, 32, "build info").ok()?;
    let (pointer_size, flags) = (header[14], header[15]);
    let (version, modules) = if flags & 2 != 0 {
        let (version, next) = inline_string(elf, vaddr + 32, MAX_VERSION)?;
        let modules = inline_string(elf, next, MAX_MODULES).map(|(text, _)| text).unwrap_or_default();
        (version, modules)
    } else if pointer_size == 8 && flags & 1 == 0 {
        let version = pointed_string(elf, u64_at(&header, 16)?, MAX_VERSION)?;
        (version, pointed_string(elf, u64_at(&header, 24)?, MAX_MODULES).unwrap_or_default())
    } else {
        return None;
    };
    let mut info = BuildInfo { go_version: String::from_utf8(version).ok()?, ..BuildInfo::default() };
    if modules.len() >= 2 * FRAME {
        info.read_modules(&String::from_utf8_lossy(&modules[FRAME..modules.len() - FRAME]));
    }
    Some(info)
}

/// A string with its length before it; also the address behind it.
fn inline_string(elf: &Elf, vaddr: u64, max: u64) -> Option<(Vec<u8>, u64)> {
    let available = elf.extent_at(vaddr).min(10);
    let prefix = elf.read_vaddr(vaddr, available, "build info").ok()?;
    let (mut len, mut used) = (0u64, 0u64);
    for (shift, byte) in prefix.iter().enumerate() {
        len |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(shift).ok()?)?;
        used += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if len > max {
        return None;
    }
    let text = elf.read_vaddr(vaddr + used, len, "build info").ok()?;
    Some((text.to_vec(), vaddr + used + len))
}

/// The Go string (pointer, length) at `vaddr`.
fn pointed_string(elf: &Elf, vaddr: u64, max: u64) -> Option<Vec<u8>> {
    let header = elf.read_relocated(vaddr, 16, "build info").ok()?;
    let (data, len) = (u64_at(&header, 0)?, u64_at(&header, 8)?);
    if len > max {
        return None;
    }
    Some(elf.read_vaddr(data, len, "build info").ok()?.to_vec())
}

impl BuildInfo {
    /// Lines: `path P`, `mod P V SUM`, `dep P V SUM`, `=> P V SUM`, `build K=V`; fields separated by tabs.
    fn read_modules(&mut self, text: &str) {
        for line in text.lines() {
            let mut fields = line.split('\t');
            let (kind, first) = (fields.next().unwrap_or(""), fields.next().unwrap_or("").to_owned());
            let version = fields.next().unwrap_or("").to_owned();
            match kind {
                "path" => self.main_path = Some(first),
                "mod" => self.main = Some(Module { path: first, version }),
                "dep" => self.dependencies.push(Module { path: first, version }),
                // The code is the replacement's, the import path is the replaced one's.
                "=>" => {
                    if let Some(replaced) = self.dependencies.last_mut().or(self.main.as_mut()) {
                        replaced.version = version;
                    }
                }
                "build" => {
                    if let Some((key, value)) = first.split_once('=') {
                        self.settings.push((key.to_owned(), value.to_owned()));
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Module lines become modules and settings; a replacement changes the version only.
    #[test]
    fn module_text() {
        let mut info = BuildInfo { go_version: "go1.18.1 X:noregabi".into(), ..BuildInfo::default() };
        info.read_modules(
            "path\tk8s.io/kubernetes/cmd/kubelet\nmod\tk8s.io/kubernetes\t(devel)\t\n\
             dep\tgoogle.golang.org/grpc\tv1.49.0\th1:x=\n=>\tgoogle.golang.org/grpc\tv1.50.1\th1:y=\n\
             build\tGOARCH=amd64\nbuild\tCGO_ENABLED=1\njunk\n",
        );
        assert_eq!(info.module_version("google.golang.org/grpc"), Some("v1.50.1"));
        assert_eq!(info.module_version("k8s.io/kubernetes"), Some("(devel)"));
        assert_eq!(info.setting("CGO_ENABLED"), Some("1"));
        assert!(info.experiment("noregabi") && !info.experiment("regabi"));
        assert!(info.matches_machine(Machine::X86_64) && !info.matches_machine(Machine::Aarch64));
    }
}
