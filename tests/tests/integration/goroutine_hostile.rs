//! Any memory of a process, also one that changes while it is read: reading its goroutines ends, counts right, and never
//! panics. `cargo xtask fuzz goroutines` goes further.

use crate::goroutine_kit::torture;

use proptest::prelude::*;

/// Without damage there is a picture, in every layout.
#[test]
fn undamaged() {
    for layout in 0..8 {
        assert!(torture::run(&[layout]), "layout {layout}");
    }
    assert!(!torture::run(&[]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any damage at any time.
    #[test]
    fn any_damage(choice in any::<u8>(), damage in proptest::collection::vec(any::<[u8; 10]>(), 0..40)) {
        torture::run(&[&[choice], damage.concat().as_slice()].concat());
    }

    /// Damage where it matters: the list, the first goroutines, their stacks.
    #[test]
    fn aimed_damage(
        choice in any::<u8>(),
        damage in proptest::collection::vec((0u16..0x1000, 0u8..40, any::<[u8; 7]>()), 0..12),
    ) {
        let mut input = vec![choice];
        for (at, read, value) in damage {
            input.extend(at.to_le_bytes());
            input.push(read);
            input.extend(value);
        }
        torture::run(&input);
    }
}
