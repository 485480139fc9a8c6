//! [`json`]: the view for programs. The module above specifies the format.

use std::io::{self, Write};

use serde::Serialize;

use super::view::GoroutinesView;
use crate::{
    input::GoroutineGroup,
    render::{
        human,
        json::{component, write_document},
    },
};

/// Version of the format.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool_version: &'a str,
    node: &'a str,
    taken_at: At,
    took_ns: u64,
    pid: u32,
    component: &'static str,
    exe: &'a str,
    go_version: &'a str,
    total: u32,
    unread: u32,
    groups: Vec<GroupDoc<'a>>,
    groups_left_out: u32,
    last_list_age_ns: Option<u64>,
    rss_peak_bytes: u64,
}

#[derive(Serialize)]
struct At {
    mono_ns: u64,
    time: String,
}

#[derive(Serialize)]
struct GroupDoc<'a> {
    count: u32,
    goids: &'a [u64],
    state: &'a str,
    wait_reason: Option<&'a str>,
    waiting_ns: Option<u64>,
    frames: &'a [String],
    broken: Option<&'a str>,
}

impl<'a> GroupDoc<'a> {
    fn new(group: &'a GoroutineGroup, view: &GoroutinesView) -> Self {
        Self {
            count: group.count,
            goids: &group.goids,
            state: &group.state,
            wait_reason: group.wait_reason.as_deref(),
            waiting_ns: view.waiting_ns(group),
            frames: &group.frames,
            broken: group.broken.as_deref(),
        }
    }
}

/// Writes the view as one JSON document, indented, with a newline at its end.
///
/// # Errors
///
/// Writing fails.
pub fn json(view: &GoroutinesView, out: &mut dyn Write) -> io::Result<()> {
    let fact = &view.fact;
    let unix_ns = i64::try_from(fact.at_ns).unwrap_or(i64::MAX).saturating_add(view.realtime_offset_ns);
    let document = Document {
        schema_version: SCHEMA_VERSION,
        tool_version: &view.tool_version,
        node: &view.node,
        taken_at: At { mono_ns: fact.at_ns, time: human::rfc3339(unix_ns) },
        took_ns: fact.took_ns,
        pid: fact.pid,
        component: component(fact.component),
        exe: &view.exe,
        go_version: &fact.go_version,
        total: fact.total,
        unread: fact.unread,
        groups: fact.groups.iter().map(|group| GroupDoc::new(group, view)).collect(),
        groups_left_out: fact.groups_left_out,
        last_list_age_ns: view.last_list_age_ns(),
        rss_peak_bytes: view.rss_peak_bytes,
    };
    write_document(&document, out)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::render::escape::is_treacherous;

    /// The fields that scripts ask for, and hostile text that comes through whole without harming a terminal.
    #[test]
    fn fields() {
        let mut out = Vec::new();
        json(&sample::view(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let doc: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&doc["schema_version"], &doc["pid"]), (&1.into(), &77.into()));
        assert_eq!(doc["taken_at"]["time"], "2026-01-01T12:02:11.000000000Z");
        assert_eq!(doc["groups"][0]["waiting_ns"], 200_000_000_000u64);
        assert!(doc["groups"][1]["waiting_ns"].is_null());
        assert_eq!(doc["groups"][1]["frames"][0], sample::HOSTILE);
        assert!(!text.chars().any(|c| c != '\n' && is_treacherous(c)), "{text}");
    }
}
