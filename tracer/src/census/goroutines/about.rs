//! [`About`]: which containers a CRI handler is about: the ids on its stack.
//!
//! No layout of a structure is needed. The id of a container is a string of 64 hexadecimal digits; a string is an address
//! and a length, and the messages of the CRI begin with the id they are about, perhaps behind what protobuf keeps for
//! itself. So each word of a frame may be half of such a string, or may point to something that begins with one. Looked
//! at are the frames of the functions that serve the request, which keep it until they return (containerd's
//! `instrumentedService` logs the id of the request when it ends).
//!
//! Which container's status a goroutine waits to lock is read from the frame of `runtime.semacquire1`, which keeps the
//! address of the semaphore until it has it. The semaphore is part of a `sync.RWMutex`, which containerd's `statusStorage`
//! begins with, and behind which it has the directory of the container.
//!
//! A containerd that starts asks the shims of an earlier one; the function that does so has the bundle, which begins with
//! the id.
//!
//! A slot of a frame that is not in use keeps what was there before: goroutines take over the stacks of earlier ones. So
//! where the function's code shows that it keeps its argument in the word that is meant for it, only this word counts.
//! From other frames, what is found *contains* the right id; whoever uses it has to refuse what is ambiguous.

use std::collections::{BTreeSet, HashMap};

use super::code::Code;
use super::header::{USER, words};
use crate::census::memory::{Memory, MemoryError, Piece};
use crate::input::IdOnStack;

/// Length of an id.
const ID: usize = 64;
/// Longest path that may contain an id.
const MAX_PATH: u64 = 256;
/// Bytes at the beginning of a structure in which its id is looked for.
const BEGIN: usize = 64;
/// Where a `sync.RWMutex` has its three semaphores: that of its mutex, of writers, of readers (Go 1.13 to 1.27).
const SEMAPHORES: [u64; 3] = [4, 8, 12];
/// Words of a `sync.RWMutex`.
const AFTER_LOCK: usize = 3;
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
/// The request among the arguments of a function that serves it: receiver, context (two words), request.
const REQUEST: usize = 3;

/// Functions of containerd's task manager that have the bundle of a shim, and which argument it is: those for one, which had no
/// receiver before containerd 2, and those for all (`runtime/v2`).
const LOADS: [(&str, Option<usize>); 4] =
    [(").loadShim", Some(3)), (".loadShim", Some(2)), (").loadShims", None), (").loadTasks", None)];

/// What a function means for the search.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Means {
    /// It serves this method of the CRI.
    Handler(String),
    /// It locks the status of a container.
    Status,
    /// It waits for a semaphore.
    Semaphore,
    /// It asks the shim of a bundle, as containerd starts; which of its arguments the bundle is, if it is one.
    Load(Option<usize>),
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
    pub(super) sought: Sought,
}

/// What is looked for in a part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    /// Ids, and what begins with one.
    Ids,
    /// The request, which begins with the one id that counts; ids where it has none.
    Request {
        /// Address of the word that points to it.
        at: u64,
    },
    /// The semaphore of a lock.
    Lock,
}

