//! Recordings of real stalls, made once on a real node, give the reports of the golden files. `cargo xtask bless` accepts
//! new reports, `cargo xtask bless --record` makes new recordings.

use std::fs;

use plegtrace::{
    commands,
    diagnose::{Verdict, diagnose},
    recording::Damage,
};
use plegtrace_tests::{
    golden,
    recordings::{self, FAULTS, MOST, json_of, text_of},
};

/// Each fault of the list has a recording that can be read here, whole, and a report that is as it was.
#[test]
fn reports_of_real_stalls() {
    let mut wrong = Vec::new();
    for kind in FAULTS {
        let (name, path) = (recordings::name(kind), recordings::folder().join(recordings::file(kind)));
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes.len() as u64 <= MOST, "{name}: {} bytes", bytes.len());
        let replayed = commands::replay(bytes.as_slice()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(replayed.damage, Damage::default(), "{name}");
        assert_eq!(diagnose(&replayed.snapshot).verdict, Verdict::Stall, "{name}");
        let text = text_of(&replayed.snapshot, false).unwrap();
        // All of them are compared before the first difference is told.
        wrong.extend(
            std::panic::catch_unwind(|| golden::check(&format!("recordings/{name}.txt"), &text)).err(),
        );
    }
    assert!(wrong.is_empty(), "{} of {} reports differ", wrong.len(), FAULTS.len());
}

/// The same recording gives the same reports every time: nothing of them hangs on chance.
#[test]
fn reports_do_not_vary() {
    for kind in FAULTS {
        let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
        let report = || {
            let snapshot = commands::replay(bytes.as_slice()).unwrap().snapshot;
            (text_of(&snapshot, true).unwrap(), json_of(&snapshot).unwrap())
        };
        let first = report();
        for _ in 0..8 {
            assert!(report() == first, "{}", recordings::name(kind));
        }
    }
}

/// Cut anywhere or with any byte wrong, a recording of real life never leads to "healthy" nor to a panic.
#[test]
fn damage_is_never_health() {
    let bytes = fs::read(recordings::folder().join(recordings::file(FAULTS[0]))).unwrap();
    let step = bytes.len() / 150 + 1;
    for at in (0..bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        for case in [&bytes[..at], &damaged] {
            let Ok(replayed) = commands::replay(case) else { continue };
            assert_ne!(diagnose(&replayed.snapshot).verdict, Verdict::Healthy, "at {at}");
            assert!(!replayed.damage.sentences().is_empty(), "at {at}");
            text_of(&replayed.snapshot, true).unwrap();
        }
    }
}
