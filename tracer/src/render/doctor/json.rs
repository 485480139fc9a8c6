//! [`json`]: the view for programs. The module above specifies the format.

use std::io::{self, Write};

use serde::Serialize;

use super::view::{DoctorView, ProgramRow, Verdict};
use crate::{
    checks::Check,
    input::{Presence, RefusedFact},
    render::json::disarm,
};

/// Version of the format.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'a str,
    node: &'a str,
    kernel: &'a str,
    verdict: Verdict,
    blocked: Option<BlockedDoc>,
    checks: &'a [Check],
    programs: &'a [ProgramRow],
    presence: &'a [Presence],
    refused: &'a [RefusedFact],
}

#[derive(Serialize)]
struct BlockedDoc {
    check: &'static str,
    sentence: String,
    hint: Option<String>,
}

/// Writes the view as one JSON document, indented, with a newline at its end.
///
/// # Errors
///
/// Writing fails.
pub fn json(view: &DoctorView, out: &mut dyn Write) -> io::Result<()> {
    let document = Document {
        schema_version: SCHEMA_VERSION,
        tool_version: &view.tool_version,
        node: &view.node,
        kernel: &view.kernel,
        verdict: view.verdict(),
        blocked: view.report.blocking().map(|blocked| BlockedDoc {
            check: blocked.id,
            sentence: blocked.sentence,
            hint: blocked.hint,
        }),
        checks: &view.report.checks,
        programs: &view.programs,
        presence: &view.presence,
        refused: &view.refused,
    };
    let json = serde_json::to_string_pretty(&document).map_err(io::Error::other)?;
    writeln!(out, "{}", disarm(&json))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::render::escape::is_treacherous;

    fn document(view: &DoctorView) -> (String, serde_json::Value) {
        let mut out = Vec::new();
        json(view, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    /// The fields that scripts ask for, and hostile text that comes through whole without harming a terminal.
    #[test]
    fn fields() {
        let (text, doc) = document(&sample::view());
        assert_eq!(doc["schema_version"], 1);
        assert_eq!(doc["verdict"], "cannot_run");
        assert_eq!(doc["blocked"]["hint"], "run: sudo plegtrace");
        assert_eq!(doc["checks"][0]["state"], "ok");
        assert_eq!(doc["programs"][0]["hooks"][0]["prices"]["single_stepped"], 3);
        assert_eq!(doc["programs"][1]["exe"], sample::HOSTILE);
        assert!(!text.chars().any(|c| c != '\n' && is_treacherous(c)));
    }

    /// Nothing known: lists are there, empty, and nothing is claimed.
    #[test]
    fn empty() {
        let (_, doc) = document(&DoctorView::default());
        assert_eq!(doc["verdict"], "not_known");
        assert!(doc["checks"].as_array().is_some_and(Vec::is_empty));
        assert!(doc["blocked"].is_null());
    }
}
