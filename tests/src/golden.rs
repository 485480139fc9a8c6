//! Compares an output with the file that says what it should be.

use std::{env, fs, path::PathBuf};

/// Set to 1, goldens are written instead of compared.
const BLESS: &str = "PLEGTRACE_BLESS";

/// Compares `actual` with `tests/golden/NAME`. A missing golden is a failure.
///
/// # Panics
///
/// They differ; the actual text is then kept beside the golden as `NAME.actual`.
pub fn check(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    let beside = PathBuf::from(format!("{}.actual", path.display()));
    if env::var(BLESS).is_ok_and(|value| value == "1") {
        let folder = path.parent().expect("a golden lies in a folder");
        fs::create_dir_all(folder).expect("the folder of goldens can be made");
        fs::write(&path, actual).expect("a golden can be written");
        let _ = fs::remove_file(&beside);
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if expected == actual {
        let _ = fs::remove_file(&beside);
        return;
    }
    fs::write(&beside, actual).expect("the actual output can be kept");
    let (line, pair) = first_difference(&expected, actual);
    panic!(
        "{name} differs from line {line} on\n{pair}\nkept as {}; to accept it: {BLESS}=1 cargo test -p plegtrace-tests",
        beside.display()
    );
}

fn first_difference(expected: &str, actual: &str) -> (usize, String) {
    let (mut expected, mut actual) = (expected.lines(), actual.lines());
    for line in 1.. {
        let (want, have) = (expected.next(), actual.next());
        if want != have || want.is_none() {
            let show =
                |text: Option<&str>| text.map_or("(no such line)".to_owned(), |text| format!("{text:?}"));
            return (line, format!("expected {}\nactual   {}", show(want), show(have)));
        }
    }
    unreachable!("one of them ends")
}
