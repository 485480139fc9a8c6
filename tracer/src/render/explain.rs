//! The page of a cause, and the list of all, from the rules themselves.

use std::io::{self, Write};

use serde::Serialize;

use super::{
    paint::Paint,
    text::{TextOptions, fold},
};
use crate::{
    diagnose::{Proof, Rule},
    words::human::duration,
};

/// Columns of a page; more is hard to read.
const WIDTH: usize = 100;

/// Writes the page of one cause.
///
/// # Errors
///
/// Writing fails.
pub fn page(rule: &Rule, options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { colour: options.colour };
    let width = options.width.clamp(60, WIDTH);
    let page = &rule.page;
    writeln!(out, "{}  {}", paint.title(rule.id), rule.title)?;
    let age = match rule.min_age_ns {
        0 => "at once".to_owned(),
        ns => format!("from {} on", duration(ns)),
    };
    let proof = match rule.proof {
        Proof::Real => "reproduced in tests with the real programs",
        Proof::Rebuilt => "reproduced in tests with a real program rebuilt with the defect",
        Proof::Story => "not reproduced with the real programs: never more than medium confidence",
    };
    writeln!(out, "{}", paint.faint(&format!("{}; recognised {age}; {proof}", rule.area.name())))?;
    let paragraph = |out: &mut dyn Write, title: &str, text: &str| -> io::Result<()> {
        writeln!(out, "\n{}", paint.title(title))?;
        fold(text, width - 2).iter().try_for_each(|line| writeln!(out, "  {line}"))
    };
    let list = |out: &mut dyn Write, title: &str, texts: &[&str]| -> io::Result<()> {
        if texts.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", paint.title(title))?;
        for text in texts {
            for (place, line) in fold(text, width - 4).iter().enumerate() {
                writeln!(out, "  {} {line}", if place == 0 { "-" } else { " " })?;
            }
        }
        Ok(())
    };
    paragraph(out, "How it happens", page.mechanism)?;
    paragraph(out, "Versions", page.versions)?;
    list(out, "What logs and conditions say", page.symptoms)?;
    list(out, "What plegtrace must see to report it", page.evidence)?;
    list(out, "What rules it out", page.excluded_by)?;
    list(out, "What to do", page.next)?;
    paragraph(out, "The trap", page.trap)?;
    paragraph(out, "Sources", &page.sources.join(", "))
}

/// Writes one line per cause.
///
/// # Errors
///
/// Writing fails.
pub fn list(rules: &[&Rule], options: &TextOptions, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { colour: options.colour };
    for rule in rules {
        let (id, proof) = (format!("{:<4}", rule.id), format!("{:<8}", rule.proof.name()));
        writeln!(out, "{} {:<17} {}{}", paint.title(&id), rule.area.name(), paint.faint(&proof), rule.title)?;
    }
    Ok(())
}

/// The same as JSON: a list of objects, one per cause.
#[derive(Serialize)]
struct Doc {
    id: &'static str,
    title: &'static str,
    area: &'static str,
    proof: &'static str,
    min_age_ns: u64,
    mechanism: &'static str,
    versions: &'static str,
    symptoms: &'static [&'static str],
    evidence: &'static [&'static str],
    excluded_by: &'static [&'static str],
    next: &'static [&'static str],
    trap: &'static str,
    sources: &'static [&'static str],
}

/// Writes the causes as one JSON list.
///
/// # Errors
///
/// Writing fails.
pub fn json(rules: &[&'static Rule], out: &mut dyn Write) -> io::Result<()> {
    let docs: Vec<Doc> = rules.iter().map(|rule| doc(rule)).collect();
    let json = serde_json::to_string_pretty(&docs).map_err(io::Error::other)?;
    writeln!(out, "{json}")
}

fn doc(rule: &'static Rule) -> Doc {
    let page = &rule.page;
    Doc {
        id: rule.id,
        title: rule.title,
        area: rule.area.name(),
        proof: rule.proof.name(),
        min_age_ns: rule.min_age_ns,
        mechanism: page.mechanism,
        versions: page.versions,
        symptoms: page.symptoms,
        evidence: page.evidence,
        excluded_by: page.excluded_by,
        next: page.next,
        trap: page.trap,
        sources: page.sources,
    }
}
