//! Says which programs had their probes on the Go scheduler taken off.

use super::Observation;

impl Observation {
    /// Says so of those that had it happen since this was asked last.
    pub(super) fn tell_shed(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        let (shed, budget) = live.take_shed();
        if shed.is_empty() {
            return;
        }
        for over in shed {
            self.probes.parks_came_off(over, budget);
        }
        let mode = live.mode();
        self.pass_on_facts(mode);
    }
}
