//! What browsers show: the trace of each recording in the Perfetto UI. Flame graphs are opened by `watch`. Needs no node, but a
//! browser, which only root can install.

use std::fs;

use plegtrace::{commands, render::perfetto, timeline::Timeline};
use plegtrace_tests::{
    perfetto::Ui,
    program,
    recordings::{self, FAULTS},
    slowest,
};
use serde_json::Value;

/// What decided how long each root took, by the rule of the report: of what lies directly below a slice, on its lane or on
/// another, the longest, open ones first; no further once that is less than half.
const SLOWEST: &str = "
    WITH RECURSIVE seen AS (
        SELECT id, parent_id, dur, replace(name, ', open', '') AS name,
            extract_arg(arg_set_id, 'args.layer') IS NOT NULL AS is_call,
            ifnull(extract_arg(arg_set_id, 'args.open'), 0) AS is_open,
            ifnull(extract_arg(arg_set_id, 'args.root'), 0)
                AND NOT ifnull(extract_arg(arg_set_id, 'args.at_least'), 0) AS is_root
        FROM slice
    ), below AS (
        SELECT parent_id AS above, id FROM seen WHERE is_call AND parent_id IS NOT NULL
        UNION SELECT slice_out, slice_in FROM flow
    ), ranked AS (
        SELECT above, id, dur, is_open,
            row_number() OVER (PARTITION BY above ORDER BY is_open DESC, dur DESC, id DESC) AS place
        FROM below JOIN seen USING (id)
    ), path AS (
        SELECT id AS root, 0 AS step, id, dur FROM seen WHERE is_root
        UNION ALL
        SELECT root, step + 1, next.id, next.dur FROM path JOIN ranked AS next ON next.above = path.id
        WHERE next.place = 1 AND (next.is_open OR next.dur >= path.dur / 2)
    )
    SELECT root, name, dur FROM path JOIN seen USING (id, dur) ORDER BY root, step";

fn slowest_paths(ui: &mut Ui) -> Vec<slowest::Path> {
    let rows = ui.query(SLOWEST).unwrap();
    let (mut paths, mut last) = (Vec::<slowest::Path>::new(), Value::Null);
    for row in rows {
        let step = (row[1].as_str().unwrap().to_owned(), row[2].as_u64().unwrap());
        if row[0] != last {
            last = row[0].clone();
            paths.push(Vec::new());
        }
        paths.last_mut().unwrap().push(step);
    }
    paths.sort();
    paths
}

/// The trace processor of Perfetto takes each trace without an error, and a query there gives the slowest path of the report.
#[test]
fn perfetto_tells_the_same_slowest_path() {
    let Some(mut ui) = Ui::start().unwrap() else { return };
    let (mut count, mut longest) = (0, 0);
    for kind in FAULTS {
        let name = recordings::name(kind);
        let bytes = fs::read(recordings::folder().join(recordings::file(kind))).unwrap();
        let snapshot = commands::replay(bytes.as_slice()).unwrap().snapshot;
        let mut trace = Vec::new();
        perfetto::trace(&snapshot, &Timeline::of(&snapshot), &mut trace).unwrap();
        ui.open(&format!("{name}.json"), &String::from_utf8(trace).unwrap()).unwrap();
        let (theirs, ours) = (slowest_paths(&mut ui), slowest::paths(&snapshot));
        assert_eq!(theirs, ours, "{name}");
        count += ours.len();
        longest = ours.iter().map(Vec::len).max().unwrap_or(0).max(longest);
        ui.screenshot(&program::target_dir().join(format!("screenshots/perfetto-{name}.png"))).unwrap();
    }
    assert!(count > 30 && longest > 3, "{count} paths, the longest of {longest}");
}
