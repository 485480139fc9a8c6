//! The first screen of every recording: it fits a terminal, who is to blame and what to type stand on top, and its words are those of
//! who runs nodes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use plegtrace::{
    commands,
    correlate::Snapshot,
    diagnose::{Diagnosis, Verdict, diagnose},
    render::text::{self, Section, Shown, TextOptions},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::faults::{Observer, kept};
use plegtrace_tests::packed;
use textwrap::core::display_width;

/// A terminal.
const WIDTH: usize = 80;
const LINES: usize = 24;
const LINES_HEALTHY: usize = 20;
/// By then who is to blame and what to type are read.
const TOP: usize = 10;

/// Words that nobody who runs nodes uses, and those that only whoever wrote this understands.
const FORBIDDEN: [&str; 13] = [
    " told",
    " said",
    " looks,",
    "every look",
    "of looks",
    "who does not read",
    "what has ended",
    "held up by nothing",
    "nobody that is known",
    "also a case of",
    "threads stopped",
    "name not known",
    "(or before)",
];

/// Every recording of the repository, by name.
fn recordings() -> Vec<(String, Snapshot)> {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut all: Vec<(String, Snapshot)> =
        ["recordings", "field"].iter().flat_map(|folder| files(&golden.join(folder))).collect();
    let faults = kept::all().unwrap();
    all.extend(faults.into_iter().map(|(case, file)| {
        let name = format!("faults/{}-{:?}", case.kind.name(), case.observer);
        (name, packed::stream(&file).unwrap().end())
    }));
    assert!(all.len() > 90, "{}", all.len());
    all
}

fn files(folder: &Path) -> Vec<(String, Snapshot)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "plegtrace"));
    let read = |path: PathBuf| {
        let snapshot = commands::replay(File::open(&path).unwrap()).unwrap().snapshot;
        (path.file_stem().unwrap().to_string_lossy().into_owned(), snapshot)
    };
    files.map(read).collect()
}

