//! [`Top`]: what an observation leaves for the screen.

use std::{sync::Arc, time::Duration};

use super::{
    Picture, Screen,
    screen::{Shared, lock},
};
use crate::{
    correlate::Snapshot,
    diagnose::Diagnosis,
    engine::{Pipeline, Tap, Watcher},
    flame::Flame,
};

/// Between two looks for a kubelet.
const PAUSE: Duration = Duration::from_secs(2);

/// Goes along with an observation, and leaves a picture of each second.
#[derive(Debug)]
pub(crate) struct Top {
    screen: Screen,
    /// Nobody looks at it; what has ended has to go somewhere.
    flame: Flame,
}

impl Top {
    /// For this screen.
    pub(crate) fn new(screen: Screen) -> Self {
        Self { screen, flame: Flame::default() }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.screen.shared
    }
}

impl Watcher for Top {
    fn is_a_screen(&self) -> bool {
        true
    }

    fn tap(&mut self) -> Tap {
        lock(&self.shared().flight).clear();
        let shared = Arc::clone(self.shared());
        Box::new(move |frame| lock(&shared.flight).push(frame))
    }

    fn waits(&mut self, why: &str) {
        *lock(&self.shared().picture) = Picture::waiting(why);
    }

    fn pause(&self) -> Duration {
        PAUSE
    }

    fn second(&mut self, pipeline: &mut Pipeline, now_ns: u64, last: bool) {
        pipeline.collect(&mut self.flame, last);
        self.flame = Flame::default();
        let mut flight = lock(&self.screen.shared.flight);
        if flight.is_due(now_ns) {
            flight.cut(now_ns, &pipeline.preamble(now_ns));
        }
    }

    fn is_due(&self, _: u64) -> bool {
        true
    }

    fn judged(&mut self, snapshot: &Snapshot, diagnosis: &Diagnosis, _: bool) {
        *lock(&self.shared().picture) = Picture::of(snapshot, diagnosis);
    }
}
