//! Causes that no rule names yet: what is known about them, for whoever looks for them by hand. An id moves from here to
//! `rules` when plegtrace learns to recognise its cause, and stays the same.

mod bus;
mod host;
mod runtime;
mod work;

use super::Area;

/// A cause without a rule.
#[derive(Debug)]
pub struct Known {
    /// For ever the same; never given to another cause.
    pub id: &'static str,
    /// What happens, in one sentence without a subject of this node.
    pub title: &'static str,
    /// Where the cause lies.
    pub area: Area,
    /// Who is affected, and since when it is mended; empty when nobody knows.
    pub versions: &'static str,
    /// What logs and conditions say, word by word.
    pub symptoms: &'static [&'static str],
    /// How to recognise it by hand.
    pub look: &'static str,
    /// What to do.
    pub next: &'static str,
    /// Where it was reported or read.
    pub sources: &'static [&'static str],
}

/// All of them, by area.
pub fn all() -> impl Iterator<Item = &'static Known> {
    [runtime::KNOWN, work::KNOWN, bus::KNOWN, host::KNOWN].into_iter().flatten()
}

/// The cause of an id, whatever the case of its letter.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Known> {
    all().find(|known| known.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::diagnose::rules;

    /// An id has one meaning: no two causes share one, and what has a rule is not listed here as well.
    #[test]
    fn ids_are_unique() {
        let mut seen: BTreeSet<&str> = rules::ALL.iter().map(|rule| rule.id).collect();
        for known in all() {
            assert!(seen.insert(known.id), "{} twice", known.id);
            assert!(by_id(&known.id.to_lowercase()).is_some());
        }
    }

    /// Each tells how to recognise it and what to do, in sentences.
    #[test]
    fn each_says_what_to_do() {
        for known in all() {
            for text in [known.title, known.look, known.next] {
                assert!(text.len() > 10 && !text.ends_with('.'), "{}: {text:?}", known.id);
            }
            assert!(!known.sources.is_empty() || known.versions.is_empty(), "{}", known.id);
        }
    }
}
