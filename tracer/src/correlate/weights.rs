//! [`Memory`]: facts are bounded by what they take, not only by their number. On a node their makers bound them; a recording may have been
//! written by anybody.

use super::{Correlator, limits::Limits};
use crate::input::{Command, ContainerFact, Fact, Weight};

/// Longest text that a fact of ours can have, bytes: two paths, and what is said of them.
const MAX_TEXT: usize = 3 * 4096;
/// Longest id or name of a container, a pod or a namespace, bytes: they have 253 characters at most, and are copied to all that concerns
/// them.
const MAX_NAME: usize = 1024;
/// What is kept is weighed again after so much of its bound was refused.
const ONE_IN: usize = 4;

/// How much of the memory for facts is taken.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// No more than this, bytes: what was kept when it was weighed last, and all that has come since.
    most: usize,
    /// What was refused since then, bytes.
    refused: usize,
}

impl Memory {
    /// Is there room for so much more? `kept` weighs all that is kept, which is not asked for each time.
    fn takes(&mut self, bytes: usize, limits: &Limits, kept: impl FnOnce() -> usize) -> bool {
        let fits = |most: usize| most.saturating_add(bytes) <= limits.fact_bytes;
        if !fits(self.most) && (self.refused == 0 || self.refused > limits.fact_bytes / ONE_IN) {
            (self.most, self.refused) = (kept(), 0);
        }
        let fits = fits(self.most);
        let sum = if fits { &mut self.most } else { &mut self.refused };
        *sum = sum.saturating_add(bytes);
        fits
    }
}

impl Correlator {
    /// May this fact be kept?
    pub(super) fn has_room_for(&mut self, fact: &Fact) -> bool {
        let weight = Weight::of(fact);
        if weight.longest > MAX_TEXT || !has_short_names(fact) {
            return false;
        }
        // A loss is kept twice: as it was told, and when it grew last.
        let copies = if matches!(fact, Fact::Loss { .. }) { 2 } else { 1 };
        let bytes = weight.bytes.saturating_mul(copies);
        let mut memory = std::mem::take(&mut self.memory);
        let takes = memory.takes(bytes, &self.limits, || self.fact_bytes());
        self.memory = memory;
        // The end of a stream, and what was lost before it, are small, and say how all else is to be read.
        takes || matches!(fact, Fact::Stop(_))
    }

    /// What the facts that are kept take, about, bytes.
    #[must_use]
    pub fn fact_bytes(&self) -> usize {
        self.node.bytes()
            + self.census.bytes()
            + self.processes.bytes()
            + self.parks.bytes()
            + self.messages.bytes()
            + self.requests_on_wire.bytes()
            + self.docker.bytes()
            + self.other_clients.bytes()
            + self.bus.bytes()
    }
}

/// Are the names that are copied no longer than those that are told on a node?
fn has_short_names(fact: &Fact) -> bool {
    let short = |container: &ContainerFact| Weight::of(container).longest <= MAX_NAME;
    let short_text = |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= MAX_NAME);
    match fact {
        Fact::Command(fact) => fact.command.is_short(),
        Fact::Processes(reading) => {
            reading.processes.iter().filter_map(|entry| entry.known.as_ref()).all(|known| {
                let names = [&known.container, &known.under].into_iter().all(short_text);
                names && known.command.as_ref().is_none_or(Command::is_short)
            })
        }
        Fact::Process(process) => {
            process.container.iter().all(short) && process.command.as_ref().is_none_or(Command::is_short)
        }
        Fact::Census(round) => {
            let said = round.says.iter().flat_map(|says| &says.containers).map(|state| &state.container);
            round.containers.iter().chain(said).all(short)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What is kept is weighed when there seems to be no room, and not again for each fact that is refused.
    #[test]
    fn weighed_now_and_then() {
        let limits = Limits { fact_bytes: 100, ..Limits::default() };
        let (mut memory, weighed) = (Memory::default(), Cell::new(0));
        let mut takes = |bytes: usize, kept: usize| {
            memory.takes(bytes, &limits, || {
                weighed.set(weighed.get() + 1);
                kept
            })
        };
        assert!(takes(60, 0) && takes(40, 0), "there is room");
        assert!(takes(30, 70), "some of it is gone");
        assert!(!takes(10, 99));
        let refused = (0..20).filter(|_| !takes(2, 99)).count();
        assert_eq!((refused, weighed.get()), (20, 3));
        assert!((0..10).any(|_| takes(2, 50)), "there is room again");
    }

    /// Nothing is so large that it wraps.
    #[test]
    fn whatever_its_size() {
        let limits = Limits { fact_bytes: usize::MAX, ..Limits::default() };
        let mut memory = Memory::default();
        assert!(memory.takes(usize::MAX, &limits, || 0) && memory.takes(usize::MAX, &limits, || 0));
    }
}
