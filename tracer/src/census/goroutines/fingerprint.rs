//! What is on a stack, as one number: while a goroutine is parked nobody writes to its stack, so the same number at two looks means
//! that it has not gone on between them. Whoever went on and came back to the same place has other pointers, times or counts there.

use std::ops::Range;

use super::header::words;

/// FNV-1a, word by word (offset basis and prime of 64 bits).
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The fingerprint of the part of a stack that is in use, as far as it was read. The same for every reader and every process that reads:
/// a pointer into the stack itself counts by its distance from the end, because the garbage collector moves stacks.
pub(super) fn fingerprint(bytes: &[u8], stack: &Range<u64>) -> u32 {
    let relative = |word: u64| if stack.contains(&word) { stack.end - word } else { word };
    let hash = words(bytes).map(relative).fold(BASIS, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(PRIME);
        mixed ^ (mixed >> 32)
    });
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64], stack: Range<u64>) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        fingerprint(&bytes, &stack)
    }

    /// A stack that was moved is the same; one with another pointer to the heap is another, wherever that is, and so is a longer one.
    #[test]
    fn what_counts() {
        let (here, there) = (0xc000_1000..0xc000_2000, 0xc000_8000..0xc000_c000);
        let parked = of(&[7, 0xc000_1f00, 0xc0de], here.clone());
        assert_eq!(parked, of(&[7, 0xc000_bf00, 0xc0de], there));
        let others: [&[u64]; 4] = [
            &[7, 0xc000_1f08, 0xc0de],
            &[8, 0xc000_1f00, 0xc0de],
            &[7, 0xc000_1f00, 0xc0df],
            &[7, 0xc000_1f00],
        ];
        assert!(others.iter().all(|other| of(other, here.clone()) != parked));
        assert_ne!(of(&[1, 2], here.clone()), of(&[2, 1], here));
    }
}
