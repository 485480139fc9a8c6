//! The dump that a Go program prints of its own goroutines, and whether ours says the same.
//!
//! Go leaves out of its dump what we show: functions of the runtime, wrappers that the compiler made. We leave out what
//! Go shows: inlined functions, which have no place on the stack. Both are taken away before comparing.

use std::collections::BTreeMap;

use plegtrace::input::GoroutinesFact;

/// One goroutine in a dump of Go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// In the words of the runtime: "running", "chan receive", "syscall", …
    pub state: String,
    /// Functions, innermost first; those that were inlined are marked.
    pub frames: Vec<DumpedFrame>,
    /// The dump has only the first 50 and the last 50.
    pub elided: bool,
}

/// One line of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedFrame {
    /// Full name; type arguments as `[...]`.
    pub name: String,
    /// It has no frame of its own.
    pub inlined: bool,
}

/// Go dumps no more frames than that, those of the runtime included.
const MAX_DUMPED: usize = 90;

/// Reads a dump: `runtime.Stack`, SIGQUIT, containerd's on SIGUSR1, or `/debug/pprof/goroutine?debug=2`.
#[must_use]
pub fn parse_dump(text: &str) -> BTreeMap<u64, Dumped> {
    let mut found = BTreeMap::new();
    let mut current: Option<(u64, Dumped)> = None;
    let mut created = false;
    for line in text.lines() {
        if let Some((goid, state)) = header(line) {
            found.extend(current.take());
            current = Some((goid, Dumped { state, ..Dumped::default() }));
            created = false;
        } else if line.trim().is_empty() {
            found.extend(current.take());
        } else if let Some((_, dumped)) = &mut current {
            if line.contains("frames elided...") {
                dumped.elided = true;
            } else if line.starts_with("created by ") {
                created = true;
            } else if !created && !line.starts_with(['\t', ' ']) {
                dumped.frames.extend(frame(line));
            }
        }
    }
    found.extend(current);
    found
}

/// `goroutine 12 [chan receive, 3 minutes, locked to thread]:`
fn header(line: &str) -> Option<(u64, String)> {
    let (goid, rest) = line.strip_prefix("goroutine ")?.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let inside = rest.strip_suffix("]:")?;
    let state = inside.split(',').next().unwrap_or(inside);
    Some((goid.parse().ok()?, state.trim_end_matches(" (scan)").to_owned()))
}

/// `main.(*box).send(0xc000…, 0x1)`, or `main.f(...)` for an inlined one.
fn frame(line: &str) -> Option<DumpedFrame> {
    let (name, arguments) = line.split_at(line.rfind('(')?);
    Some(DumpedFrame { name: name.to_owned(), inlined: arguments == "(...)" })
}

/// One goroutine as plegtrace saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// "waiting", "running", …
    pub state: String,
    /// In the words of the runtime.
    pub wait_reason: Option<String>,
    /// Functions, innermost first.
    pub frames: Vec<String>,
    /// Why the stack was not followed to its end.
    pub broken: Option<String>,
}

impl Seen {
    /// It stands still.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.state.as_str(), "waiting" | "syscall")
    }

    /// Go does not dump its own goroutines.
    #[must_use]
    pub fn is_of_the_runtime(&self) -> bool {
        let last = self.frames.last().map_or("", String::as_str);
        last.starts_with("runtime.") && last != "runtime.main"
    }
}

/// By id, as far as the ids were kept.
#[must_use]
pub fn by_goid(fact: &GoroutinesFact) -> BTreeMap<u64, Seen> {
    let each = fact.groups.iter().flat_map(|group| {
        let seen = Seen {
            state: group.state.clone(),
            wait_reason: group.wait_reason.clone(),
            frames: group.frames.clone(),
            broken: group.broken.clone(),
        };
        group.goids.iter().map(move |goid| (*goid, seen.clone()))
    });
    each.collect()
}

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Goroutines that were parked in all three pictures.
    pub compared: usize,
    /// What differs, to be read by people.
    pub different: Vec<String>,
    /// Goroutines that one side does not have although the other has them before and after.
    pub missing: Vec<String>,
}

