//! [`ProcessRec`] → [`Process`].

use plegtrace_common::{kind::RecKind, rec::ProcessRec, role::Role};
use zerocopy::FromBytes;

use super::{DecodeError, Meta, MonoNs, Process, Step};

/// Which of the three kinds the record has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Life {
    Fork,
    Exec,
    Exit,
}

impl Life {
    fn kind(self) -> RecKind {
        match self {
            Self::Fork => RecKind::Fork,
            Self::Exec => RecKind::Exec,
            Self::Exit => RecKind::Exit,
        }
    }

    fn step(self, exit_code: u32) -> Step {
        match self {
            Self::Fork => Step::Fork,
            Self::Exec => Step::Exec,
            Self::Exit => Step::Exit(exit_code),
        }
    }
}

/// Reads one step of a process.
pub(super) fn decode(bytes: &[u8], life: Life) -> Result<Process, DecodeError> {
    let rec = ProcessRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: life.kind(),
        want: size_of::<ProcessRec>(),
        have: bytes.len(),
    })?;
    Ok(Process {
        meta: Meta { at: MonoNs(rec.header.ts_ns), tgid: rec.header.tgid, tid: rec.header.tid },
        step: life.step(rec.exit_code),
        parent: (rec.parent != 0).then_some(rec.parent),
        creator: (rec.creator != 0).then_some(rec.creator),
        parent_role: Role::from_u32(rec.parent_role),
        since: (rec.since_ns != 0).then_some(MonoNs(rec.since_ns)),
        flags: rec.flags,
        role: Role::from_u32(rec.role),
        old_role: Role::from_u32(rec.old_role),
        comm: text(&rec.comm),
    })
}

/// Text of a zero-terminated field; its length is bounded by the field.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name ends at its zero, or with the field when there is none.
    #[test]
    fn names_end_at_zero() {
        assert_eq!(text(b"runc\0garbage"), "runc");
        assert_eq!(text(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(text(b"a\xffb\0"), "a\u{fffd}b");
    }
}
