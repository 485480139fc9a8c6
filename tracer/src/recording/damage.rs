//! [`Damage`]: what of a recording could not be read.

use crate::input::LossCount;

/// What of a recording is not there, or not as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Places where something else stands than a block, or a block is damaged.
    pub places: u64,
    /// Records that are known to be missing.
    pub missing: u64,
    /// Records this version cannot read.
    pub foreign: u64,
    /// Version of the layouts of the writer, when it is another.
    pub abi: Option<u16>,
    /// There is no end: the writer was killed, or the file is cut.
    pub cut: bool,
    /// Records that the writer itself left out.
    pub left_out: u64,
    /// The beginning of the stream is missing.
    pub beheaded: bool,
    /// Something stands behind the end.
    pub trailing: bool,
    /// Reading ended with this error.
    pub unread: Option<String>,
}

impl Damage {
    /// What is missing from the report because of it, for the stream.
    #[must_use]
    pub fn losses(&self) -> Vec<LossCount> {
        let all = [
            ("missing", "records are missing where the recording is damaged", self.missing),
            ("foreign", "records in the recording are of another version", self.foreign),
            ("left_out", "records did not fit into the recording", self.left_out),
            (
                "beheaded",
                "the recording has no beginning: its node and wall-clock times are unknown",
                u64::from(self.beheaded),
            ),
            ("cut", "the recording has no end: what came later is not in it", u64::from(self.cut)),
        ];
        let entry = |(reason, sentence, count): (&str, &str, u64)| LossCount {
            stage: "recording".into(),
            reason: reason.into(),
            sentence: sentence.into(),
            count,
            is_loss: true,
        };
        all.into_iter().filter(|(_, _, count)| *count > 0).map(entry).collect()
    }

    /// The same for people, one sentence each; none when all is well.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.places > 0 {
            told.push(format!("it is damaged in {}", count(self.places, "place")));
        }
        if self.missing > 0 {
            told.push(format!("{} missing", are(self.missing)));
        }
        if self.foreign > 0 {
            let version = self.abi.map_or_else(String::new, |abi| format!(" (layout {abi})"));
            told.push(format!("{} of another version of plegtrace{version}", are(self.foreign)));
        }
        if self.left_out > 0 {
            told.push(format!("{} left out when it was written", are(self.left_out)));
        }
        if self.beheaded {
            told.push("it has no beginning: its node and wall-clock times are unknown".into());
        }
        if self.cut {
            told.push("it has no end: the writer was killed, or the file is truncated".into());
        }
        if self.trailing {
            told.push("data after its end was not read".into());
        }
        told.extend(self.unread.as_ref().map(|error| format!("reading it ended early: {error}")));
        told
    }
}

fn are(records: u64) -> String {
    let verb = if records == 1 { "is" } else { "are" };
    format!("{} {verb}", count(records, "record"))
}

fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
