//! The pulse: calm on a healthy node, and never when something is late.

use plegtrace::correlate::{LastList, Limits};
use plegtrace::decode::decode;
use plegtrace::input::Layer;
use plegtrace_tests::story::{S, Story, at};

use super::{frames, pushed};

/// A pulse is calm while lists come and nothing is old, and only then.
#[test]
fn a_pulse_is_calm_on_a_healthy_node() {
    let mut story = Story::node();
    for n in 0..8 {
        story.relist(n * S, 0);
    }
    let mut correlator = pushed(Limits::default(), Vec::new());
    for frame in frames(story) {
        correlator.push(decode(&frame).unwrap());
    }
    let calm = |seconds| correlator.pulse(at(seconds * S)).calm;
    assert_eq!([8, 16, 18].map(calm), [true, true, false], "the last list is of second 7");
    assert_eq!(correlator.pulse(at(8 * S)).last_list, LastList::At(at(7 * S)), "the start of its relist");
}

/// It tells when something that is open will be late: each operation has a time of its own.
#[test]
fn a_pulse_tells_what_will_be_late() {
    let mut story = Story::node();
    story.begin(Layer::Handler, "RunPodSandbox", 7, 10, S).begin(
        Layer::Handler,
        "ListContainers",
        8,
        10,
        2 * S,
    );
    story.read_open(3 * S);
    let mut correlator = pushed(Limits::default(), Vec::new());
    for frame in frames(story) {
        correlator.push(decode(&frame).unwrap());
    }
    let left = |seconds: u64| correlator.pulse(at(seconds * S)).until_late_ns;
    assert_eq!([3, 11, 13, 40].map(left), [Some(9 * S), Some(S), Some(18 * S), None]);
}
