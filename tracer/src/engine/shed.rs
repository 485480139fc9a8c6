//! Says which probes came off because the node hit them too often.

use super::Observation;
use crate::words::human;

impl Observation {
    /// Says so of those that had it happen since this was asked last.
    pub(super) fn tell_shed(&mut self) {
        let Some(live) = self.live.as_mut() else { return };
        if let Some((calls, budget)) = live.take_wire_off() {
            self.refuse("wire", &wire_came_off(calls, budget));
        }
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

fn wire_came_off(calls: u64, budget: u64) -> String {
    format!(
        "this node makes {} system calls a second, and {} are allowed: the probes on them were detached, and requests on \
         sockets are unknown from then on",
        human::count(calls),
        human::count(budget)
    )
}
