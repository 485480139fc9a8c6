//! [`About`]: which containers a CRI handler is about: the ids on its stack.
//!
//! No layout of a structure is needed. The id of a container is a string of 64 hexadecimal digits; a string is an address
//! and a length, and the messages of the CRI begin with the id they are about, perhaps behind what protobuf keeps for
//! itself. So each word of a frame may be half of such a string, or may point to something that begins with one. Looked
//! at are the frames of the functions that serve the request, which keep it until they return (containerd's
//! `instrumentedService` logs the id of the request when it ends), and those of the lock of a container's status, which
//! knows the container's directory.
//!
//! A slot of a frame that is not in use keeps what was there before, so what is found *contains* the right id; whoever
//! uses it has to refuse what is ambiguous.

use std::collections::{BTreeSet, HashMap};

use super::code::Code;
use super::header::word;
use crate::census::memory::{Memory, MemoryError, Piece};
use crate::input::IdOnStack;

/// Length of an id.
const ID: usize = 64;
/// Longest path that may end with an id.
const MAX_PATH: u64 = 256;
/// Bytes at the beginning of a structure in which its id is looked for.
const BEGIN: usize = 64;
/// Largest part of a frame that is looked at.
const MAX_FRAME: u64 = 4 << 10;
/// Frames of one goroutine that are looked at.
const MAX_SPOTS: usize = 8;
/// Ids kept of one goroutine.
const MAX_IDS: usize = 32;
/// Goroutines of one kind that are searched.
const MAX_ALIKE: u32 = 128;
/// Goroutines of one reading that are searched.
const MAX_SEARCHED: u32 = 2048;
/// Addresses in user space on the processors we know.
const USER: std::ops::Range<u64> = 4096..1 << 47;

/// What a function means for the search.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Means {
    /// It serves this method of the CRI.
    Handler(String),
    /// It has the lock of a container's status.
    Status,
    /// Nothing.
    Nothing,
}

/// Part of a stack that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Index of the frame.
    pub(super) frame: u32,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Searches of one reading.
#[derive(Debug, Default)]
pub(super) struct About {
    means: HashMap<u32, Means>,
    searched: u32,
}

impl About {
    /// Ids on the stack of a goroutine with these functions, whose frames end at `ends`; of `alike` goroutines this was
    /// asked before. Empty for goroutines that serve no request about a container.
    pub(super) fn ids(
        &mut self,
        memory: &dyn Memory,
        code: &dyn Code,
        frames: &[u32],
        ends: &[u64],
        alike: u32,
    ) -> Result<Vec<IdOnStack>, MemoryError> {
        if alike >= MAX_ALIKE || self.searched >= MAX_SEARCHED {
            return Ok(Vec::new());
        }
        let spots = self.spots(code, frames, ends);
        if spots.is_empty() {
            return Ok(Vec::new());
        }
        self.searched += 1;
        search(memory, &spots)
    }

    /// Frames that are searched, the outermost first.
    fn spots(&mut self, code: &dyn Code, frames: &[u32], ends: &[u64]) -> Vec<Spot> {
        let handler = frames.iter().rev().find_map(|function| match self.of(code, *function) {
            Means::Handler(method) => Some(format!(").{method}")),
            Means::Status | Means::Nothing => None,
        });
        let Some(method) = handler else { return Vec::new() };
        // A list is about no container; what lies in its frames was the last one it looked at.
        let list = method.starts_with(").List") || method.starts_with(").Stream");
        let mut spots = Vec::new();
        for (index, function) in frames.iter().enumerate().rev() {
            let status = *self.of(code, *function) == Means::Status;
            let serves = !list && code.name(*function).is_some_and(|name| name.ends_with(&method));
            // Without the caller's stack pointer the end is not known; the innermost frame is one of the runtime.
            let (Some(from), Some(end)) = (index.checked_sub(1).and_then(|at| ends.get(at)), ends.get(index))
            else {
                continue;
            };
            if (status || serves) && spots.len() < MAX_SPOTS {
                // Arguments lie right above: receiver, context (two words), request. Of the lock only the receiver.
                let arguments = if status { 8 } else { 32 };
                let to = end.saturating_add(arguments).min(from.saturating_add(MAX_FRAME));
                spots.push(Spot { frame: u32::try_from(index).unwrap_or(u32::MAX), from: *from, to });
            }
        }
        spots
    }

    fn of(&mut self, code: &dyn Code, function: u32) -> &Means {
        self.means.entry(function).or_insert_with(|| code.name(function).map_or(Means::Nothing, means))
    }
}

