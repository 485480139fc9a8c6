//! How long goroutines wait, as plegtrace reads it from outside, against what the program knows: no bound ever exceeds the
//! truth, and where a collection has found a goroutine waiting, the bound is at most one collection short.
//!
//! `ages_1_19` needs bookworm's Go, those of `others` the toolchain that they are named after.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use plegtrace::census::goroutines::Reader;
use plegtrace::input::{Component, GoroutinesFact};
use plegtrace_lab::packages::Suite;

use crate::goroutines::{AGES, Mode, Parked, STATIC, build, read};

/// Readings of one program.
const READINGS: u64 = 40;
/// What a bound may fall short of the end of the collection that it rests on, and what a busy machine adds.
const SHORT_NS: u64 = 200_000_000;

/// What the program says of itself.
#[derive(Debug, Default)]
struct Truth {
    /// By goroutine: when it began to wait, each time.
    parks: BTreeMap<u64, Vec<u64>>,
    /// From before they began to after they ended.
    collections: Vec<(u64, u64)>,
}

impl Truth {
    fn parse(dump: &str) -> Self {
        let mut truth = Self::default();
        for line in dump.lines() {
            let (kind, rest) = line.split_once(' ').expect("a kind and figures");
            let figures: Vec<u64> = rest.split(' ').map(|figure| figure.parse().expect("a figure")).collect();
            match kind {
                "waiter" => drop(truth.parks.insert(figures[0], figures[1..].to_vec())),
                "collection" => truth.collections.push((figures[0], figures[1])),
                other => panic!("{other}"),
            }
        }
        truth
    }

    /// Since when a goroutine waited at this moment.
    fn parked(&self, goid: u64, at_ns: u64) -> Option<u64> {
        self.parks[&goid].iter().copied().take_while(|park| *park <= at_ns).last()
    }
}

/// Bounds that were compared; those of goroutines that a collection had found long ago, and of these the good ones.
#[derive(Debug, Default)]
struct Tally {
    bounds: u32,
    found: u32,
    good: u32,
}

impl Tally {
    fn compare(&mut self, fact: &GoroutinesFact, truth: &Truth) {
        for group in &fact.groups {
            let [goid] = group.goids[..] else { continue };
            // What ran while it was read has no one truth.
            let Some(since) = truth.parks.get(&goid).and_then(|_| truth.parked(goid, fact.at_ns)) else {
                continue;
            };
            let bound = group.parked_by_ns;
            assert!(
                bound.is_none_or(|by| by >= since),
                "{} ns too old: {group:#?}",
                since - bound.unwrap_or(0)
            );
            self.bounds += u32::from(bound.is_some());
            let rests = truth.parked(goid, fact.at_ns + fact.took_ns) == Some(since);
            let first = truth.collections.iter().find(|(begun, _)| *begun >= since);
            let Some(by) = first.map(|(_, ended)| ended + SHORT_NS).filter(|by| rests && *by <= fact.at_ns)
            else {
                continue;
            };
            self.found += 1;
            self.good += u32::from(bound.is_some_and(|bound| bound <= by));
        }
    }
}

fn check(suite: Suite, go: &str, mode: &Mode) {
    let Some(program) = build(suite, go, mode, &AGES) else { return };
    let mut parked = Parked::start(&program, &[]);
    let reader = Reader::open(parked.pid(), Component::Helper).expect("a Go program");
    let readings: Vec<GoroutinesFact> = (0..READINGS)
        .map(|n| {
            sleep(Duration::from_millis(20 + n * 37 % 90));
            read(&reader)
        })
        .collect();
    let truth = Truth::parse(&parked.dump());
    let mut tally = Tally::default();
    readings.iter().for_each(|fact| tally.compare(fact, &truth));
    eprintln!("go{go}: {tally:?}, {} collections", truth.collections.len());
    assert!(tally.bounds > 100 && tally.found > 100, "{tally:?}");
    assert!(tally.good * 100 >= tally.found * 95, "{tally:?}");
}

macro_rules! toolchains {
    ($($test:ident => $suite:ident $version:literal),* $(,)?) => {
        $(
            /// Bounds against the truth.
            #[test]
            fn $test() {
                check(Suite::$suite, $version, &STATIC);
            }
        )*
    };
}

toolchains! {
    ages_1_19 => Bookworm "1.19",
}

/// What other suites have.
mod others {
    use super::{STATIC, Suite, check};

    toolchains! {
        ages_1_15 => Bullseye "1.15",
        ages_1_21 => BookwormBackports "1.21",
        ages_1_22 => BookwormBackports "1.22",
        ages_1_23 => BookwormBackports "1.23",
        ages_1_24 => Trixie "1.24",
        ages_1_25 => TrixieBackports "1.25",
        ages_1_26 => Sid "1.26",
        ages_1_27 => Sid "1.27",
    }
}
