//! The files for Prometheus and Grafana, as promtool sees them; `lab::watch` runs them against a real node.

use std::{collections::HashSet, fs};

use plegtrace_tests::prometheus::{dashboard_expressions, packaged, promtool};
use serde_json::Value;

const TESTS: &str = include_str!("alerts/rules_test.yml");

fn rules() -> String {
    packaged("plegtrace-alerts.yml").canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// promtool understands the rules and finds nothing to complain of.
#[test]
fn the_rules_are_rules() {
    let said = promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules()], "").unwrap();
    assert!(said.contains("SUCCESS: 11 rules found"), "{said}");
}

/// Each alert fires on its series, at its time, and on nothing else.
#[test]
fn each_alert_fires_on_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("test.yml");
    fs::write(&file, TESTS.replace("rule_files: [RULES]", &format!("rule_files: [{}]", rules()))).unwrap();
    let said = promtool(&["test", "rules", file.to_str().unwrap()], "").unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
    let text = fs::read_to_string(rules()).unwrap();
    for alert in text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"");
        assert!(TESTS.contains(&fires), "no test has {alert} fire");
    }
}

/// Whoever is woken reads what it is, and what to do.
#[test]
fn each_alert_says_what_to_do() {
    let text = fs::read_to_string(rules()).unwrap();
    let alerts: Vec<&str> = text.split("- alert: ").skip(1).collect();
    for alert in alerts {
        for field in ["severity: ", "summary: ", "description: ", "action: "] {
            assert_eq!(alert.matches(&format!("\n          {field}")).count(), 1, "{field} of {alert}");
        }
    }
}

/// Panels have different ids and lie beside each other, and each asks for something by a data source that can be chosen.
#[test]
fn the_dashboard_is_whole() {
    let text = fs::read_to_string(packaged("plegtrace-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut cells) = (HashSet::new(), HashSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (x, y) = (place("x"), place("y"));
        for column in x..x + place("w") {
            assert!(column < 24 && (y..y + place("h")).all(|row| cells.insert((column, row))), "{panel}");
        }
        let targets = panel["targets"].as_array().unwrap();
        let asks =
            |target: &Value| target["expr"].is_string() && target["datasource"]["uid"] == "${datasource}";
        assert!(!targets.is_empty() && targets.iter().all(asks), "{panel}");
    }
    let expressions = dashboard_expressions().unwrap();
    assert!(
        expressions.len() > panels.len()
            && expressions.iter().all(|it| !it.contains("$_") && !it.contains("$i")),
        "{expressions:?}"
    );
}
