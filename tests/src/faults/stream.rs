//! [`Stream`]: the records of a recording, so that a test can leave some out, repeat or reorder them, and ask at any moment what was known.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use plegtrace::{
    correlate::{Correlator, Limits, Snapshot},
    decode::{Event, MonoNs, decode},
    diagnose::{Diagnosis, diagnose},
    input::{Component, Fact, Frame, GoroutineGroup},
    recording::Recording,
};

/// How often a report is asked for that becomes what it should be.
const STEP_NS: u64 = 500_000_000;

/// Records in the order in which they were read.
#[derive(Clone, Debug)]
pub struct Stream(Vec<Frame>);

/// What a record is, as far as a test tells them from each other: a kind of record of the kernel, or a fact of user space.
pub type Sort = String;

impl Stream {
    /// These records.
    #[must_use]
    pub fn of(frames: Vec<Frame>) -> Stream {
        Stream(frames)
    }

    /// All of a recording.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub fn open(file: &Path) -> Result<Stream> {
        Self::read(File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
    }

    /// The same of the bytes of a recording.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn read(source: impl Read) -> Result<Stream> {
        let (mut recording, mut frames) = (Recording::open(source)?, Vec::new());
        while recording.next_block(&mut |frame| frames.push(frame)) {}
        ensure!(recording.damage().sentences().is_empty(), "damaged: {:?}", recording.damage());
        Ok(Stream(frames))
    }

    /// The records.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// How many records there are of each sort.
    #[must_use]
    pub fn sorts(&self) -> BTreeMap<Sort, usize> {
        let mut sorts = BTreeMap::new();
        for frame in &self.0 {
            *sorts.entry(sort(frame)).or_default() += 1;
        }
        sorts
    }

    /// The same without a sort.
    #[must_use]
    pub fn without(&self, left_out: &str) -> Stream {
        Stream(self.0.iter().filter(|frame| sort(frame) != left_out).cloned().collect())
    }

    /// The same, each record of a sort twice.
    #[must_use]
    pub fn twice(&self, doubled: &str) -> Stream {
        let times = |frame: &Frame| if sort(frame) == doubled { 2 } else { 1 };
        Stream(self.0.iter().flat_map(|frame| std::iter::repeat_n(frame.clone(), times(frame))).collect())
    }

    /// The same, each record of a sort after the one that follows it.
    #[must_use]
    pub fn late(&self, delayed: &str) -> Stream {
        let mut frames = self.0.clone();
        let mut at = 0;
        while at + 1 < frames.len() {
            if sort(&frames[at]) == delayed {
                frames.swap(at, at + 1);
                at += 1;
            }
            at += 1;
        }
        Stream(frames)
    }

    /// The goroutines of a component as its first look found them.
    #[must_use]
    pub fn first_goroutines(&self, component: Component) -> Option<Vec<GoroutineGroup>> {
        self.0.iter().find_map(|frame| match decode(frame) {
            Ok(Event::Fact { fact, .. }) => match *fact {
                Fact::Goroutines(look) if look.component == component => Some(look.groups),
                _ => None,
            },
            _ => None,
        })
    }

    /// What is known at its end: the moment at which observing ended.
    #[must_use]
    pub fn end(&self) -> Snapshot {
        let (mut correlator, mut latest, mut stopped) = (Correlator::new(Limits::default()), 0, None);
        for frame in &self.0 {
            latest = latest.max(frame.header.ts_ns);
            if let Some(Event::Fact { at, fact }) = push(&mut correlator, frame)
                && matches!(*fact, Fact::Stop(_))
            {
                stopped = Some(at);
            }
        }
        correlator.snapshot(stopped.unwrap_or(MonoNs(latest)))
    }

    /// The first moment, of those half a second apart, at which the report is as `is_it` wants it.
    #[must_use]
    pub fn first(&self, is_it: impl Fn(&Snapshot, &Diagnosis) -> bool) -> Option<MonoNs> {
        let (mut correlator, mut due) = (Correlator::new(Limits::default()), None);
        let mut now = 0;
        for frame in &self.0 {
            now = now.max(frame.header.ts_ns);
            let due_ns = *due.get_or_insert(now + STEP_NS);
            if now >= due_ns {
                let snapshot = correlator.snapshot(MonoNs(due_ns));
                if is_it(&snapshot, &diagnose(&snapshot)) {
                    return Some(MonoNs(due_ns));
                }
                due = Some(due_ns + STEP_NS * ((now - due_ns) / STEP_NS + 1));
            }
            push(&mut correlator, frame);
        }
        let snapshot = self.end();
        is_it(&snapshot, &diagnose(&snapshot)).then_some(snapshot.now)
    }
}

fn push(correlator: &mut Correlator, frame: &Frame) -> Option<Event> {
    let Ok(event) = decode(frame) else {
        correlator.undecoded();
        return None;
    };
    let fact = matches!(event, Event::Fact { .. }).then(|| event.clone());
    correlator.push(event);
    fact
}

fn sort(frame: &Frame) -> Sort {
    match decode(frame) {
        Ok(Event::Fact { fact, .. }) => {
            let mut name = Name("fact ".to_owned());
            // It ends with an error where the name does.
            let _ = write!(name, "{fact:?}");
            name.0
        }
        _ => format!("record {}", frame.header.kind),
    }
}

/// The name of a variant; of what is in it, which may be thousands of stacks, nothing is written.
struct Name(Sort);

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.find(['(', ' ', '{']);
        self.0.push_str(&text[..end.unwrap_or(text.len())]);
        end.map_or(Ok(()), |_| Err(fmt::Error))
    }
}
