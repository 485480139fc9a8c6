//! The page of a cause or of a verdict, and the list of all causes: from the rules themselves, and from what is known where no rule names
//! it yet.

mod word;

use std::io::{self, Write};

use serde::Serialize;

pub use word::Word;

use super::{
    paint::Paint,
    text::TextOptions,
    wrap::{fold_commands as fold, plain},
};
use crate::{
    diagnose::{
        Area, Proof, Rule, Verdict,
        known::{self, Known},
        rules,
    },
    words::human::duration,
};

/// Columns of a page; more is hard to read.
const WIDTH: usize = 100;
/// Stands for the proof of a cause without a rule.
const NO_RULE: &str = "no rule";

/// Causes, with a rule and without.
#[derive(Clone, Debug)]
pub struct Causes {
    rules: Vec<&'static Rule>,
    known: Vec<&'static Known>,
    words: Vec<Word>,
}

impl Causes {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self { rules: rules::ALL.to_vec(), known: known::all().collect(), words: Vec::new() }
    }

    /// The one of this id, or the verdict of this name; `None` when there is neither.
    #[must_use]
    pub fn one(id: &str) -> Option<Self> {
        let (rule, known) = (rules::by_id(id), known::by_id(id));
        let named =
            |word: &Word| word.word.replace(' ', "_").eq_ignore_ascii_case(&id.replace([' ', '-'], "_"));
        let words = Verdict::ALL.map(word::of).into_iter().filter(named).collect();
        let found = Self { rules: rule.into_iter().collect(), known: known.into_iter().collect(), words };
        (!found.rules.is_empty() || !found.known.is_empty() || !found.words.is_empty()).then_some(found)
    }

    /// Writes the page of each.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn pages(&self, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
        self.rules.iter().try_for_each(|rule| page(rule, options, out))?;
        self.known.iter().try_for_each(|known| known_page(known, options, out))?;
        self.words.iter().try_for_each(|word| word_page(word, options, out))
    }

    /// Writes one line for each.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn list(&self, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
        let paint = Paint { colour: options.colour };
        let mut line = |id: &str, area: Area, proof: &str, title: &str| {
            let (id, proof) = (format!("{id:<4}"), format!("{proof:<8}"));
            writeln!(out, "{} {:<17} {}{title}", paint.title(&id), area.name(), paint.faint(&proof))
        };
        for rule in &self.rules {
            line(rule.id, rule.area, rule.proof.name(), rule.title)?;
        }
        self.known.iter().try_for_each(|known| line(known.id, known.area, NO_RULE, known.title))
    }

    /// Writes one JSON list.
    ///
    /// # Errors
    ///
    /// Writing fails.
    pub fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.words.is_empty() {
            let json = serde_json::to_string_pretty(&self.words).map_err(io::Error::other)?;
            return writeln!(out, "{json}");
        }
        let rules = self.rules.iter().map(|rule| doc(rule));
        let docs: Vec<Doc> = rules.chain(self.known.iter().map(|known| known_doc(known))).collect();
        let json = serde_json::to_string_pretty(&docs).map_err(io::Error::other)?;
        writeln!(out, "{json}")
    }
}

fn page(rule: &Rule, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut sheet = Sheet::new(options, out);
    let page = &rule.page;
    let age = match rule.min_age_ns {
        0 => "at once".to_owned(),
        ns => format!("from {} on", duration(ns)),
    };
    let proof = match rule.proof {
        Proof::Real => "reproduced in tests with the real programs",
        Proof::Rebuilt => "reproduced in tests with a real program rebuilt with the defect",
        Proof::Scripted => "reproduced in tests with the real programs, one of them played by a script",
        Proof::Story => "not reproduced with the real programs: never more than medium confidence",
    };
    let about = format!("{}; recognised {age}; {proof}", rule.area.name());
    sheet.head(rule.id, rule.title, &about)?;
    sheet.paragraph("How it happens", page.mechanism)?;
    sheet.paragraph("Versions", page.versions)?;
    sheet.list("What logs and conditions say", page.symptoms)?;
    sheet.list("What plegtrace must see to report it", page.evidence)?;
    sheet.list("What rules it out", page.excluded_by)?;
    sheet.list("What to do", page.next)?;
    sheet.paragraph("The trap", page.trap)?;
    sheet.paragraph("Sources", &page.sources.join(", "))
}

