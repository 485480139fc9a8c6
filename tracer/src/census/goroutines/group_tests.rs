//! Groups of made-up goroutines.

use super::super::code::Place;
use super::super::unwind::Return;
use super::*;

struct Named(Vec<String>);

impl Code for Named {
    fn place(&mut self, _pc: u64) -> Option<Place> {
        None
    }

    fn returns(&self) -> Return {
        Return::Pushed
    }

    fn name(&self, function: u32) -> Option<&str> {
        self.0.get(function as usize).map(String::as_str)
    }

    fn keeps_argument(&self, _function: u32, _n: usize) -> bool {
        false
    }
}

fn key(frames: &[u32]) -> Key {
    Key { state: state::WAITING, wait_reason: 0, frames: frames.to_vec(), broken: None }
}

fn member(goid: u64, since: u64) -> Member {
    let wait_since = Some(since).filter(|since| *since != 0);
    Member { goid, wait_since, fingerprint: u32::try_from(2 * goid).ok(), ids: Vec::new() }
}

fn names() -> Named {
    Named(["main.f", "main.g"].map(str::to_owned).to_vec())
}

const S: u64 = 1_000_000_000;

/// Collections that ended after each whole second up to the 120th.
fn cycles() -> Cycles {
    Cycles::of_ends((1..=120).map(|second| second * S))
}

/// The largest first; ids ascending and bounded; the longest wait counts.
#[test]
fn grouped() {
    let mut groups = Groups::new(10);
    for goid in (1..=100).rev() {
        groups.add(key(&[0, 1]), member(goid, if goid == 50 { 7 * S } else { (10 + goid) * S }));
    }
    groups.add(key(&[1]), member(500, 0));
    let (groups, left_out) = groups.finish(&names(), &Reasons::default(), &cycles(), 1 << 20);
    assert_eq!((groups.len(), left_out), (2, 0));
    assert_eq!((groups[0].count, groups[0].parked_by_ns), (100, cycles().parked_by(7 * S)));
    assert_eq!(groups[0].goids, (1..=32).collect::<Vec<u64>>());
    assert_eq!(groups[0].fingerprints, (1..=32).map(|goid| 2 * goid).collect::<Vec<u32>>(), "one for each");
    assert_eq!(groups[0].frames, ["main.f", "main.g"]);
    assert_eq!((groups[1].parked_by_ns, groups[1].state.as_str()), (None, "waiting"));
}

/// More groups than wanted, or more text: left out and counted, distinct ones once.
#[test]
fn bounded() {
    let mut groups = Groups::new(3);
    for function in [0, 0, 1, 2, 3, 3, 4, 0] {
        groups.add(key(&[function]), member(1, 0));
    }
    let (kept, left_out) = groups.finish(&names(), &Reasons::default(), &Cycles::default(), 1 << 20);
    assert_eq!((kept.len(), left_out, kept[0].count), (3, 2, 3));
    let mut groups = Groups::new(3);
    (0..3).for_each(|function| groups.add(key(&[function]), member(1, 0)));
    let room = 2 * (size_of::<String>() + "main.f".len());
    let (kept, left_out) = groups.finish(&names(), &Reasons::default(), &Cycles::default(), room);
    assert_eq!((kept.len(), left_out), (2, 1));
    // A name that never ends is cut.
    let long = Named(vec!["ä".repeat(1000)]);
    let mut groups = Groups::new(3);
    groups.add(key(&[0, 77]), member(1, 0));
    let (kept, _) = groups.finish(&long, &Reasons::default(), &Cycles::default(), 1 << 20);
    assert_eq!((kept[0].frames[0].len(), kept[0].frames[1].as_str()), (MAX_NAME, "?"));
}

/// Goroutines that are alike and about different containers are told apart; those beyond the bound stay nobody's.
#[test]
fn subjects() {
    let about = |id: String| vec![IdOnStack { frame: 0, id }];
    let mut groups = Groups::new(3);
    for goid in 1..=100 {
        groups.add(
            key(&[0]),
            Member {
                goid,
                wait_since: Some(goid * S),
                fingerprint: None,
                ids: about((goid % 2).to_string()),
            },
        );
    }
    groups.add(key(&[0]), member(101, 0));
    for goid in 200..300 {
        groups.add(
            key(&[1]),
            Member { goid, wait_since: Some(goid * S), fingerprint: None, ids: about(goid.to_string()) },
        );
    }
    let (kept, _) = groups.finish(&names(), &Reasons::default(), &Cycles::default(), 1 << 20);
    let told: Vec<(u32, usize, &str)> = kept[0]
        .subjects
        .iter()
        .map(|subject| (subject.count, subject.goids.len(), subject.ids[0].id.as_str()))
        .collect();
    assert!(kept[0].fingerprints.is_empty(), "not of all");
    assert_eq!((kept[0].count, told), (101, vec![(50, 32, "1"), (50, 32, "0")]));
    assert_eq!((kept[1].count, kept[1].subjects.len()), (100, MAX_SUBJECTS));
}
