//! Who waits for whom, as data: one party a link, from the relist down to what does not move.

use plegtrace::correlate::Age;
use plegtrace::diagnose::{Link, diagnose};
use plegtrace::input::Component;
use plegtrace_tests::found::{lists, process, relist, stopped, update};
use plegtrace_tests::story::{CONTAINERD, KUBELET, S};

use super::{SHIM, seen_twice};

fn parties(links: &[Link]) -> Vec<(&str, Option<u32>, usize, bool)> {
    links.iter().map(|link| (link.name.as_str(), link.pid, link.depth, link.is_end)).collect()
}

/// The lock hostage: each party once, each one deeper than who waits for it, and only the last one is the end.
#[test]
fn from_the_relist_to_the_stopped_shim() {
    let shim = stopped(process(Component::Shim, SHIM, 1, 0));
    let snapshot = seen_twice(6 * S, &[shim], &[update(), lists()], &[relist()]);
    let chain = diagnose(&snapshot).chain;
    assert_eq!(
        parties(&chain),
        [
            ("kubelet", Some(KUBELET), 0, false),
            ("containerd", Some(CONTAINERD), 1, false),
            ("containerd", Some(CONTAINERD), 2, false),
            ("shim", Some(SHIM), 3, true),
        ]
    );
    let words: Vec<&str> = chain.iter().map(|link| link.words.as_str()).collect();
    assert_eq!(words[0], "relist, in ListContainers");
    assert!(words[1].starts_with("3 ListContainers, for a container's status lock"), "{words:?}");
    assert!(words[2].starts_with("UpdateContainerResources holds it, for a shim"), "{words:?}");
    assert_eq!(words[3], "stopped (state T)");
    assert!(matches!(chain[2].age, Some(Age { ns, .. }) if ns > 0), "{chain:?}");
}

/// Where nothing is stuck there is no chain.
#[test]
fn a_healthy_node_has_none() {
    let shim = process(Component::Shim, SHIM, 1, 0);
    assert_eq!(diagnose(&seen_twice(6 * S, &[shim], &[], &[])).chain, []);
}