impl Comparison {
    /// At least 99 of 100 are equal, and no goroutine is missing on either side.
    ///
    /// # Panics
    ///
    /// Otherwise, with what differs.
    pub fn assert_equal(&self, at_least: usize) {
        assert!(self.compared >= at_least, "only {} goroutines were compared", self.compared);
        assert!(self.missing.is_empty(), "{:#?}", self.missing);
        assert!(
            self.different.len() * 100 <= self.compared,
            "{} of {} differ:\n{}",
            self.different.len(),
            self.compared,
            self.different.join("\n")
        );
    }
}

/// Compares two dumps with what was read before the first and between them. Stacks count that stood still from
/// `before` to `after`.
#[must_use]
pub fn compare(before: &GoroutinesFact, dump: &str, after: &GoroutinesFact, last: &str) -> Comparison {
    compare_each(&by_goid(before), &parse_dump(dump), &by_goid(after), &parse_dump(last))
}

fn compare_each(
    before: &BTreeMap<u64, Seen>,
    dump: &BTreeMap<u64, Dumped>,
    after: &BTreeMap<u64, Seen>,
    last: &BTreeMap<u64, Dumped>,
) -> Comparison {
    let mut result = Comparison::default();
    for (goid, seen) in before.iter().filter(|(goid, seen)| after.get(goid) == Some(seen)) {
        match dump.get(goid) {
            // It ran in between, as the one that runs finalizers after a collection.
            Some(dumped) if last.get(goid) != Some(dumped) => {}
            None if seen.is_of_the_runtime() => {}
            None => result.missing.push(format!("only we have {goid}: {seen:?}")),
            Some(dumped) if seen.is_parked() && !matches!(dumped.state.as_str(), "running" | "runnable") => {
                result.compared += 1;
                result.different.extend(difference(*goid, seen, dumped));
            }
            Some(_) => {}
        }
    }
    for goid in dump.keys().filter(|goid| last.contains_key(goid) && !after.contains_key(goid)) {
        result.missing.push(format!("only Go has {goid}: {:?}", dump[goid]));
    }
    result
}

fn difference(goid: u64, seen: &Seen, dumped: &Dumped) -> Option<String> {
    let words = seen.wait_reason.as_ref().unwrap_or(&seen.state);
    let ours: Vec<String> =
        seen.frames.iter().filter(|name| is_shown(name)).map(|name| plain(name)).collect();
    let theirs: Vec<&DumpedFrame> = dumped.frames.iter().filter(|frame| is_shown(&frame.name)).collect();
    // Go 1.15 ends after 100 frames without saying so.
    let elided = dumped.elided || dumped.frames.len() >= MAX_DUMPED;
    let same = words == &dumped.state
        && if elided {
            // The first 50 that Go shows, of which some are inlined.
            let first = theirs.iter().take(50).filter(|frame| !frame.inlined).count().saturating_sub(1);
            seen.broken.is_some() && same_frames(&ours, &theirs, first)
        } else {
            seen.broken.is_none() && same_frames(&ours, &theirs, usize::MAX)
        };
    (!same)
        .then(|| format!("goroutine {goid}\n  ours {words} {:?} {ours:#?}\n  Go's {dumped:#?}", seen.broken))
}

/// Go elides functions of the runtime and those without a package.
fn is_shown(name: &str) -> bool {
    name.contains('.') && !name.starts_with("runtime.") && name != "panic"
}

/// `pkg.f[go.shape.int_0]` is `pkg.f[...]` in a dump.
fn plain(name: &str) -> String {
    match (name.find('['), name.rfind(']')) {
        (Some(from), Some(to)) if from < to => format!("{}[...]{}", &name[..from], &name[to + 1..]),
        _ => name.to_owned(),
    }
}

