//! ttrpc: the payloads of requests and answers, what errors say, and the values of metadata; names, codes and timeouts stay.

use super::protobuf::{Value, fields};

/// Bytes of the header of a frame.
const HEADER: usize = 10;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;

/// Calls `with` for each byte of content in a whole direction.
pub(super) fn each_content(stream: &mut [u8], with: &mut impl FnMut(&mut u8)) {
    let mut at = 0;
    while let Some(&[a, b, c, d, _, _, _, _, kind, _]) = stream.get(at..).and_then(<[u8]>::first_chunk) {
        at += HEADER;
        let end = (at + u32::from_be_bytes([a, b, c, d]) as usize).min(stream.len());
        message(kind, &mut stream[at..end], with);
        at = end;
    }
}

/// `request.proto`: of a request the payload and each piece of metadata, of an answer its status and the payload.
fn message(kind: u8, message: &mut [u8], with: &mut impl FnMut(&mut u8)) {
    const PAYLOAD_OF_REQUEST: u64 = 3;
    const METADATA: u64 = 5;
    const STATUS: u64 = 1;
    const PAYLOAD_OF_ANSWER: u64 = 2;
    let (whole, nested) = match kind {
        REQUEST => (PAYLOAD_OF_REQUEST, METADATA),
        ANSWER => (PAYLOAD_OF_ANSWER, STATUS),
        _ => return message.iter_mut().for_each(with),
    };
    for (number, value) in fields(message) {
        let Value::Bytes(range) = value else { continue };
        if number == whole {
            message[range].iter_mut().for_each(&mut *with);
        } else if number == nested {
            inner(&mut message[range], with);
        }
    }
}

/// All texts of a message but the first field, which is a key or a code.
fn inner(message: &mut [u8], with: &mut impl FnMut(&mut u8)) {
    for (number, value) in fields(message) {
        if let (2.., Value::Bytes(range)) = (number, value) {
            message[range].iter_mut().for_each(&mut *with);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, keys, codes and timeouts are left.
    #[test]
    fn payloads_are_found() {
        let request =
            b"\0\0\0\x18\0\0\0\x01\x01\0\n\x01S\x12\x01M\x1a\x02ab\x20\x07\x2a\x0a\n\x03key\x12\x03val";
        let answer = b"\0\0\0\x0d\0\0\0\x01\x02\0\n\x07\x08\x05\x12\x03not\x12\x02cd";
        let mut stream = [&request[..], answer].concat();
        each_content(&mut stream, &mut |byte| *byte = b'_');
        let kept =
            b"\0\0\0\x18\0\0\0\x01\x01\0\n\x01S\x12\x01M\x1a\x02__\x20\x07\x2a\x0a\n\x03key\x12\x03___\
            \0\0\0\x0d\0\0\0\x01\x02\0\n\x07\x08\x05\x12\x03___\x12\x02__";
        assert_eq!(stream, kept);
    }
}
