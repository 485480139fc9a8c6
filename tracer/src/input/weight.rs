//! [`Weight`]: how much memory a fact takes, without a word for each of its types: whatever can be written down can be weighed.

use serde::{Serialize, ser};

/// A text, a list and a table themselves, without what is in them, bytes.
const OWNER: usize = 24;
/// A number, or less, bytes.
const SCALAR: usize = 8;

/// What something takes, about: within a factor of two for what is made of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// All of it, bytes.
    pub bytes: usize,
    /// Its longest text, bytes.
    pub longest: usize,
}

impl Weight {
    /// Of anything that a stream may hold.
    #[must_use]
    pub fn of(what: &impl Serialize) -> Self {
        let mut scale = Scale(Self::default());
        // A scale refuses nothing.
        let _ = what.serialize(&mut scale);
        scale.0
    }

    /// What all of these take, bytes.
    #[must_use]
    pub fn sum<'a, T: Serialize + 'a>(all: impl IntoIterator<Item = &'a T>) -> usize {
        all.into_iter().map(|one| Self::of(one).bytes).fold(0, usize::saturating_add)
    }
}

struct Scale(Weight);

/// There is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

impl ser::Error for Refused {
    fn custom<T: std::fmt::Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

impl Scale {
    fn add(&mut self, bytes: usize) -> Result<(), Refused> {
        self.0.bytes = self.0.bytes.saturating_add(bytes);
        Ok(())
    }

    fn text(&mut self, bytes: usize) -> Result<(), Refused> {
        self.0.longest = self.0.longest.max(bytes);
        self.add(OWNER + bytes)
    }
}

/// Each of these takes as much as a number.
macro_rules! scalars {
    ($($name:ident: $kind:ty),*) => {
        $(fn $name(self, _: $kind) -> Result<(), Refused> {
            self.add(SCALAR)
        })*
    };
}

impl ser::Serializer for &mut Scale {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    scalars!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32,
        serialize_f64: f64, serialize_char: char
    );

    fn serialize_str(self, text: &str) -> Result<(), Refused> {
        self.text(text.len())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Refused> {
        self.text(bytes.len())
    }

    fn serialize_none(self) -> Result<(), Refused> {
        self.add(OWNER)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, inner: &T) -> Result<(), Refused> {
        inner.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        self.add(SCALAR)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Refused> {
        self.add(SCALAR)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Refused> {
        self.add(SCALAR)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        inner: &T,
    ) -> Result<(), Refused> {
        inner.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        inner: &T,
    ) -> Result<(), Refused> {
        self.add(SCALAR)?;
        inner.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refused> {
        self.add(OWNER)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        self.add(SCALAR)?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Refused> {
        self.add(OWNER)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        self.add(SCALAR)?;
        Ok(self)
    }
}

/// Parts are put on the scale one after the other.
macro_rules! parts {
    ($($kind:ident: $method:ident),*) => {
        $(impl ser::$kind for &mut Scale {
            type Ok = ();
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), Refused> {
                part.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        })*
    };
}

parts!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

/// Fields have names, which take no memory.
macro_rules! fields {
    ($($kind:ident),*) => {
        $(impl ser::$kind for &mut Scale {
            type Ok = ();
            type Error = Refused;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                part: &T,
            ) -> Result<(), Refused> {
                part.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for &mut Scale {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Refused> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::input::{Command, Component, Fact, Presence};

    fn bytes(what: &impl Serialize) -> usize {
        Weight::of(what).bytes
    }

    /// Texts weigh what they have, everything else what holds it.
    #[test]
    fn parts_add_up() {
        assert_eq!(bytes(&7_u8), SCALAR);
        assert_eq!(bytes(&"abc"), OWNER + 3);
        assert_eq!(bytes(&vec!["abc", ""]), 3 * OWNER + 3);
        assert_eq!(bytes(&None::<String>), OWNER);
        assert_eq!(bytes(&Some("abc")), OWNER + 3);
        assert_eq!(bytes(&BTreeMap::from([(1, "a")])), 2 * OWNER + SCALAR + 1);
        assert_eq!(bytes(&(1, ["a"; 2])), SCALAR + 2 * OWNER + 2);
        let command = Command::Runc { sub: "exec".into(), container: None, bundle: Some("/b".into()) };
        // Facts say which they are.
        assert_eq!(bytes(&command), 4 * OWNER + "runc".len() + 6);
    }

    /// The longest text is found wherever it is.
    #[test]
    fn the_longest_text() {
        let path = "x".repeat(9000);
        let fact = Fact::Presence(Presence { component: Component::Kubelet, path, called: false });
        let Weight { bytes, longest } = Weight::of(&fact);
        assert_eq!(longest, 9000);
        assert!((9000..9200).contains(&bytes), "{bytes}");
    }
}
