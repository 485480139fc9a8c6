//! Everything that tests need, fetched and built before the first of them runs: `plan` says what, `record` notes which
//! versions it was.
//!
//! A mirror may hiccup for seconds, so each download is tried three times. What bookworm gives must be there. Other suites
//! move and end without us: what they no longer have is a declared skip here, and in the tests that want it.

mod plan;
mod record;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::packages::{self, Suite};
use crate::{cache, host};

/// Before the second try, and before the third.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

/// What is to be had, from which suite, and how.
struct Step {
    name: String,
    /// None: what the machine itself installs.
    suite: Option<Suite>,
    make: Box<dyn Fn() -> Result<()> + Send>,
}

impl Step {
    fn new(name: &str, suite: Suite, make: impl Fn() -> Result<()> + Send + 'static) -> Step {
        Step { name: name.to_owned(), suite: Some(suite), make: Box::new(make) }
    }

    /// Whether tests cannot do without it.
    fn is_needed(&self) -> bool {
        matches!(self.suite, None | Some(Suite::Bookworm))
    }

    /// Does it, with one more try after each of `pauses`.
    fn take(&self, pauses: &[Duration]) -> Option<Missing> {
        let error = persist(&self.name, pauses, &self.make).err()?;
        let (name, reason) = (self.name.clone(), one_line(&error));
        Some(Missing { name, reason, is_needed: self.is_needed(), is_gone: packages::Error::is_gone(&error) })
    }
}

/// What could not be had.
#[derive(Debug)]
struct Missing {
    name: String,
    reason: String,
    is_needed: bool,
    /// It has left the archive.
    is_gone: bool,
}

/// Fetches and builds what the gate needs, or with `all` what any test needs, and notes the versions.
///
/// # Errors
///
/// When something that bookworm or the machine's own archive has to give cannot be had; all of it is named.
pub fn run(all: bool) -> Result<()> {
    let began = Instant::now();
    settle(&together(by_suite(plan::downloads(all)), &PAUSES))?;
    host::progress(&format!("downloads are complete after {:.0?}", began.elapsed()));
    // What is built was downloaded before: another try would end as the first.
    settle(&together(plan::builds(all), &[]))?;
    record::write(&cache::root()?)?;
    host::progress(&format!("complete after {:.0?}", began.elapsed()));
    Ok(())
}

/// Lists of steps, each list beside the others.
fn together(lists: Vec<Vec<Step>>, pauses: &[Duration]) -> Vec<Missing> {
    thread::scope(|scope| {
        let lanes: Vec<_> =
            lists.into_iter().map(|steps| scope.spawn(move || one_by_one(&steps, pauses))).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("steps give errors")).collect()
    })
}

/// Once waiting was in vain, the mirror has more than a hiccup: what follows is tried once.
fn one_by_one(steps: &[Step], pauses: &[Duration]) -> Vec<Missing> {
    let mut missing: Vec<Missing> = Vec::new();
    for step in steps {
        let is_hopeless = missing.iter().any(|missing| !missing.is_gone);
        missing.extend(step.take(if is_hopeless { &[] } else { pauses }));
    }
    missing
}

/// One list for each suite: apt asks each on its own, and waiting for one is no reason to wait for another.
fn by_suite(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut lists: BTreeMap<Option<Suite>, Vec<Step>> = BTreeMap::new();
    for step in steps {
        lists.entry(step.suite).or_default().push(step);
    }
    lists.into_values().collect()
}

/// What has left the archive is not asked for again.
fn persist(name: &str, pauses: &[Duration], make: impl Fn() -> Result<()>) -> Result<()> {
    for pause in pauses {
        match make() {
            Err(error) if !packages::Error::is_gone(&error) => {
                let (reason, seconds) = (one_line(&error), pause.as_secs());
                host::progress(&format!("{name}: {reason}; trying again in {seconds} s"));
                thread::sleep(*pause);
            }
            done => return done,
        }
    }
    make()
}

fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Declares what tests can do without as skipped; anything else is an error.
fn settle(missing: &[Missing]) -> Result<()> {
    for Missing { name, reason, .. } in missing.iter().filter(|missing| !missing.is_needed) {
        host::declare_skip(&format!("fetch {name}"), &anyhow::anyhow!("{reason}"));
    }
    let needed = missing.iter().filter(|missing| missing.is_needed);
    let needed: Vec<String> = needed.map(|it| format!("{}: {}", it.name, it.reason)).collect();
    ensure!(
        needed.is_empty(),
        "tests need what cannot be had:\n  {}\ncheck the network and the mirror (another one: \
         PLEGTRACE_DEBIAN_MIRROR=http://MIRROR/debian), then do it again: what is there already is kept",
        needed.join("\n  ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;

    use super::*;

    const AT_ONCE: [Duration; 2] = [Duration::ZERO; 2];

    fn failing(suite: Suite) -> Step {
        Step::new("it", suite, || bail!("no\n  route"))
    }

    #[test]
    fn a_hiccup_is_outlived() {
        let tries = Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { bail!("reset by peer") } else { Ok(()) }
        };
        persist("it", &AT_ONCE, third).unwrap();
        assert_eq!(tries.get(), 3);
    }

    #[test]
    fn what_is_gone_is_asked_for_once() {
        let tries = Cell::new(0);
        let gone = || {
            tries.set(tries.get() + 1);
            Err(packages::Error::Gone { what: "it".to_owned() }.into())
        };
        persist("it", &AT_ONCE, gone).unwrap_err();
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_mirror_that_is_away_is_waited_for_once() {
        let tries = std::sync::Arc::new(AtomicU32::new(0));
        let step = |name| {
            let tries = tries.clone();
            Step::new(name, Suite::Sid, move || {
                tries.fetch_add(1, Ordering::Relaxed);
                bail!("no route")
            })
        };
        assert_eq!(one_by_one(&[step("one"), step("two")], &AT_ONCE).len(), 2);
        assert_eq!(tries.load(Ordering::Relaxed), 3 + 1);
    }

    #[test]
    fn only_what_bookworm_gives_must_be_there() {
        let lists = by_suite(vec![failing(Suite::Sid), failing(Suite::Bookworm), failing(Suite::Sid)]);
        assert_eq!(lists.len(), 2);
        let (needed, others): (Vec<_>, Vec<_>) =
            together(lists, &[]).into_iter().partition(|missing| missing.is_needed);
        assert_eq!((needed.len(), others.len()), (1, 2));
        let error = settle(&needed).unwrap_err().to_string();
        assert!(error.contains("it: no; route") && error.contains("PLEGTRACE_DEBIAN_MIRROR"), "{error}");
    }

    #[test]
    fn the_plans_have_different_names() {
        for all in [false, true] {
            let steps = plan::downloads(all).into_iter().chain(plan::builds(all).into_iter().flatten());
            let mut names: Vec<String> = steps.map(|step| step.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "a skip names one step");
        }
    }
}
