//! [`BusRec`] → [`BusCall`].

use plegtrace_common::{
    kind::RecKind,
    rec::BusRec,
    wire::{
        bus::{BusTexts, TEXT, TEXTS},
        dbus::{field, kind},
    },
};
use zerocopy::FromBytes;

use super::{BusCall, BusCallId, BusKind, BusNames, DecodeError, MonoNs};

/// Reads an answered call.
pub(super) fn decode(bytes: &[u8]) -> Result<BusCall, DecodeError> {
    let rec = BusRec::read_from_bytes(bytes).map_err(|_| DecodeError::Size {
        kind: RecKind::BusCall,
        want: size_of::<BusRec>(),
        have: bytes.len(),
    })?;
    let (start, end) = (MonoNs(rec.start_ns), MonoNs(rec.header.ts_ns));
    if end < start {
        return Err(DecodeError::Backwards { start, end });
    }
    let refused = (rec.errno != 0).then(|| errno(rec.errno));
    let error = BusTexts(&rec.texts).text(field::ERROR_NAME).ok_or(DecodeError::MessageNames)?;
    let mut names = bus_names(&rec.texts).ok_or(DecodeError::MessageNames)?;
    // A row for each error.
    if let Some(refused) = &refused {
        names.member.clone_from(refused);
    }
    Ok(BusCall {
        id: BusCallId { socket: rec.socket, serial: rec.serial, start },
        kind: match rec.serial {
            _ if refused.is_some() => BusKind::Refused,
            _ if rec.kind == u32::from(kind::SIGNAL) => BusKind::Job,
            0 => BusKind::Connection,
            _ => BusKind::Call,
        },
        asker: rec.header.tgid,
        end,
        answer_serial: rec.answer_serial,
        names,
        error: refused.or_else(|| (rec.kind == u32::from(kind::ERROR)).then(|| error.to_owned())),
    })
}

/// The name of an error of the kernel (include/uapi/asm-generic/errno-base.h and errno.h): those that connect(2) has for a socket
/// with a path.
fn errno(number: u32) -> String {
    let name = match number {
        1 => "EPERM",
        2 => "ENOENT",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        91 => "EPROTOTYPE",
        111 => "ECONNREFUSED",
        _ => return format!("errno {number}"),
    };
    name.to_owned()
}

/// What a call calls, from the texts that the kernel side keeps; `None` when those cannot be names.
#[must_use]
pub fn bus_names(texts: &[u8; TEXT * TEXTS]) -> Option<BusNames> {
    let text = |code| BusTexts(texts).text(code).map(str::to_owned);
    Some(BusNames {
        interface: text(field::INTERFACE)?,
        member: text(field::MEMBER)?,
        destination: text(field::DESTINATION)?,
    })
}

#[cfg(test)]
mod tests {
    use plegtrace_common::{ABI_VERSION, header::RecHeader};
    use zerocopy::IntoBytes;

    use super::*;

    fn rec(start_ns: u64, ts_ns: u64, answer: u8) -> BusRec {
        let len = u32::try_from(size_of::<BusRec>()).unwrap();
        let mut texts = [0; TEXT * TEXTS];
        for (place, text) in ["a.B", "M", ":1.5", "a.Error"].into_iter().enumerate() {
            texts[place * TEXT..][..text.len()].copy_from_slice(text.as_bytes());
        }
        BusRec {
            header: RecHeader {
                ts_ns,
                len,
                kind: RecKind::BusCall as u16,
                abi: ABI_VERSION,
                tgid: 10,
                tid: 11,
            },
            start_ns,
            socket: 77,
            serial: 5,
            kind: u32::from(answer),
            bytes: 40,
            answer_bytes: 20,
            answer_serial: 99,
            errno: 0,
            texts,
        }
    }

    /// Each field lands where it belongs; only an error has the name of one.
    #[test]
    fn fields() {
        let call = decode(rec(5, 9, kind::ERROR).as_bytes()).unwrap();
        assert_eq!(call.id, BusCallId { socket: 77, serial: 5, start: MonoNs(5) });
        assert_eq!((call.asker, call.end, call.error.as_deref()), (10, MonoNs(9), Some("a.Error")));
        assert_eq!(call.answer_serial, 99);
        let names = &call.names;
        assert_eq!([&names.interface, &names.member, &names.destination], ["a.B", "M", ":1.5"]);
        assert_eq!(decode(rec(5, 9, kind::RETURN).as_bytes()).unwrap().error, None);
        let kinds = [(5, kind::RETURN), (5, kind::SIGNAL), (0, kind::RETURN)]
            .map(|(serial, answer)| decode(BusRec { serial, ..rec(5, 9, answer) }.as_bytes()).unwrap().kind);
        assert_eq!(kinds, [BusKind::Call, BusKind::Job, BusKind::Connection]);
        assert!(matches!(decode(rec(9, 5, kind::RETURN).as_bytes()), Err(DecodeError::Backwards { .. })));
    }

    /// A connection that was refused is no connection, and its error is the kernel's.
    #[test]
    fn refused() {
        let told = |errno| {
            let rec =
                BusRec { serial: 0, socket: 0, errno, texts: [0; TEXT * TEXTS], ..rec(9, 9, kind::ERROR) };
            let call = decode(rec.as_bytes()).unwrap();
            (call.kind, call.asker, call.error.unwrap())
        };
        assert_eq!(told(11), (BusKind::Refused, 10, "EAGAIN".to_owned()));
        assert_eq!(told(133), (BusKind::Refused, 10, "errno 133".to_owned()));
    }

    /// Bytes that no name has are an error.
    #[test]
    fn hostile_names() {
        for place in 0..TEXTS {
            let mut hostile = rec(5, 9, kind::ERROR);
            hostile.texts[place * TEXT] = 0x1b;
            assert_eq!(decode(hostile.as_bytes()), Err(DecodeError::MessageNames), "{place}");
        }
    }
}
