//! containerd with a little less of a CPU than it needs (O1): each relist is slow, and none is held up.
//!
//! With less, what it is asked piles up until it answers nobody, which is another fault. What it needs differs by machine and by who
//! asks meanwhile, so the quota follows what two lists take, by a loop of our own beside the kubelet's. (For a page of its metrics the
//! kubelet asks containerd for more than for all else together.)

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use super::guard::Fault;
use super::held_off::needs;
use super::quota::{LEAST_SHARE, set_share, throttled};
use crate::cri::relist::{Loop, Relist};
use crate::node::Node;
use crate::process;

/// For lists to become slow.
const LIMIT: Duration = Duration::from_secs(90);
/// Two lists take so long at least, by the median of the last ones: well above what is normal.
const SLOW: Duration = Duration::from_millis(400);
/// When one takes so long, it is about to be held up.
const HELD_UP: Duration = Duration::from_millis(1_500);
/// So many lists are looked at.
const LAST: usize = 5;
/// Between two of them, as the kubelet has it.
const BETWEEN: Duration = Duration::from_secs(1);
/// What containerd gets of what it needs, at first.
const TOO_LITTLE: f64 = 0.8;
/// What its share is changed by while lists are not slow, and when one is about to be held up, and how often that is looked at.
const LESS: f64 = 0.93;
const MORE: f64 = 1.2;
const OFTEN: Duration = Duration::from_millis(250);

/// containerd gets so little of a CPU that each relist is slow, for as long as the fault lasts.
///
/// # Errors
///
/// The cgroup cannot be made, or relists do not become slow.
pub fn quota(node: &Node) -> Result<Fault> {
    let containerd = node.containerd();
    let share = (TOO_LITTLE * needs(containerd.pid())?).max(LEAST_SHARE);
    let fault = throttled(node, containerd.pid(), share)?;
    let group = fault.facts().path.clone().context("nothing is throttled")?;
    let lists = Loop::start(containerd.client().clone(), BETWEEN, LIMIT);
    let mut quota = Quota { group, share, lists, seen: 0, changed: Instant::now() };
    let [stop, is_slow] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (stopped, became_slow) = (Arc::clone(&stop), Arc::clone(&is_slow));
    let thread = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            thread::sleep(OFTEN);
            if quota.follow()? {
                became_slow.store(true, Ordering::Relaxed);
            }
        }
        anyhow::Ok(())
    });
    // Who follows the lists has to end before its cgroup goes.
    let follower = Fault::new(fault.facts().clone()).healed_by(move || {
        stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| anyhow!("what follows the lists has panicked"))?
    });
    let fault = follower.joined(fault);
    process::wait_for("slow lists", LIMIT, || Ok(is_slow.load(Ordering::Relaxed).then_some(())))?;
    Ok(fault)
}

/// A quota that follows what lists take.
struct Quota {
    group: PathBuf,
    /// Of one CPU.
    share: f64,
    lists: Loop,
    /// So many of them were seen when the share was changed, or left as it was, and when that was.
    seen: usize,
    changed: Instant,
}

impl Quota {
    /// Gives less while lists are not slow, and more when one is about to be held up. Says whether they are slow.
    fn follow(&mut self) -> Result<bool> {
        let ended = self.lists.relists();
        let longest = ended[self.seen..].iter().map(|relist| relist.list).chain(self.open(&ended)).max();
        let Some(longest) = longest else { return Ok(false) };
        let is_slow = median(&ended).is_some_and(|takes| takes >= SLOW);
        if longest > HELD_UP {
            self.share *= MORE;
        } else if !is_slow {
            self.share = (self.share * LESS).max(LEAST_SHARE);
        }
        (self.seen, self.changed) = (ended.len(), Instant::now());
        set_share(&self.group, self.share)?;
        Ok(is_slow)
    }

    /// How old the open list is, when it is about to be held up with the share as it is.
    fn open(&self, ended: &[Relist]) -> Option<Duration> {
        let began = ended.last().map(|last| last.start + last.list + last.status + BETWEEN);
        let age = began.unwrap_or(self.changed).max(self.changed).elapsed();
        (age > HELD_UP).then_some(age)
    }
}

/// What two lists took in the last relists.
fn median(ended: &[Relist]) -> Option<Duration> {
    let mut last: Vec<Duration> = ended.iter().rev().take(LAST).map(|relist| relist.list).collect();
    last.sort();
    (last.len() == LAST).then(|| last[LAST / 2])
}
