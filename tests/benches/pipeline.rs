//! Speed of the pure half: framed bytes → decode → correlate → snapshot, on one core. The figure to hold is one million
//! records per second. Run with `cargo bench -p plegtrace-tests`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use plegtrace::correlate::{Correlator, Limits};
use plegtrace::decode::decode;
use plegtrace::input::next_frame;
use plegtrace_tests::story::{S, Story, at};

fn main() {
    divan::main();
}

/// A node with 110 pods: each second a relist that asks for the status of two pods, and 110 exec probes.
fn node(seconds: u64) -> Story {
    let mut story = Story::node();
    for second in 0..seconds {
        story.relist(second * S, 2);
        for probe in 0..110 {
            let from = second * S + S / 2 + probe * 1_000_000;
            story.rpc("ExecSync", 1_000 + probe, from, from + 40_000_000);
        }
    }
    story
}

/// Records in, nothing asked.
#[divan::bench(args = [60, 600])]
fn records(bencher: Bencher, seconds: u64) {
    let mut story = node(seconds);
    let (bytes, count) = (story.bytes(), story.frames_mut().len());
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let mut bytes = bytes.clone();
        let mut correlator = Correlator::new(Limits::default());
        while !bytes.is_empty() {
            let frame = next_frame(&mut bytes).expect("whole records");
            correlator.push(decode(&frame).expect("sound records"));
        }
        correlator
    });
}

/// One snapshot, as the one-shot takes each second.
#[divan::bench(args = [60, 600])]
fn snapshot(bencher: Bencher, seconds: u64) {
    let mut bytes = node(seconds).bytes();
    let mut correlator = Correlator::new(Limits::default());
    while !bytes.is_empty() {
        let frame = next_frame(&mut bytes).expect("whole records");
        correlator.push(decode(&frame).expect("sound records"));
    }
    bencher.bench(|| black_box(correlator.snapshot(at(seconds * S))));
}
