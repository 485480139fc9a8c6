//! Stacks in our own memory.

use super::super::code::Place;
use super::super::unwind::Return;
use super::*;
use crate::census::memory::ProcessMemory;

struct Named(Vec<&'static str>);

impl Code for Named {
    fn place(&mut self, _pc: u64) -> Option<Place> {
        None
    }

    fn returns(&self) -> Return {
        Return::Pushed
    }

    fn name(&self, function: u32) -> Option<&str> {
        self.0.get(function as usize).copied()
    }

    fn keeps_argument(&self, function: u32, n: usize) -> bool {
        n == 3 && self.name(function).is_some_and(|name| name.starts_with("keeps/"))
    }
}

const FUNCTIONS: [&str; 12] = [
    "runtime.gopark",
    "github.com/containerd/ttrpc.(*Client).dispatch",
    "x/store/container.(*statusStorage).UpdateSync",
    "x/server.(*criService).UpdateContainerResources",
    "x/instrument.(*instrumentedService).UpdateContainerResources",
    "k8s.io/cri-api/v1._RuntimeService_UpdateContainerResources_Handler",
    "k8s.io/cri-api/v1._RuntimeService_ListContainers_Handler",
    "runtime.semacquire1",
    "keeps/server.(*criService).UpdateContainerResources",
    "x/runtime/v2.loadShim",
    "x/runtime/v2.(*ShimManager).loadShims",
    "keeps/core/runtime/v2.(*ShimManager).loadShim",
];

fn me() -> ProcessMemory {
    ProcessMemory { pid: std::process::id() }
}

fn at(text: &str) -> [u64; 2] {
    [text.as_ptr() as u64, text.len() as u64]
}

fn ids(words: &[u64]) -> Vec<String> {
    sought(words, Sought::Ids)
}

fn sought(words: &[u64], sought: Sought) -> Vec<String> {
    let from = words.as_ptr() as u64;
    let spot = Spot { frame: 3, from, to: from + 8 * words.len() as u64, sought };
    let found = search(&me(), &[spot]).unwrap();
    assert!(found.iter().all(|one| one.frame == 3));
    found.into_iter().map(|one| one.id).collect()
}

/// On the stack itself, as the first field of a message, behind what protobuf keeps, and in a path.
#[test]
fn four_ways_to_an_id() {
    let id = "0123456789abcdef".repeat(4);
    let [p, n] = at(&id);
    assert_eq!(ids(&[7, p, n, 9]), [id.as_str()]);
    let message = [p, n, 0, 0, 0, 0, 0, 0];
    assert_eq!(ids(&[0, message.as_ptr() as u64]), [id.as_str()]);
    let behind = [1, 2, 3, 4, 5, p, n, 0];
    assert_eq!(ids(&[behind.as_ptr() as u64]), [id.as_str()]);
    let path = format!("/var/lib/containerd/io.containerd.grpc.v1.cri/containers/{id}/status");
    let status = [0, 0, 0, at(&path)[0], at(&path)[1], 0, 0, 0];
    let lock = status.as_ptr() as u64;
    assert_eq!(ids(&[lock]), [id.as_str()]);
    // Of a lock only its semaphores count: the receiver of a function that has returned stays on the stack.
    for semaphore in SEMAPHORES {
        assert_eq!(sought(&[1, lock + semaphore], Sought::Lock), [id.as_str()]);
    }
    assert_eq!(sought(&[lock, lock + 16, p, n], Sought::Lock), [""; 0]);
}

/// What only looks like one, ends early, is elsewhere, or lies beyond the beginning of a structure.
#[test]
fn no_ids() {
    let id = "0123456789abcdef".repeat(4);
    let upper = id.to_uppercase();
    let digest = format!("sha256:{id}");
    let late = [0, 0, 0, 0, 0, 0, 0, at(&id)[0], at(&id)[1]];
    let [p, n] = at(&id);
    let hostile = [8, 64, u64::MAX, 64, p, u64::MAX, p, n - 1, n, p];
    let words = [&hostile[..], &at(&upper), &[0], &at(&digest), &[late.as_ptr() as u64, 0]].concat();
    assert_eq!(ids(&words), [""; 0]);
    // A stack that is gone is no error.
    assert_eq!(search(&me(), &[Spot { frame: 0, from: 8, to: 4096, sought: Sought::Ids }]).unwrap(), []);
}

/// The frames of the functions that serve the request, outermost first; of a list only the lock it waits for, which is
/// that of the function further out.
#[test]
fn which_frames() {
    let code = Named(FUNCTIONS.to_vec());
    let ends = [100, 200, 300, 400, 500, 600].map(|end| 1000 + end);
    let mut about = About::default();
    let mut told = |frames: &[u32], ends: &[u64]| {
        let spots = about.spots(&code, frames, ends);
        spots.iter().map(|spot| (spot.frame, spot.from, spot.to, spot.sought)).collect::<Vec<_>>()
    };
    let update = [0, 1, 2, 3, 4, 5];
    assert_eq!(told(&update, &ends), [(4, 1400, 1532, Sought::Ids), (3, 1300, 1432, Sought::Ids)]);
    assert_eq!(told(&[0, 7, 2, 3, 6], &ends), [(2, 1100, 1232, Sought::Lock)]);
    assert_eq!(told(&[0, 7, 3, 5], &ends), [(2, 1200, 1332, Sought::Ids)], "some other lock");
    assert_eq!(told(&[0, 1, 2, 3, 4], &ends), [], "no handler, no request");
    // The walk broke off: frames without an end are not searched.
    assert_eq!(told(&update, &ends[..4]).len(), 1);
}

/// As containerd starts, the innermost function that has the bundle of a shim, with its arguments.
#[test]
fn the_frame_of_a_load() {
    let id = "a".repeat(ID);
    let bundle = [at(&id)[0], at(&id)[1], 0, 0, 0, 0, 0, 0];
    let code = Named(FUNCTIONS.to_vec());
    // A frame, its return address, context, bundle, what to do when the connection closes.
    let words = [0, 0, 0, 0, 1, 2, bundle.as_ptr() as u64, 3, 0, 0];
    let from = words.as_ptr() as u64;
    let ends = [from, from, from + 8 * 4, from + 8 * 6];
    let mut about = About::default();
    let mut told = |frames: &[u32]| about.ids(&me(), &code, frames, &ends, 0).unwrap();
    assert_eq!(told(&[0, 1, 9, 10]), [IdOnStack { frame: 2, id: id.clone() }]);
    assert_eq!(
        told(&[0, 1, 10, 4]),
        [IdOnStack { frame: 2, id: id.clone() }],
        "it asks to delete: there is no load of one"
    );
    assert_eq!(told(&[9, 0, 1, 4]), [], "the end of the innermost frame is not known");
    // What an earlier bundle left in the frame is not looked at where the argument is kept.
    let stale = "b".repeat(ID);
    let words = [at(&stale)[0], at(&stale)[1], 0, 0, 9, 1, 2, bundle.as_ptr() as u64];
    let from = words.as_ptr() as u64;
    let ends = [from, from, from + 8 * 4, from + 8 * 8];
    let kept = about.ids(&me(), &code, &[0, 1, 11, 10], &ends, 0).unwrap();
    assert_eq!(kept, [IdOnStack { frame: 2, id: id.clone() }]);
    let all = about.ids(&me(), &code, &[0, 1, 9, 10], &ends, 0).unwrap();
    assert_eq!(all.len(), 2, "it may keep it anywhere");
}

/// A function that keeps its request where its caller has room for it: what earlier requests left is not looked at.
#[test]
fn only_the_request_counts() {
    let [stale, id] = ["a", "b"].map(|digit| digit.repeat(ID));
    let [old, new] = [at(&stale), at(&id)];
    // In the heap something else may follow.
    let message = [0, new[0], new[1], 0, 0, old[0], old[1], 0];
    // A frame, its return address, receiver, context, request.
    let words = [old[0], old[1], 0, 0, 1, 2, 2, message.as_ptr() as u64, old[0], old[1]];
    let from = words.as_ptr() as u64;
    let ends = [from, from + 8 * 4, from + 8 * 4];
    let of = |function: u32, ends: &[u64]| {
        let found =
            About::default().ids(&me(), &Named(FUNCTIONS.to_vec()), &[0, function, 5], ends, 0).unwrap();
        found.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(of(8, &ends), [id.as_str()]);
    assert_eq!(of(3, &ends), [stale.as_str(), id.as_str()], "it may keep it anywhere");
    // A request without an id: that of the sandbox it makes is in the frame.
    let fresh = [old[0], old[1], 0, 0, 1, 2, 2, words.as_ptr() as u64 + 16, 0, 0];
    let from = fresh.as_ptr() as u64;
    assert_eq!(of(8, &[from, from + 8 * 4, from + 8 * 4]), [stale.as_str()]);
    // Also in a frame that is larger than what is searched.
    let mut large = vec![0; 1024];
    (large[0], large[1]) = (old[0], old[1]);
    let end = large.as_ptr() as u64 + 8 * 1000;
    assert_eq!(of(8, &[large.as_ptr() as u64, end, end]), [stale.as_str()]);
    large[1003] = message.as_ptr() as u64;
    assert_eq!(of(8, &[large.as_ptr() as u64, end, end]), [id.as_str()]);
}

/// Only so many of a kind, and of all, are searched.
#[test]
fn bounded() {
    let code = Named(FUNCTIONS.to_vec());
    let id = "a".repeat(ID);
    let words = [at(&id)[0], at(&id)[1], 0, 0];
    let from = words.as_ptr() as u64;
    let mut about = About::default();
    let (frames, ends) = ([0, 3, 5], [from, from, from + 32]);
    let mut ask = |alike| about.ids(&me(), &code, &frames, &ends, alike).unwrap();
    assert_eq!(ask(MAX_ALIKE), []);
    assert_eq!(ask(0), [IdOnStack { frame: 1, id: id.clone() }]);
    for _ in 1..MAX_SEARCHED {
        ask(0);
    }
    assert_eq!(ask(0), []);
}
