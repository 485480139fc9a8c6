//! One node for many tests: started when the first of them asks, torn down when the program ends, and given up when a test fails, so that
//! the next one begins with a new one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use anyhow::Result;
use plegtrace_lab::{Containerd, Generation, Knobs, Node, host, packages};
use plegtrace_tests::claim;

/// A node, or a containerd, that tests share one after the other.
pub(super) struct Shared<T> {
    start: fn() -> Result<Option<T>>,
    state: Mutex<State<T>>,
}

#[derive(Default)]
enum State<T> {
    #[default]
    Absent,
    There(T),
    /// The machine cannot have it, which was declared.
    Impossible,
}

/// What has to be ended before another one is started, and before the program ends.
trait End: Sync {
    fn end(&self);
}

/// All that were ever asked for.
static ASKED: Mutex<Vec<&'static dyn End>> = Mutex::new(Vec::new());

impl<T: Send> End for Shared<T> {
    fn end(&self) {
        let mut state = self.lock();
        if matches!(*state, State::There(_)) {
            *state = State::Absent;
        }
    }
}

impl<T: Send> Shared<T> {
    /// One that `start` starts; it gives none when the machine cannot have it, and says why.
    pub(super) const fn new(start: fn() -> Result<Option<T>>) -> Shared<T> {
        Shared { start, state: Mutex::new(State::Absent) }
    }

    /// Has a test work with it. Only one is there at a time, and a test that fails takes it along.
    pub(super) fn lend(&'static self, test: impl FnOnce(&T)) {
        host::require_root().unwrap();
        self.be_the_only_one();
        let mut lent = Lent(self.lock());
        if matches!(*lent.0, State::Absent) {
            *lent.0 = (self.start)()
                .unwrap_or_else(|error| panic!("{error:#}"))
                .map_or(State::Impossible, State::There);
        }
        if let State::There(node) = &*lent.0 {
            test(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A test that failed has left nothing in it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn be_the_only_one(&'static self) {
        static AT_EXIT: Once = Once::new();
        // SAFETY: the function is there as long as the program, and takes nothing.
        AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(end_all) }, 0));
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this =
            |other: &dyn End| std::ptr::addr_eq(std::ptr::from_ref(other), std::ptr::from_ref(self));
        for &other in asked.iter().filter(|other| !is_this(**other)) {
            other.end();
        }
        if !asked.iter().any(|other| is_this(*other)) {
            asked.push(self);
        }
    }
}

/// Statics are never dropped, and without this the lab's janitor would tear down after the end of the program, when the next one has
/// begun.
extern "C" fn end_all() {
    let asked = std::mem::take(&mut *ASKED.lock().unwrap_or_else(PoisonError::into_inner));
    for shared in asked {
        // A panic must not leave this function. What is not torn down here is left to the janitor.
        let _: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| shared.end()));
    }
}

/// In use by a test.
struct Lent<'a, T>(MutexGuard<'a, State<T>>);

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        // Here and not later: what ends while a test fails may keep its logs.
        if std::thread::panicking() && matches!(*self.0, State::There(_)) {
            *self.0 = State::Absent;
        }
    }
}

/// Starts a node for [`Shared`].
pub(super) fn node(knobs: &Knobs) -> Result<Option<Node>> {
    Node::start(knobs).map(Some)
}

/// Waits until so many pods of a node run: what was before may have cost one its container.
pub(super) fn wait_for_pods(node: &Node, count: usize) {
    claim::works("the pods of the node", || {
        Ok(node.kubelet().running_pods().is_ok_and(|pods| pods.len() == count).then_some(()))
    });
}

/// Starts a containerd for [`Shared`]. Only the packages of the suite that everything runs on must be there: that the archive has lost
/// others, or does not answer for them, is declared.
pub(super) fn containerd(generation: Generation) -> Result<Option<Containerd>> {
    if generation != Generation::default()
        && let Err(error) = packages::containerd(generation.suite())
    {
        host::declare_skip(&format!("containerd {generation}"), &error);
        return Ok(None);
    }
    Containerd::start(&Knobs { generation, pods: 0, ..Knobs::default() }).map(Some)
}
