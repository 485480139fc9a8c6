//! The fields of a protobuf message, without knowing what they mean.

use std::ops::Range;

/// What a field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text, bytes or another message: where in this one.
    Bytes(Range<usize>),
}

/// All fields with their numbers, up to the first that is none.
#[must_use]
pub fn fields(message: &[u8]) -> Vec<(u64, Value)> {
    let (mut at, mut all) = (0, Vec::new());
    while let Some(field) = field(message, &mut at) {
        all.push(field);
    }
    all
}

fn field(message: &[u8], at: &mut usize) -> Option<(u64, Value)> {
    let tag = varint(message, at)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(message, at)?),
        2 => {
            let length = usize::try_from(varint(message, at)?).ok()?;
            let end = at.checked_add(length).filter(|end| *end <= message.len())?;
            Value::Bytes(std::mem::replace(at, end)..end)
        }
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn varint(message: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let message = b"\n\x03abc\x20\xac\x02\x12\0\x1a\x05ab";
        let expected = vec![(1, Value::Bytes(2..5)), (4, Value::Number(300)), (2, Value::Bytes(10..10))];
        assert_eq!(fields(message), expected, "the last one is cut");
    }
}
