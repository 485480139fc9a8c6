//! When the last list of a kubelet succeeded, by its own clock, as plegtrace reads it from outside: a Go program with the types and
//! frames of the kubelet since Kubernetes 1.36, against what it knows itself.

use std::thread::sleep;
use std::time::Duration;

use plegtrace::census::goroutines::Reader;
use plegtrace::input::Component;
use plegtrace_lab::packages::Suite;

use crate::goroutines::{Parked, RELISTS, STATIC, build, read};

/// What the two readings of the clock may differ by.
const NEAR_NS: u64 = 1_000_000_000;
/// Readings of the program; the goroutine may run just then.
const READINGS: u64 = 20;

/// The program after so many lists, and its own word for the last one.
fn check(go: (Suite, &str), lists: &str) {
    let Some(program) = build(go.0, go.1, &STATIC, &RELISTS) else { return };
    let mut parked = Parked::start(&program, &[lists]);
    let reader = Reader::open(parked.pid(), Component::Kubelet).expect("a Go program");
    let last = |parked: &mut Parked| parked.dump().trim().parse::<u64>().expect("a time");
    let mut told = 0;
    for n in 0..READINGS {
        let before = last(&mut parked);
        let found = read(&reader).last_list_ns;
        let after = last(&mut parked);
        if let Some(at) = found {
            told += 1;
            assert!(before - NEAR_NS <= at && at <= after + NEAR_NS, "{before} {at} {after}");
        }
        sleep(Duration::from_millis(5 + n % 7));
    }
    assert!(told * 2 > READINGS, "{told} of {READINGS} readings have a time");
}

/// Between two relists, and in one that hangs.
#[test]
fn of_its_own_loop() {
    for lists in ["0", "3"] {
        check((Suite::Bookworm, "1.19"), lists);
    }
}

/// Other programs have no such clock.
#[test]
fn of_no_other_program() {
    let Some(program) = build(Suite::Bookworm, "1.19", &STATIC, &RELISTS) else { return };
    let parked = Parked::start(&program, &["0"]);
    let reader = Reader::open(parked.pid(), Component::Containerd).expect("a Go program");
    assert_eq!(read(&reader).last_list_ns, None);
}

/// What other suites have.
mod others {
    use super::{Suite, check};

    /// The release that the kubelet of 1.36.2 was built with.
    #[test]
    fn of_its_own_loop_1_27() {
        for lists in ["0", "3"] {
            check((Suite::Sid, "1.27"), lists);
        }
    }
}