fn means(name: &str) -> Means {
    if name.contains(".(*statusStorage).") {
        return Means::Status;
    }
    let method = name.split_once("._RuntimeService_").and_then(|(_, rest)| rest.split_once("_Handler"));
    method.map_or(Means::Nothing, |(method, _)| Means::Handler(method.to_owned()))
}

/// Ids in these parts of a stack, in their order; each once per frame.
pub(super) fn search(memory: &dyn Memory, spots: &[Spot]) -> Result<Vec<IdOnStack>, MemoryError> {
    let mut found: Vec<IdOnStack> = Vec::new();
    for (spot, words) in spots.iter().zip(words_of(memory, spots)?) {
        let ids = ids_at(memory, strings(memory, &words)?)?;
        let ids = ids.into_iter().map(|id| IdOnStack { frame: spot.frame, id });
        let room = MAX_IDS.saturating_sub(found.len());
        found.extend(ids.take(room));
    }
    Ok(found)
}

/// The words of each part; none for a part that cannot be read.
fn words_of(memory: &dyn Memory, spots: &[Spot]) -> Result<Vec<Vec<u64>>, MemoryError> {
    let len = |spot: &Spot| usize::try_from(spot.to.saturating_sub(spot.from)).unwrap_or(0) & !7;
    let mut bytes: Vec<Vec<u8>> = spots.iter().map(|spot| vec![0; len(spot)]).collect();
    let mut pieces: Vec<Piece<'_>> =
        spots.iter().zip(&mut bytes).map(|(spot, into)| Piece::new(spot.from, into)).collect();
    memory.read(&mut pieces)?;
    Ok(pieces.iter().map(|piece| if piece.whole { words(piece.into) } else { Vec::new() }).collect())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    (0..bytes.len() / 8).filter_map(|index| word(bytes, 8 * index)).collect()
}

/// What could be an id: strings among these words, and at the beginning of what they point to.
fn strings(memory: &dyn Memory, words: &[u64]) -> Result<BTreeSet<(u64, u64)>, MemoryError> {
    let mut strings: BTreeSet<(u64, u64)> = pairs(words).collect();
    let pointers: BTreeSet<u64> =
        words.iter().copied().filter(|word| USER.contains(word) && word % 8 == 0).collect();
    let mut bytes = vec![0; BEGIN * pointers.len()];
    let mut pieces: Vec<Piece<'_>> =
        pointers.iter().zip(bytes.chunks_mut(BEGIN)).map(|(at, into)| Piece::new(*at, into)).collect();
    memory.read(&mut pieces)?;
    for piece in pieces.iter().filter(|piece| piece.whole) {
        strings.extend(pairs(&self::words(piece.into)));
    }
    Ok(strings)
}

/// Addresses and lengths of strings as long as an id, or as a path that ends with one.
fn pairs(words: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let fits = |(at, len): &(u64, u64)| USER.contains(at) && (ID as u64..=MAX_PATH).contains(len);
    words.windows(2).map(|pair| (pair[0], pair[1])).filter(fits)
}

/// Those that are ids, or paths that end with one.
fn ids_at(memory: &dyn Memory, strings: BTreeSet<(u64, u64)>) -> Result<BTreeSet<String>, MemoryError> {
    // The end of the string; of a path with the slash before it.
    let end = |(at, len): (u64, u64)| {
        let tail = (ID as u64 + 1).min(len);
        (at.saturating_add(len - tail), usize::try_from(tail).unwrap_or(ID))
    };
    let ends: Vec<(u64, usize)> = strings.into_iter().map(end).collect();
    let mut bytes: Vec<Vec<u8>> = ends.iter().map(|(_, len)| vec![0; *len]).collect();
    let mut pieces: Vec<Piece<'_>> =
        ends.iter().zip(&mut bytes).map(|((at, _), into)| Piece::new(*at, into)).collect();
    memory.read(&mut pieces)?;
    Ok(pieces.iter().filter(|piece| piece.whole).filter_map(|piece| id(piece.into)).collect())
}

fn id(bytes: &[u8]) -> Option<String> {
    let digits = if bytes.len() == ID { bytes } else { bytes.strip_prefix(b"/")? };
    let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let whole = digits.len() == ID && digits.iter().all(hexadecimal);
    whole.then(|| String::from_utf8_lossy(digits).into_owned())
}

#[cfg(test)]
#[path = "about_tests.rs"]
mod tests;
