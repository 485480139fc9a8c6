//! A test that fails leaves the logs of its lab where it was told to, although the lab itself is gone.

use std::fs;
use std::process::Command;

use plegtrace_lab::scratch::Scratch;

/// Set for the run that fails.
const FAILS: &str = "PLEGTRACE_LAB_TEST_FAILS";

/// Runs itself once more, to fail.
#[test]
fn a_failed_test_leaves_its_logs() {
    if std::env::var_os(FAILS).is_some() {
        let lab = Scratch::new().unwrap();
        fs::write(lab.path().join("kubelet.log"), "last words").unwrap();
        panic!("as it should");
    }
    let kept = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "logs::a_failed_test_leaves_its_logs"]);
    let failed = again.env(FAILS, "1").env("PLEGTRACE_TEST_LOGS", kept.path()).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success(), "{said}");
    let dirs: Vec<_> = fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [dir] = &dirs[..] else { panic!("{dirs:?}: {said}") };
    let name = dir.file_name().unwrap().to_string_lossy();
    assert!(name.starts_with("logs-a_failed_test_leaves_its_logs-"), "{name}");
    assert_eq!(fs::read_to_string(dir.join("kubelet.log")).unwrap(), "last words");
    assert!(said.contains(&format!("LOGS {}\n", dir.display())), "{said}");
}
