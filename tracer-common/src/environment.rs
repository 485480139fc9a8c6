//! [`Search`]: is `CNI_COMMAND` a variable of an environment? Made for the kernel side: without a branch, because verifiers
//! follow both ways of each.

use crate::rec::ENV_PART;

/// Bytes that are searched: the beginning of an environment, what stands for the rest when there is one, and its end.
pub const SEARCHED: usize = 2 * ENV_PART;
/// What stands for bytes that are missing: no byte of `CNI_COMMAND`, nor the end of a variable.
pub const MISSING: u8 = 0xff;

/// `COMMAND=`, the last eight bytes of what is looked for.
const LAST: u64 = u64::from_be_bytes(*b"COMMAND=");
/// The five bytes before: the variable begins behind the end of another one.
const FIRST: u64 = u64::from_be_bytes(*b"\0CNI_\0\0\0");

/// A search, byte by byte.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The last eight bytes, and the eight before: zeros at the beginning, as behind a variable.
    last: u64,
    before: u64,
    /// How many bytes there are.
    len: u64,
    /// Its highest bit is set once the variable has been found.
    found: u64,
}

impl Search {
    /// Begins with `len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn new(len: u64) -> Self {
        Self { last: 0, before: 0, len, found: 0 }
    }

    /// The byte at `place`; what is behind the last one does not count.
    #[inline(always)]
    pub const fn byte(&mut self, place: u64, byte: u8) {
        self.before = (self.before << 8) | (self.last >> 56);
        self.last = (self.last << 8) | byte as u64;
        let behind = self.len.wrapping_sub(1).wrapping_sub(place) >> 63;
        let differs = (self.last ^ LAST) | ((self.before << 24) ^ FIRST) | behind;
        // Below 0 for nothing but 0.
        self.found |= differs.wrapping_sub(1) & !differs;
    }

    /// Was it one of these bytes' variables?
    #[inline(always)]
    #[must_use]
    pub const fn has_found(self) -> bool {
        self.found >> 63 != 0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    /// As the kernel side does it: what is behind the end is left over from another environment.
    fn finds(environment: &[u8]) -> bool {
        let mut scratch = [0; SEARCHED];
        let left = b"\0CNI_COMMAND=DEL\0";
        scratch.chunks_mut(left.len()).for_each(|chunk| chunk.copy_from_slice(&left[..chunk.len()]));
        let first = environment.len().min(ENV_PART - 1);
        let last = (environment.len() - first).min(ENV_PART - 1);
        let cut = usize::from(first + last < environment.len());
        scratch[..first].copy_from_slice(&environment[..first]);
        scratch[first] = MISSING;
        scratch[first + cut..][..last].copy_from_slice(&environment[environment.len() - last..]);
        let mut search = Search::new((first + cut + last) as u64);
        (0u64..).zip(scratch).for_each(|(place, byte)| search.byte(place, byte));
        search.has_found()
    }

    /// The variable is found wherever it is, but in the middle of an environment that is too long.
    #[test]
    fn anywhere() {
        for (before, after) in
            [(0, 0), (1, 0), (5, 5), (2030, 100), (2040, 1000), (3000, 9000), (9000, 30), (30, 9000)]
        {
            let mut environment = vec![b'x'; before];
            if before > 0 {
                environment.push(0);
            }
            environment.extend_from_slice(b"CNI_COMMAND=ADD\0");
            environment.resize(environment.len() + after, b'y');
            assert_eq!(
                finds(&environment),
                (before, after) != (3000, 9000),
                "behind {before}, before {after}"
            );
        }
        assert!(finds(b"CNI_COMMAND="));
    }

    /// Nothing else is: each byte counts, and that a variable begins there.
    #[test]
    fn nothing_else() {
        let name = *b"\0CNI_COMMAND=";
        for place in 0..name.len() {
            for bit in 0..8 {
                let mut other = name;
                other[place] ^= 1 << bit;
                assert!(!finds(&other), "{other:?}");
            }
        }
        for other in
            [&b""[..], b"\0", b"PATH=/bin\0", b"XCNI_COMMAND=ADD\0", b"CNI_COMMAND\0", b"A=CNI_COMMAND=\0"]
        {
            assert!(!finds(other), "{other:?}");
        }
    }

    /// What stands before and behind the part that is missing is not read as one.
    #[test]
    fn cut() {
        let mut environment = vec![b'x'; ENV_PART - 1 + 100 + ENV_PART - 1];
        let (before, behind) = b"\0CNI_COMMAND=".split_at(5);
        environment[ENV_PART - 1 - before.len()..][..before.len()].copy_from_slice(before);
        environment[ENV_PART - 1 + 100..][..behind.len()].copy_from_slice(behind);
        assert!(!finds(&environment));
        environment.drain(ENV_PART - 1..ENV_PART - 1 + 100);
        assert!(finds(&environment), "nothing is missing");
    }
}