fn report(snapshot: &Snapshot, diagnosis: &Diagnosis, options: TextOptions) -> String {
    let mut out = Vec::new();
    text::report(snapshot, diagnosis, &options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn screen(snapshot: &Snapshot, diagnosis: &Diagnosis) -> String {
    report(snapshot, diagnosis, TextOptions { width: WIDTH, ..TextOptions::default() })
}

/// A command that is wider than the terminal stands alone on its line, whole.
fn is_long_command(line: &str) -> bool {
    let line = line.trim_start_matches("do").trim_start();
    ["echo ", "systemctl ", "kubectl "].iter().any(|command| line.starts_with(command))
}

/// Lines, columns, no figure that has lost its unit; and of a stall culprit and first command on top.
#[test]
fn fits_a_terminal() {
    let mut wrong = Vec::new();
    for (name, snapshot) in recordings() {
        let diagnosis = diagnose(&snapshot);
        let text = screen(&snapshot, &diagnosis);
        if let Ok(folder) = std::env::var("PLEGTRACE_SCREENS") {
            fs::write(Path::new(&folder).join(name.replace('/', "-")), &text).unwrap();
        }
        let rows: usize = text.lines().map(|line| display_width(line).div_ceil(WIDTH).max(1)).sum();
        let most = if diagnosis.verdict == Verdict::Healthy { LINES_HEALTHY } else { LINES };
        if rows > most {
            wrong.push(format!("{name}: {rows} lines\n{text}"));
        }
        let wide = text.lines().filter(|line| display_width(line) > WIDTH && !is_long_command(line));
        wrong.extend(wide.map(|line| format!("{name}: {line}")));
        let torn = text.lines().filter(|line| {
            let unit = line.trim_start().split([' ', ',', ';', ')']).next().unwrap_or_default();
            ["%", "s", "ms", "min", "MiB"].contains(&unit)
        });
        wrong.extend(torn.map(|line| format!("{name}: {line}")));
        if diagnosis.verdict == Verdict::Stall && !on_top(&text, &diagnosis) {
            wrong.push(format!("{name}: not on top\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Do the first lines name the culprit, and what to do?
fn on_top(text: &str, diagnosis: &Diagnosis) -> bool {
    let top = text.lines().take(TOP).collect::<Vec<_>>().join("\n");
    let finding = diagnosis.accused().first();
    let culprit = finding.and_then(|finding| finding.culprit.as_ref());
    let named = match culprit {
        Some(culprit) => {
            let pid = culprit.pid.is_some_and(|pid| top.contains(&format!(" {pid}")));
            pid || top.contains(culprit.component.name()) || top.contains("culprit  ")
        }
        None => finding.is_some() || top.contains("\nculprit  "),
    };
    named && top.contains("\ndo       ")
}

/// The words of the report, in full and in short.
#[test]
fn in_the_words_of_the_field() {
    let mut wrong = Vec::new();
    for (name, snapshot) in recordings() {
        let diagnosis = diagnose(&snapshot);
        for verbose in [false, true] {
            let text = report(&snapshot, &diagnosis, TextOptions { verbose, ..TextOptions::default() });
            let found = FORBIDDEN.iter().filter_map(|word| {
                text.lines()
                    .find(|line| line.contains(word))
                    .map(|line| format!("{name}: {word:?} in {line}"))
            });
            wrong.extend(found);
            // Ids are as long as tools print them.
            let long = |word: &&str| word.len() >= 40 && word.chars().all(|c| c.is_ascii_hexdigit());
            let split = |c: char| !c.is_ascii_alphanumeric();
            let screen = screen(&snapshot, &diagnosis);
            let lines = screen.lines().filter(|line| !is_long_command(line));
            wrong.extend(
                lines.flat_map(|line| line.split(split)).find(long).map(|id| format!("{name}: {id}")),
            );
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each section has its tables, and nothing of the others; all of them together are in the whole report.
#[test]
fn sections_that_are_asked_for() {
    let titles = [
        (Section::Relists, &["Relists   ", "Where relist time goes"][..]),
        (Section::Calls, &["Open calls   ", "Calls of the kubelet   "]),
        (Section::Processes, &["Processes   "]),
        (Section::Wire, &["CRI calls on the wire"]),
        (Section::Tree, &["Open relist   "]),
        (Section::Census, &["Stuck   "]),
    ];
    let snapshot = packed::stream(&kept::file(Kind::LockHostage, Observer::Early)).unwrap().end();
    let diagnosis = diagnose(&snapshot);
    let first = screen(&snapshot, &diagnosis);
    let whole =
        report(&snapshot, &diagnosis, TextOptions { verbose: true, width: WIDTH, ..TextOptions::default() });
    for (section, mine) in titles {
        let show = Shown::from_iter([section]);
        let text =
            report(&snapshot, &diagnosis, TextOptions { show, width: WIDTH, ..TextOptions::default() });
        let rest = text.strip_prefix(&first).expect("the first screen is the same");
        for (other, titles) in titles {
            for title in titles {
                let has = rest.lines().any(|line| line.starts_with(title));
                assert_eq!(has, other == section, "{section:?}: {title:?} in\n{rest}");
                assert!(
                    !mine.contains(title) || whole.lines().any(|line| line.starts_with(*title)),
                    "{whole}"
                );
            }
        }
    }
    assert!(whole.starts_with(&first) && whole.contains("\nWhy we think so"), "{whole}");
}

/// What stands in the README and in the guide is what is printed: `PLEGTRACE_BLESS=1` writes it.
#[test]
fn screens_of_the_readme() {
    for file in ["README.md", "tracer/docs/guide.md"] {
        screens_of(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file));
    }
}

fn screens_of(page: &Path) {
    const BEGIN: &str = "<!-- screen: ";
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(page).unwrap();
    let mut parts = text.split(BEGIN);
    let mut new = parts.next().unwrap().to_owned();
    let mut screens = 0;
    for part in parts {
        let (name, rest) = part.split_once(" -->\n```text\n").expect("a mark stands above a block of text");
        let (_, rest) = rest.split_once("```\n").expect("a block ends");
        let file = File::open(root.join(format!("golden/{name}.plegtrace"))).unwrap();
        let snapshot = commands::replay(file).unwrap().snapshot;
        let screen = screen(&snapshot, &diagnose(&snapshot));
        new.push_str(&format!("{BEGIN}{name} -->\n```text\n{screen}```\n{rest}"));
        screens += 1;
    }
    assert_eq!(screens, 1);
    if std::env::var("PLEGTRACE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(page, new).unwrap();
    } else {
        assert!(new == text, "{} has other screens; PLEGTRACE_BLESS=1 writes them", page.display());
    }
}
