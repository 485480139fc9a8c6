//! `plegtrace top` without a terminal: the screen of recordings, as text.

use std::{fs::File, path::PathBuf, process::Command};

use plegtrace::{
    commands,
    diagnose::diagnose,
    top::{Picture, text},
};
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{
    faults::{Observer, kept},
    packed, program,
};

fn picture(recording: &[u8]) -> Picture {
    let snapshot = commands::replay(recording).unwrap().snapshot;
    Picture::of(&snapshot, &diagnose(&snapshot))
}

fn of(kind: Kind) -> Picture {
    picture(&packed::recording(&kept::file(kind, Observer::Early)).unwrap())
}

/// The verdict and what to do stand on top, what hangs is the oldest call, and what has returned has figures.
#[test]
fn a_stall() {
    let picture = of(Kind::LockHostage);
    let screen = text(&picture, "", 100, 30);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with("plegtrace top   "), "{screen}");
    assert!(lines[1].starts_with("STALL R1  "), "{screen}");
    assert!(
        lines[2].starts_with("culprit  shim ") && lines[3].starts_with("do       kill -CONT "),
        "{screen}"
    );
    assert!(screen.contains("in flight: ") && screen.contains("UpdateContainerResources"), "{screen}");
    assert!(picture.open.is_sorted_by(|older, younger| older.age_ns >= younger.age_ns));
    assert!(lines.last().unwrap().starts_with("q quit   f freeze   s save a recording"), "{screen}");
}

/// A node that is well: its relists as bars, and each method with count, failures and quantiles.
#[test]
fn a_healthy_node() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/field/containerd-healthy.plegtrace");
    let snapshot = commands::replay(File::open(path).unwrap()).unwrap().snapshot;
    let screen = text(&Picture::of(&snapshot, &diagnose(&snapshot)), "saved x", 80, 24);
    assert!(screen.contains("HEALTHY  15 relists"), "{screen}");
    assert!(screen.contains('█') && screen.contains("the longest of 15 15.4 ms"), "{screen}");
    let exec = screen.lines().find(|line| line.starts_with("ExecSync")).unwrap_or_else(|| panic!("{screen}"));
    let figures: Vec<&str> = exec.split_whitespace().skip(1).collect();
    assert_eq!(figures, ["62", "0", "53.5", "ms", "85.9", "ms", "85.9", "ms"], "{screen}");
    assert!(screen.lines().last().unwrap().ends_with("saved x"), "{screen}");
}

/// Any terminal will do, and any node: nothing panics, and nothing stands beside the screen.
#[test]
fn any_terminal() {
    let pictures = [
        of(Kind::LockHostage),
        of(Kind::ExecStorm),
        Picture::waiting("no\u{1b}[2Jkubelet"),
        Picture::default(),
    ];
    for picture in &pictures {
        for (width, height) in [(80, 24), (20, 5), (1, 1), (300, 100)] {
            let screen = text(picture, "FROZEN", width, height);
            assert_eq!(screen.lines().count(), usize::from(height));
            assert!(screen.lines().all(|line| line.chars().count() <= usize::from(width)), "{screen}");
            assert!(!screen.contains('\u{1b}'), "{screen}");
        }
    }
}

#[test]
fn without_a_terminal() {
    let ended = Command::new(program::path().unwrap()).arg("top").output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("top needs a terminal") && stderr.contains("hint: "), "{stderr}");
}