/// Walks both stacks, up to `limit` frames.
fn same_frames(ours: &[String], theirs: &[&DumpedFrame], limit: usize) -> bool {
    let (mut i, mut j, mut equal) = (0, 0, 0);
    loop {
        if equal == limit {
            return true;
        }
        match (ours.get(i), theirs.get(j)) {
            (None, None) => return true,
            (_, Some(frame)) if frame.inlined => j += 1,
            (Some(our), Some(frame)) if *our == frame.name => (i, j, equal) = (i + 1, j + 1, equal + 1),
            // Go elides wrappers; what they call may be inlined into them.
            (Some(our), _) => {
                let callees = [i.checked_sub(1).and_then(|before| ours.get(before))];
                let inlined = theirs[..j].iter().rev().take_while(|frame| frame.inlined).map(|f| &f.name);
                let wraps = |callee: &String| last_part(callee) == last_part(our);
                // A wrapper of the arguments of a `go` statement (Go 1.17 to 1.20 name it like a closure).
                let starts = i + 1 == ours.len() && j == theirs.len() && is_closure(our);
                if !is_wrapper(our) && !starts && !callees.into_iter().flatten().chain(inlined).any(wraps) {
                    return false;
                }
                i += 1;
            }
            (None, Some(_)) => return false,
        }
    }
}

fn is_wrapper(name: &str) -> bool {
    let last = last_part(name);
    last.starts_with("gowrap")
        || last.starts_with("deferwrap")
        || last.ends_with("-fm")
        || last.contains("·dwrap·")
}

fn is_closure(name: &str) -> bool {
    let last = last_part(name);
    let digits = last.strip_prefix("func").unwrap_or(last);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
goroutine 1 [running]:
main.main()
\t/x/main.go:3 +0x1

goroutine 17 [chan receive, 3 minutes, locked to thread]:
main.inner(...)
\t/x/main.go:9
main.(*box).outer(0xc000012345, {0x1, 0x2})
\t/x/main.go:8 +0x1
main.generic[...](0x1)
\t/x/main.go:7 +0x1
created by main.main in goroutine 1
\t/x/main.go:7 +0x2
";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn seen(frames: &[&str]) -> Seen {
        let wait_reason = Some("chan receive".to_owned());
        Seen { state: "waiting".to_owned(), wait_reason, frames: names(frames), broken: None }
    }

    #[test]
    fn dumps_are_read() {
        let dump = parse_dump(DUMP);
        assert_eq!(dump.keys().collect::<Vec<_>>(), [&1, &17]);
        assert_eq!(dump[&17].state, "chan receive");
        let frames: Vec<(&str, bool)> =
            dump[&17].frames.iter().map(|frame| (frame.name.as_str(), frame.inlined)).collect();
        assert_eq!(
            frames,
            [("main.inner", true), ("main.(*box).outer", false), ("main.generic[...]", false)]
        );
    }

    /// Equal but for what one side cannot have; anything else is a difference.
    #[test]
    fn differences() {
        let dumped = &parse_dump(DUMP)[&17];
        let same =
            ["runtime.gopark", "main.(*box).outer", "main.(*wrapped).outer", "main.generic[go.shape.int]"];
        assert_eq!(difference(17, &seen(&same), dumped), None);
        for wrong in [
            &["main.(*box).outer"][..],
            &["main.(*box).outer", "main.other", "main.generic[...]"],
            &["main.generic[...]", "main.(*box).outer"],
            &["main.(*box).outer", "main.generic[...]", "main.main"],
        ] {
            assert!(difference(17, &seen(wrong), dumped).is_some(), "{wrong:?}");
        }
        assert!(difference(17, &Seen { wait_reason: None, ..seen(&same) }, dumped).is_some());
        assert!(difference(17, &Seen { broken: Some(String::new()), ..seen(&same) }, dumped).is_some());
    }

    /// Whoever ran between the looks is not compared, although it stood at the same place in both of ours; whoever did
    /// not, is.
    #[test]
    fn who_ran_in_between() {
        let ours = BTreeMap::from([(17, seen(&["main.other"]))]);
        let different =
            |last| compare_each(&ours, &parse_dump(DUMP), &ours, &parse_dump(last)).different.len();
        assert_eq!([different(""), different(DUMP)], [0, 1]);
        assert_eq!(different(&DUMP.replace("chan receive", "select")), 0);
    }
}
