//! Programs that are newer than the catalogue: where a kubelet or a runtime has none of the functions by which a kind of calls would
//! be seen, that no such call hangs is no evidence.

use super::reason::Doubt;
use crate::{
    correlate::{Snapshot, TracedState},
    input::{Component, RefusedFact},
    plan::{CATALOGUE_SOURCE, layers_of},
};

/// What is not seen of programs that run now.
pub(super) fn than_known(snapshot: &Snapshot) -> Vec<Doubt> {
    let lives = |component: Component| {
        let mut targets = snapshot.targets.iter();
        targets.any(|target| target.fact.component == component && target.state == TracedState::Live)
    };
    let doubt = |refused: &RefusedFact| {
        let component = refused.component.filter(|component| lives(*component))?;
        let unseen = refused.source == CATALOGUE_SOURCE && !is_seen(snapshot, component, &refused.what);
        unseen.then(|| Doubt::NewerThanKnown { component, calls: refused.what.clone() })
    };
    let mut doubts: Vec<Doubt> = Vec::new();
    for doubt in snapshot.refused.iter().filter_map(doubt) {
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    }
    doubts
}

/// A successor may have what the one before had not.
fn is_seen(snapshot: &Snapshot, component: Component, calls: &str) -> bool {
    layers_of(calls).any(|layer| {
        let mut on = snapshot.hooks.iter().filter(|state| state.on && state.hook.component == component);
        on.any(|state| state.hook.layer == layer)
    })
}
