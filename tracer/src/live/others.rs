//! Clients of the runtime that are not traced: who they are.

use std::collections::{BTreeSet, HashMap};

use plegtrace_common::wire::request::MAX_CLIENTS;

use crate::{
    census,
    input::{ClientFact, OpenMessageFact},
};

/// What was told of them.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Whose requests ended since the last time.
    asked: BTreeSet<u32>,
    /// Names that were told.
    told: HashMap<u32, String>,
    /// Some had requests open the last time.
    had_open: bool,
}

impl Others {
    /// A request of this process has ended. Is it somebody else's? The census asks, too.
    pub(super) fn ended(&mut self, pid: u32) -> bool {
        let is_other = !census::is_our_child(pid);
        if is_other {
            self.asked.insert(pid);
        }
        is_other
    }

    /// The names that are new, with those who have requests `open` now; `None` when there is nothing to say.
    pub(super) fn tell(
        &mut self,
        open: &[OpenMessageFact],
        name: impl Fn(u32) -> String,
    ) -> Option<Vec<ClientFact>> {
        let mut asked = std::mem::take(&mut self.asked);
        asked.extend(open.iter().map(|request| request.asker));
        let had_open = std::mem::replace(&mut self.had_open, !open.is_empty());
        if asked.is_empty() && !had_open {
            return None;
        }
        if self.told.len() + asked.len() > MAX_CLIENTS as usize {
            // Said once more is no harm.
            self.told.clear();
        }
        let mut clients = Vec::new();
        for pid in asked {
            let name = name(pid);
            if self.told.get(&pid) != Some(&name) {
                self.told.insert(pid, name.clone());
                clients.push(ClientFact { pid, name });
            }
        }
        Some(clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is new is told once, and again under another name; that nothing is open any more is said, too.
    #[test]
    fn names_are_told_once() {
        let mut others = Others::default();
        let open = |pid| OpenMessageFact { asker: pid, ..OpenMessageFact::default() };
        let named = |others: &mut Others, open: &[OpenMessageFact], name: &str| {
            let told = others.tell(open, |_| name.to_owned())?;
            Some(told.into_iter().map(|client| (client.pid, client.name)).collect::<Vec<_>>())
        };
        assert_eq!(named(&mut others, &[], "a"), None);
        others.ended(7);
        others.ended(7);
        assert_eq!(named(&mut others, &[open(9)], "a"), Some(vec![(7, "a".to_owned()), (9, "a".to_owned())]));
        others.ended(7);
        assert_eq!(named(&mut others, &[], "a"), Some(vec![]));
        assert_eq!(named(&mut others, &[], "a"), None);
        others.ended(7);
        assert_eq!(named(&mut others, &[], "b"), Some(vec![(7, "b".to_owned())]));
    }
}
