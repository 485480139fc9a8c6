//! Names of wanted functions as patterns, and many of them matched in one pass over a function table.
//!
//! A pattern is the end of a Go name, beginning at a path element or behind a dot, because vendoring and forks change
//! the front: `pleg.(*GenericPLEG).relist` matches `k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist`. One `*`
//! may stand for letters, digits and underscores, as in `runtime/v1._RuntimeService_*_Handler`; the star of a pointer
//! receiver `(*T)` is taken literally.

use std::collections::HashMap;

/// Bytes of a pattern's tail that the index uses.
const TAIL: usize = 4;

/// One wanted name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    head: String,
    /// `Some` when there is a wildcard between head and tail.
    tail: Option<String>,
}

impl Pattern {
    /// Reads a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        // The star of a pointer receiver follows an opening parenthesis; a wildcard never does.
        let wildcard = text.match_indices('*').find(|(at, _)| !text[..*at].ends_with('('));
        match wildcard {
            Some((at, _)) => Self { head: text[..at].to_owned(), tail: Some(text[at + 1..].to_owned()) },
            None => Self { head: text.to_owned(), tail: None },
        }
    }

    /// Does the pattern match this full name?
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.tail {
            None => ends_at_boundary(name, &self.head),
            Some(tail) => name.strip_suffix(tail.as_str()).is_some_and(|front| {
                let word = front.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
                // The head may itself end in identifier characters ("_RuntimeService_"), so try it everywhere
                // inside the trailing identifier.
                (word.len()..front.len())
                    .any(|end| front.is_char_boundary(end) && ends_at_boundary(&front[..end], &self.head))
                    || ends_at_boundary(word, &self.head) && word.len() < front.len()
            }),
        }
    }

    /// The last bytes every match has; shorter than [`TAIL`] when the pattern says less.
    fn last_bytes(&self) -> &[u8] {
        let text = self.tail.as_deref().unwrap_or(&self.head).as_bytes();
        &text[text.len().saturating_sub(TAIL)..]
    }
}

/// `name` ends with `suffix`, which begins the name, a path element, or a part after a dot.
fn ends_at_boundary(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|front| {
        front.is_empty() || front.ends_with(['/', '.']) || suffix.starts_with(['/', '.'])
    })
}

/// Patterns by their last bytes, so that a name is compared with few of them.
#[derive(Debug)]
pub(crate) struct PatternSet<'p> {
    patterns: &'p [Pattern],
    by_tail: HashMap<[u8; TAIL], Vec<usize>>,
    /// Patterns too short for the index.
    loose: Vec<usize>,
}

impl<'p> PatternSet<'p> {
    pub(crate) fn new(patterns: &'p [Pattern]) -> Self {
        let mut set = Self { patterns, by_tail: HashMap::new(), loose: Vec::new() };
        for (index, pattern) in patterns.iter().enumerate() {
            match <[u8; TAIL]>::try_from(pattern.last_bytes()) {
                Ok(tail) => set.by_tail.entry(tail).or_default().push(index),
                Err(_) => set.loose.push(index),
            }
        }
        set
    }

    /// Indices of the patterns that match `name`.
    pub(crate) fn matching(&self, name: &str) -> impl Iterator<Item = usize> {
        let bytes = name.as_bytes();
        let tail = bytes.len().checked_sub(TAIL).and_then(|at| <[u8; TAIL]>::try_from(&bytes[at..]).ok());
        let indexed = tail.and_then(|tail| self.by_tail.get(&tail)).map_or(&[][..], Vec::as_slice);
        let all = indexed.iter().chain(&self.loose).copied();
        all.filter(move |index| self.patterns[*index].matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).matches(name)
    }

    /// A suffix matches at a path element or a dot, never inside a word.
    #[test]
    fn suffixes_begin_at_a_boundary() {
        let relist = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist";
        assert!(matches("pleg.(*GenericPLEG).relist", relist));
        assert!(matches("(*GenericPLEG).relist", relist));
        assert!(matches(relist, relist));
        assert!(!matches("leg.(*GenericPLEG).relist", relist));
        assert!(!matches("pleg.(*GenericPLEG).relist", &format!("{relist}.func1")));
        assert!(!matches("pleg.(*GenericPLEG).Relist", relist));
    }

    /// A wildcard is one identifier; a pointer receiver's star is none.
    #[test]
    fn wildcard_is_one_identifier() {
        let handler = "a/vendor/k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler";
        assert!(matches("runtime/v1._RuntimeService_*_Handler", handler));
        assert!(!matches("runtime/v1._RuntimeService_*_Handler", &format!("{handler}.func1")));
        assert!(!matches("runtime/v1alpha2._RuntimeService_*_Handler", handler));
        let service = "kubelet/kuberuntime.instrumentedRuntimeService.ListPodSandbox";
        assert!(matches("kuberuntime.instrumentedRuntimeService.*", service));
        assert!(!matches("kuberuntime.instrumentedRuntimeService.*", &format!("{service}.func1")));
        assert!(!matches(
            "kuberuntime.instrumentedRuntimeService.*",
            "kuberuntime.instrumentedRuntimeService."
        ));
        assert!(matches("(*instrumentedService).*", "x/server.(*instrumentedService).ExecSync"));
        assert!(matches("main.*", "main.main"));
    }

    /// The index finds what a comparison with each pattern finds.
    #[test]
    fn index_equals_comparison() {
        let patterns =
            ["main.main", "v1._RuntimeService_*_Handler", "x.*", "Tx).Commit", ".a"].map(Pattern::new);
        let set = PatternSet::new(&patterns);
        for name in ["main.main", "k/v1._RuntimeService_A_Handler", "y/x.Z", "b.(*Tx).Commit", "q.a", "a", ""]
        {
            let mut found: Vec<_> = set.matching(name).collect();
            found.sort_unstable();
            let want: Vec<_> = (0..patterns.len()).filter(|i| patterns[*i].matches(name)).collect();
            assert_eq!(found, want, "{name}");
        }
    }
}
