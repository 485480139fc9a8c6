//! Walks over made-up stacks.

use proptest::prelude::*;

use super::*;

const STACK: u64 = 0xc000_0000;

/// A program whose functions have 0x100 bytes each; function `n` is at `n << 8`, 0x1000 of them.
struct Toy {
    returns: Return,
    /// What functions mean, by index; the others are ordinary and 16 bytes deep.
    special: Vec<(u32, Kind, Option<u32>)>,
}

impl Code for Toy {
    fn place(&mut self, pc: u64) -> Option<Place> {
        let function = u32::try_from(pc >> 8).ok().filter(|function| (1..0x1000).contains(function))?;
        let special = self.special.iter().find(|special| special.0 == function);
        let (kind, depth) = special.map_or((Kind::Ordinary, Some(16)), |special| (special.1, special.2));
        Some(Place { function, depth, kind })
    }

    fn returns(&self) -> Return {
        self.returns
    }

    fn name(&self, _function: u32) -> Option<&str> {
        None
    }

    fn keeps_argument(&self, _function: u32, _n: usize) -> bool {
        false
    }
}

const BOTTOM: u32 = 9;

fn toy(returns: Return) -> Toy {
    Toy {
        returns,
        special: vec![
            (BOTTOM, Kind::Bottom, None),
            (3, Kind::Ordinary, Some(0)),
            (4, Kind::Ordinary, None),
            (5, Kind::Switch, Some(0)),
            (6, Kind::Injected, Some(8)),
            (7, Kind::Ordinary, Some(1 << 20)),
        ],
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn at(function: u64) -> u64 {
    function << 8 | 0x21
}

/// Walks a whole stack of these words from function `first` on.
fn walk(first: u64, words: &[u64]) -> (Vec<u32>, Step) {
    let hi = STACK + 8 * words.len() as u64;
    let mut walk = Unwinder::new((at(first), STACK), None, hi);
    let step = walk.advance(&mut toy(Return::Pushed), STACK, &bytes(words));
    (walk.frames, step)
}

/// Function with a frame, function without, bottom.
#[test]
fn a_plain_stack() {
    let words = [0xdead, 0xbeef, at(3), at(2), 0, 0, at(9), 0];
    assert_eq!(walk(1, &words), (vec![1, 3, 2], Step::Done));
    // A function that has not begun yet: only the return address is there.
    assert_eq!(walk(3, &[at(9)]), (vec![3], Step::Done));
    assert_eq!(walk(9, &[]), (vec![], Step::Done));
}

/// Whatever is wrong ends the walk with what was seen so far, and says why.
#[test]
fn broken_chains() {
    let broken = |why| Step::Broken(why);
    assert_eq!(walk(1, &[0, 0, 0]), (vec![1], broken(broken::NOT_CODE)), "a zero is no address");
    assert_eq!(walk(1, &[0, 0, u64::MAX]), (vec![1], broken(broken::NOT_CODE)));
    assert_eq!(
        walk(1, &[0, 0]),
        (vec![1], broken(broken::OUTSIDE)),
        "the return address would be behind the end"
    );
    assert_eq!(walk(4, &[at(9)]), (vec![4], broken(broken::NO_DEPTH)));
    assert_eq!(walk(1, &[0, 0, at(5), at(9)]), (vec![1, 5], broken(broken::SWITCH)));
    assert_eq!(walk(5, &[at(9)]), (vec![5], Step::Done), "innermost it is trusted");
    assert_eq!(walk(7, &[at(9)]), (vec![7], broken(broken::OUTSIDE)));
    assert_eq!(walk(0x2000, &[at(9)]), (vec![], broken(broken::NOWHERE)));
    let endless = vec![at(3); 1000];
    let (frames, step) = walk(3, &endless);
    assert_eq!((frames.len(), step), (MAX_FRAMES, broken(broken::DEEP)));
    let mut odd = Unwinder::new((at(3), STACK + 4), None, STACK + 64);
    assert_eq!(odd.advance(&mut toy(Return::Pushed), STACK, &bytes(&[at(9); 8])), broken(broken::OUTSIDE));
    let mut high = Unwinder::new((at(1), u64::MAX - 7), None, u64::MAX);
    assert_eq!(high.advance(&mut toy(Return::Pushed), STACK, &[]), broken(broken::OUTSIDE));
}

/// A stack in pieces gives the same walk; each piece is asked for by the address that is wanted.
#[test]
fn stack_in_pieces() {
    let words = [0, 0, at(2), 0, 0, at(3), at(2), 0, 0, at(9)];
    let mut walk = Unwinder::new((at(1), STACK), None, STACK + 80);
    let mut code = toy(Return::Pushed);
    assert_eq!(walk.advance(&mut code, STACK, &bytes(&words[..4])), Step::Need(STACK + 40));
    assert_eq!(walk.frames, [1]);
    assert_eq!(walk.advance(&mut code, STACK + 40, &bytes(&words[5..7])), Step::Need(STACK + 72));
    assert_eq!(walk.advance(&mut code, STACK + 72, &bytes(&words[9..])), Step::Done);
    assert_eq!(walk.frames, [1, 2, 3, 2]);
}

/// arm64: the return address is at the bottom of the frame, or still in the link register.
#[test]
fn link_register() {
    let words = [at(2), 0, at(9), 0];
    let mut walk = Unwinder::new((at(3), STACK), Some(at(1)), STACK + 32);
    assert_eq!(walk.advance(&mut toy(Return::Link), STACK, &bytes(&words)), Step::Done);
    assert_eq!(walk.frames, [3, 1, 2]);
    let mut lost = Unwinder::new((at(3), STACK), None, STACK + 32);
    let step = lost.advance(&mut toy(Return::Link), STACK, &bytes(&words));
    assert_eq!((lost.frames, step), (vec![3], Step::Broken(broken::NO_LINK)));
    // Function 1 called 6, which a signal put over 3: its return address was saved above the frame of 6.
    let words = [at(6), 0, at(3), at(2), 0, at(9), 0];
    let mut walk = Unwinder::new((at(1), STACK), None, STACK + 56);
    assert_eq!(walk.advance(&mut toy(Return::Link), STACK, &bytes(&words)), Step::Done);
    assert_eq!(walk.frames, [1, 6, 3, 2]);
}

proptest! {
    /// Any stack: the walk ends, with a bounded number of frames that are functions.
    #[test]
    fn any_stack(
        words in proptest::collection::vec(prop_oneof![Just(0u64), 0u64..0x12_0000, any::<u64>()], 0..300),
        first in 0u64..0x1100,
        skip in 0u64..64,
        link in any::<bool>(),
    ) {
        let returns = if link { Return::Link } else { Return::Pushed };
        let (mut code, hi) = (toy(returns), STACK + 8 * words.len() as u64);
        let mut walk = Unwinder::new((at(first), STACK + skip), link.then_some(at(2)), hi);
        let memory = bytes(&words);
        let mut from = STACK;
        for _ in 0..1000 {
            let skip = usize::try_from(from - STACK).unwrap();
            let end = (skip + 64).min(memory.len());
            let Step::Need(at) = walk.advance(&mut code, from, &memory[skip..end]) else {
                prop_assert!(walk.frames.len() <= MAX_FRAMES);
                return Ok(());
            };
            prop_assert!(at + 8 <= hi && at >= STACK, "only words of the stack are asked for");
            from = at;
        }
        prop_assert!(false, "it does not end");
    }
}
