//! The pages of causes: of those that plegtrace reports, and of those that it does not report yet and says so.

use plegtrace::diagnose::{known, rules};
use plegtrace::render::explain::Causes;
use plegtrace::render::text::TextOptions;
use serde_json::Value;

fn written(write: impl FnOnce(&TextOptions, &mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    let options = TextOptions { width: 80, ..TextOptions::default() };
    write(&options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Every cause has a page within the width, and one that has no rule says that it is not reported.
#[test]
fn every_id_has_a_page() {
    let ids =
        rules::ALL.iter().map(|rule| (rule.id, true)).chain(known::all().map(|known| (known.id, false)));
    for (id, reported) in ids {
        let page = written(|options, out| Causes::one(id).unwrap().pages(options, out));
        assert!(page.starts_with(&format!("{id}  ")) && page.contains("\nWhat to do\n"), "{page}");
        assert_eq!(page.contains("plegtrace has no rule for it yet"), !reported, "{page}");
        assert_eq!(page.contains("How to recognise it by hand"), !reported, "{page}");
        // Title and area stay in one piece.
        // So does a command, however long.
        let fits = |line: &str| line.chars().count() <= 80 || line.trim_start().starts_with("kubectl taint ");
        assert!(page.lines().skip(2).all(fits), "{page}");
    }
    assert!(Causes::one("R99").is_none());
}

/// A verdict has a page, too, by whatever way its name is written.
#[test]
fn verdicts_are_explained() {
    for word in
        ["FAILING", "failing", "stall", "Healthy", "slow", "cannot-tell", "CANNOT TELL", "cannot_tell"]
    {
        let page = written(|options, out| Causes::one(word).unwrap().pages(options, out));
        assert!(page.contains("a verdict; exit code ") && page.contains("\nIt does not say\n"), "{page}");
        assert!(page.lines().skip(2).all(|line| line.chars().count() <= 80), "{page}");
    }
    let json = written(|_, out| Causes::one("failing").unwrap().json(out));
    let docs: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((&docs[0]["word"], &docs[0]["exit"]), (&"FAILING".into(), &1.into()));
}

/// The list has a line for each; JSON tells which are reported.
#[test]
fn the_list_is_whole() {
    let list = written(|options, out| Causes::all().list(options, out));
    let without = list.lines().filter(|line| line.contains("no rule")).count();
    assert_eq!((list.lines().count() - without, without), (rules::ALL.len(), known::all().count()));
    let json = written(|_, out| Causes::all().json(out));
    let docs: Vec<Value> = serde_json::from_str(&json).unwrap();
    let of = |id: &str| docs.iter().find(|doc| doc["id"] == id).unwrap();
    assert_eq!((&of("R1")["reported"], &of("D11")["reported"]), (&Value::Bool(true), &Value::Bool(false)));
    assert!(of("D11")["look"].as_str().unwrap().contains("jobs"));
}