/// Searches of one reading.
#[derive(Debug, Default)]
pub(super) struct About {
    means: HashMap<u32, Means>,
    keeps: HashMap<u32, bool>,
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
        let handler = frames.iter().rev().find_map(|function| match self.means_of(code, *function) {
            Means::Handler(method) => Some(format!(").{method}")),
            Means::Status | Means::Semaphore | Means::Load(_) | Means::Nothing => None,
        });
        let Some(method) = handler else { return self.load(code, frames, ends).into_iter().collect() };
        // A list is about no container; what lies in its frames was the last one it looked at.
        let list = method.starts_with(").List") || method.starts_with(").Stream");
        let serves = |name: &str| !list && name.ends_with(&method);
        let mut spots = Vec::new();
        let mut status = None;
        for (index, function) in frames.iter().enumerate().rev() {
            let frame = u32::try_from(index).unwrap_or(u32::MAX);
            let spot = match self.means_of(code, *function) {
                Means::Status => {
                    status = Some(frame);
                    None
                }
                Means::Semaphore => status.map(|status| (status, Sought::Lock)),
                _ => code.name(*function).is_some_and(serves).then_some((frame, Sought::Ids)),
            };
            // Without the stack pointer of its caller the end of a frame is not known.
            let range = index.checked_sub(1).and_then(|inner| Some((*ends.get(inner)?, *ends.get(index)?)));
            if let (Some((frame, sought)), Some((from, end)), true) = (spot, range, spots.len() < MAX_SPOTS) {
                // Its arguments lie right above.
                let request = end.saturating_add(8 * REQUEST as u64);
                let keeps = sought == Sought::Ids && self.keeps(code, *function);
                let sought = if keeps { Sought::Request { at: request } } else { sought };
                let to = request.saturating_add(8).min(from.saturating_add(MAX_FRAME));
                spots.push(Spot { frame, from, to, sought });
            }
        }
        spots
    }

    /// The innermost frame that has the bundle of a shim, with its arguments.
    fn load(&mut self, code: &dyn Code, frames: &[u32], ends: &[u64]) -> Option<Spot> {
        let argument = |means: &Means| if let Means::Load(argument) = means { Some(*argument) } else { None };
        let mut loads = frames.iter().enumerate();
        let (index, function, bundle) = loads.find_map(|(index, function)| {
            Some((index, *function, argument(self.means_of(code, *function))?))
        })?;
        let (from, end) = (*ends.get(index.checked_sub(1)?)?, *ends.get(index)?);
        let to = end.saturating_add(8 * (REQUEST as u64 + 1)).min(from.saturating_add(MAX_FRAME));
        let kept = bundle.filter(|n| code.keeps_argument(function, *n));
        let sought = match kept {
            Some(n) => Sought::Request { at: end.saturating_add(8 * n as u64) },
            None => Sought::Ids,
        };
        Some(Spot { frame: u32::try_from(index).ok()?, from, to, sought })
    }

    fn keeps(&mut self, code: &dyn Code, function: u32) -> bool {
        *self.keeps.entry(function).or_insert_with(|| code.keeps_argument(function, REQUEST))
    }

    fn means_of(&mut self, code: &dyn Code, function: u32) -> &Means {
        self.means.entry(function).or_insert_with(|| code.name(function).map_or(Means::Nothing, means))
    }
}

fn means(name: &str) -> Means {
    if name.contains(".(*statusStorage).") {
        return Means::Status;
    }
    if name == "runtime.semacquire1" {
        return Means::Semaphore;
    }
    if let Some((_, bundle)) = LOADS.iter().find(|(load, _)| name.ends_with(load)) {
        return Means::Load(*bundle);
    }
    let method = name.split_once("._RuntimeService_").and_then(|(_, rest)| rest.split_once("_Handler"));
    method.map_or(Means::Nothing, |(method, _)| Means::Handler(method.to_owned()))
}

