//! [`json`]: the view for programs. The module above specifies the format.

use std::io::{self, Write};

use serde::Serialize;

use super::view::{DoctorView, HookRow, Prices, ProgramRow, Verdict};
use crate::{
    checks::{Blocked, Check, State},
    input::Presence,
    render::json::{RefusedDoc, all, component, layer, write_document},
};

/// Version of the format.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'a str,
    node: &'a str,
    kernel: &'a str,
    verdict: &'static str,
    blocked: Option<BlockedDoc>,
    checks: Vec<CheckDoc<'a>>,
    programs: Vec<ProgramDoc<'a>>,
    presence: Vec<PresenceDoc<'a>>,
    refused: Vec<RefusedDoc<'a>>,
}

#[derive(Serialize)]
struct BlockedDoc {
    check: &'static str,
    sentence: String,
    hint: Option<String>,
}

impl From<Blocked> for BlockedDoc {
    fn from(blocked: Blocked) -> Self {
        Self { check: blocked.id, sentence: blocked.sentence, hint: blocked.hint }
    }
}

#[derive(Serialize)]
struct CheckDoc<'a> {
    id: &'static str,
    what: &'static str,
    state: &'static str,
    detail: &'a str,
    hint: Option<&'a str>,
}

impl<'a> From<&'a Check> for CheckDoc<'a> {
    fn from(check: &'a Check) -> Self {
        let state = match check.state {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
            State::Unknown => "unknown",
        };
        Self { id: check.id, what: check.what, state, detail: &check.detail, hint: check.hint.as_deref() }
    }
}

#[derive(Serialize)]
struct ProgramDoc<'a> {
    component: &'static str,
    pid: u32,
    exe: &'a str,
    version: Option<&'a str>,
    go_version: Option<&'a str>,
    socket: Option<&'a str>,
    unproved: Option<&'a str>,
    note: Option<&'a str>,
    hooks: Vec<HookDoc<'a>>,
}

impl<'a> From<&'a ProgramRow> for ProgramDoc<'a> {
    fn from(program: &'a ProgramRow) -> Self {
        Self {
            component: component(program.component),
            pid: program.pid,
            exe: &program.exe,
            version: program.version.as_deref(),
            go_version: program.go_version.as_deref(),
            socket: program.socket.as_deref(),
            unproved: program.unproved.as_deref(),
            note: program.note.as_deref(),
            hooks: all(&program.hooks),
        }
    }
}

#[derive(Serialize)]
struct HookDoc<'a> {
    operation: &'a str,
    service: &'a str,
    layer: &'static str,
    symbol: &'a str,
    sites: u32,
    prices: Option<PricesDoc>,
}

impl<'a> From<&'a HookRow> for HookDoc<'a> {
    fn from(hook: &'a HookRow) -> Self {
        let prices = |Prices { emulated, single_stepped }| PricesDoc { emulated, single_stepped };
        Self {
            operation: &hook.operation,
            service: &hook.service,
            layer: layer(hook.layer),
            symbol: &hook.symbol,
            sites: hook.sites,
            prices: hook.prices.map(prices),
        }
    }
}

#[derive(Serialize)]
struct PricesDoc {
    emulated: u32,
    single_stepped: u32,
}

#[derive(Serialize)]
struct PresenceDoc<'a> {
    component: &'static str,
    path: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    called: bool,
}

impl<'a> From<&'a Presence> for PresenceDoc<'a> {
    fn from(presence: &'a Presence) -> Self {
        Self { component: component(presence.component), path: &presence.path, called: presence.called }
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CanRun => "can_run",
        Verdict::CannotRun => "cannot_run",
        Verdict::NotKnown => "not_known",
    }
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
        verdict: verdict(view.verdict()),
        blocked: view.report.blocking().map(BlockedDoc::from),
        checks: all(&view.report.checks),
        programs: all(&view.programs),
        presence: all(&view.presence),
        refused: all(&view.refused),
    };
    write_document(&document, out)
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
    /// The whole document, byte for byte: types inside may change, what scripts read may not.
    #[test]
    fn document_as_published() {
        assert_eq!(document(&sample::view()).0, include_str!("sample.json"));
    }
}