fn known_page(known: &Known, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut sheet = Sheet::new(options, out);
    let about = format!("{}; plegtrace has no rule for it yet and does not report it", known.area.name());
    sheet.head(known.id, known.title, &about)?;
    sheet.paragraph("Versions", known.versions)?;
    sheet.list("What logs and conditions say", known.symptoms)?;
    sheet.paragraph("How to recognise it by hand", known.look)?;
    sheet.paragraph("What to do", known.next)?;
    sheet.paragraph("Sources", &known.sources.join(", "))
}

fn word_page(word: &Word, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut sheet = Sheet::new(options, out);
    sheet.head(word.word, word.title, &format!("a verdict; exit code {}", word.exit))?;
    sheet.list("It is said when", word.said)?;
    sheet.paragraph("It does not say", word.not_said)?;
    sheet.list("What to do", word.next)
}

/// A page being written.
struct Sheet<'a> {
    paint: Paint,
    width: usize,
    out: &'a mut dyn Write,
}

impl<'a> Sheet<'a> {
    fn new(options: &TextOptions, out: &'a mut dyn Write) -> Self {
        Self { paint: Paint { colour: options.colour }, width: options.width.clamp(60, WIDTH), out }
    }

    fn head(&mut self, id: &str, title: &str, about: &str) -> io::Result<()> {
        writeln!(self.out, "{}  {title}", self.paint.title(id))?;
        writeln!(self.out, "{}", self.paint.faint(about))
    }

    /// Nothing when there is no text.
    fn paragraph(&mut self, title: &str, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "\n{}", self.paint.title(title))?;
        fold(text, self.width - 2).iter().try_for_each(|line| writeln!(self.out, "  {line}"))
    }

    fn list(&mut self, title: &str, texts: &[&str]) -> io::Result<()> {
        if texts.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "\n{}", self.paint.title(title))?;
        for text in texts {
            for (place, line) in fold(text, self.width - 4).iter().enumerate() {
                writeln!(self.out, "  {} {line}", if place == 0 { "-" } else { " " })?;
            }
        }
        Ok(())
    }
}

/// The same as JSON: a list of objects, one per cause.
#[derive(Serialize)]
struct Doc {
    id: &'static str,
    title: &'static str,
    area: &'static str,
    /// Does plegtrace report it?
    reported: bool,
    proof: Option<&'static str>,
    min_age_ns: Option<u64>,
    mechanism: Option<&'static str>,
    versions: &'static str,
    symptoms: &'static [&'static str],
    evidence: &'static [&'static str],
    /// How to recognise it by hand, where plegtrace does not.
    look: Option<&'static str>,
    excluded_by: &'static [&'static str],
    next: Vec<String>,
    trap: Option<String>,
    sources: &'static [&'static str],
}

fn doc(rule: &'static Rule) -> Doc {
    let page = &rule.page;
    Doc {
        id: rule.id,
        title: rule.title,
        area: rule.area.name(),
        reported: true,
        proof: Some(rule.proof.name()),
        min_age_ns: Some(rule.min_age_ns),
        mechanism: Some(page.mechanism),
        versions: page.versions,
        symptoms: page.symptoms,
        evidence: page.evidence,
        look: None,
        excluded_by: page.excluded_by,
        next: page.next.iter().map(|text| plain(text)).collect(),
        trap: Some(plain(page.trap)),
        sources: page.sources,
    }
}

fn known_doc(known: &'static Known) -> Doc {
    Doc {
        id: known.id,
        title: known.title,
        area: known.area.name(),
        reported: false,
        proof: None,
        min_age_ns: None,
        mechanism: None,
        versions: known.versions,
        symptoms: known.symptoms,
        evidence: &[],
        look: Some(known.look),
        excluded_by: &[],
        next: vec![plain(known.next)],
        trap: None,
        sources: known.sources,
    }
}