/// Ids in these parts of a stack, in their order; each once per frame.
pub(super) fn search(memory: &dyn Memory, spots: &[Spot]) -> Result<Vec<IdOnStack>, MemoryError> {
    let mut found: Vec<IdOnStack> = Vec::new();
    for (spot, words) in spots.iter().zip(words_of(memory, spots)?) {
        let strings = match spot.sought {
            Sought::Ids => strings(memory, &words)?,
            Sought::Request { at } => request(memory, at, &words)?,
            Sought::Lock => directories(memory, &words)?,
        };
        let ids = ids_at(memory, strings)?;
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
    Ok(pieces
        .iter()
        .map(|piece| if piece.whole { words(piece.into).collect() } else { Vec::new() })
        .collect())
}

/// What could be an id: strings among these words, and at the beginning of what they point to.
fn strings(memory: &dyn Memory, words: &[u64]) -> Result<BTreeSet<(u64, u64)>, MemoryError> {
    let pointers = words.iter().copied().filter(|word| word % 8 == 0).collect();
    let begun = beginnings(memory, &pointers)?;
    Ok(pairs(words).chain(begun.iter().flat_map(|begin| pairs(begin))).collect())
}

/// The first string at the beginning of a request that is an id: smaller requests have others right behind them. That
/// for a new sandbox has none; its id is in the frame.
fn request(memory: &dyn Memory, at: u64, words: &[u64]) -> Result<BTreeSet<(u64, u64)>, MemoryError> {
    let mut bytes = [0; 8];
    let pointer = memory.read_one(at, &mut bytes)?.then(|| u64::from_le_bytes(bytes));
    let begun = beginnings(memory, &pointer.into_iter().collect())?;
    for pair in begun.iter().flat_map(|begin| pairs(begin)) {
        if !ids_at(memory, BTreeSet::from([pair]))?.is_empty() {
            return Ok(BTreeSet::from([pair]));
        }
    }
    strings(memory, words)
}

/// Directories behind the locks whose semaphores are among these words.
fn directories(memory: &dyn Memory, words: &[u64]) -> Result<BTreeSet<(u64, u64)>, MemoryError> {
    let locks = words.iter().flat_map(|word| SEMAPHORES.map(|at| word.wrapping_sub(at)));
    let begun = beginnings(memory, &locks.filter(|lock| lock % 8 == 0).collect())?;
    Ok(begun.iter().filter_map(|begin| pairs(begin.get(AFTER_LOCK..AFTER_LOCK + 2)?).next()).collect())
}

/// The first words of what lies at these addresses, where there is something.
fn beginnings(memory: &dyn Memory, at: &BTreeSet<u64>) -> Result<Vec<Vec<u64>>, MemoryError> {
    let at: Vec<u64> = at.iter().copied().filter(|address| USER.contains(address)).collect();
    let mut bytes = vec![0; BEGIN * at.len()];
    let mut pieces: Vec<Piece<'_>> =
        at.iter().zip(bytes.chunks_mut(BEGIN)).map(|(at, into)| Piece::new(*at, into)).collect();
    memory.read(&mut pieces)?;
    Ok(pieces.iter().filter(|piece| piece.whole).map(|piece| words(piece.into).collect()).collect())
}

/// Addresses and lengths of strings as long as an id, or as a path that contains one.
fn pairs(words: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let fits = |(at, len): &(u64, u64)| USER.contains(at) && (ID as u64..=MAX_PATH).contains(len);
    words.windows(2).map(|pair| (pair[0], pair[1])).filter(fits)
}

/// The ids that these strings are, or contain.
fn ids_at(memory: &dyn Memory, strings: BTreeSet<(u64, u64)>) -> Result<BTreeSet<String>, MemoryError> {
    let strings: Vec<(u64, usize)> =
        strings.into_iter().filter_map(|(at, len)| Some((at, usize::try_from(len).ok()?))).collect();
    let mut bytes: Vec<Vec<u8>> = strings.iter().map(|(_, len)| vec![0; *len]).collect();
    let mut pieces: Vec<Piece<'_>> =
        strings.iter().zip(&mut bytes).map(|((at, _), into)| Piece::new(*at, into)).collect();
    memory.read(&mut pieces)?;
    Ok(pieces.iter().filter(|piece| piece.whole).filter_map(|piece| id(piece.into)).collect())
}

/// An id, or that of the container whose directory or status file a path is: `…/containers/ID`, `…/containers/ID/status`.
fn id(bytes: &[u8]) -> Option<String> {
    let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_id = |digits: &&[u8]| digits.len() == ID && digits.iter().all(hexadecimal);
    let path = bytes.strip_prefix(b"/").map(|path| path.rsplit(|byte| *byte == b'/').take(2));
    let digits = path.map_or(Some(bytes).filter(is_id), |mut parts| parts.find(is_id))?;
    Some(String::from_utf8_lossy(digits).into_owned())
}

#[cfg(test)]
#[path = "about_tests.rs"]
mod tests;
