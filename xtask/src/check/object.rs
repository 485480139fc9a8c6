//! The eBPF object → what its programs are called, which helpers they call, and how much stack they need.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind, SymbolKind};

/// The kernel keeps 15 bytes of a program's name: include/uapi/linux/bpf.h, `BPF_OBJ_NAME_LEN` is 16 with the end.
const NAME_MAX: usize = 15;

/// `BPF_FUNC_probe_write_user`: writes into the memory of other processes. We only read.
const PROBE_WRITE_USER: i32 = 36;

/// `BPF_JMP | BPF_CALL`: Documentation/bpf/standardization/instruction-set.rst.
pub(super) const CALL: u8 = 0x85;

/// What is wrong with the object.
///
/// # Errors
/// When it cannot be read or is not an ELF object.
pub(crate) fn faults(path: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file =
        object::File::parse(&*bytes).with_context(|| format!("{} is not an object", path.display()))?;
    let mut faults = Vec::new();
    let mut names = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_global()) {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        // What is in .text is a function that programs share, not a program.
        let program = section.is_some_and(|section| section.name().is_ok_and(|name| name != ".text"));
        if program {
            names.push(symbol.name().context("a program without a name")?.to_owned());
        }
    }
    faults.extend(name_faults(&names));
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        if helpers(section.data()?).contains(&PROBE_WRITE_USER) {
            faults.push(format!("{} calls bpf_probe_write_user", section.name()?));
        }
    }
    faults.extend(super::stack::faults(&file)?);
    Ok(faults)
}

fn name_faults(names: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    if names.is_empty() {
        faults.push("no program in the object".to_owned());
    }
    for name in names {
        if name.len() > NAME_MAX {
            faults.push(format!("program {name} has {} letters, the kernel keeps {NAME_MAX}", name.len()));
        }
        if !seen.insert(&name[..name.len().min(NAME_MAX)]) {
            faults
                .push(format!("two programs are called {} in the kernel", &name[..name.len().min(NAME_MAX)]));
        }
    }
    faults
}

/// Numbers of the helpers that are called by number: source register 0, as opposed to calls of functions.
fn helpers(code: &[u8]) -> BTreeSet<i32> {
    let call = |insn: &[u8]| {
        let imm = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
        (insn[0] == CALL && insn[1] >> 4 == 0).then_some(imm)
    };
    code.chunks_exact(8).filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that the kernel would cut or confuse are faults.
    #[test]
    fn names_must_survive_the_kernel() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(name_faults(&names(&["call_in", "call_out"])), [""; 0]);
        assert_eq!(name_faults(&[]), ["no program in the object"]);
        let faults = name_faults(&names(&["call_in_from_afar", "call_in_from_af"]));
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    /// A helper call is told from a call of a function and from other instructions.
    #[test]
    fn helpers_are_found() {
        let mut code = Vec::new();
        code.extend([CALL, 0x00, 0, 0, 36, 0, 0, 0]);
        code.extend([CALL, 0x10, 0, 0, 40, 0, 0, 0]);
        code.extend([0xb7, 0x00, 0, 0, 41, 0, 0, 0]);
        assert_eq!(helpers(&code).into_iter().collect::<Vec<_>>(), [PROBE_WRITE_USER]);
    }
}
