//! Every command of the README is run by a test: by this one, or by one that is named here and has it.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::CommandFactory as _;
use plegtrace::cli::Args;
use plegtrace_lab::fault::Kind;
use plegtrace_tests::{
    faults::{Observer, kept},
    packed, program,
};

/// Who runs a command.
enum By {
    /// This test, without root and without a node: it ends with this exit code.
    Here(i32),
    /// A file of tests, in which these words are.
    Test(&'static str, &'static str),
}
use By::{Here, Test};

const PACKAGES: &str = "xtask/src/vm/packages.sh";
const SSH: &str = "tests/tests/lab/ssh.rs";
const CLUSTER: &str = "tests/tests/lab/cluster.rs";

const COMMANDS: [(&str, By); 32] = [
    ("sudo plegtrace", Test("tests/tests/lab/matrix/mod.rs", "fn find_late")),
    ("tar -xzf plegtrace-0.1.0-x86_64-linux.tar.gz", Test(PACKAGES, "tar -xzf \"$here\"/plegtrace.tar.gz")),
    ("scp plegtrace-0.1.0-x86_64-linux/plegtrace root@NODE:/tmp/", Test(SSH, "readme(\"scp \")")),
    ("ssh root@NODE /tmp/plegtrace", Test(SSH, "readme(\"scp \")")),
    ("sudo dpkg -i plegtrace_0.1.0_amd64.deb", Test(PACKAGES, "dpkg -i \"$here\"/plegtrace.deb")),
    (
        "sudo rpm -i plegtrace-0.1.0-1.x86_64.rpm",
        Test("xtask/src/dist/rpm.rs", "fn rpm_installs_and_erases_it"),
    ),
    ("sudo systemctl enable --now plegtrace", Test(PACKAGES, "systemctl enable --now plegtrace")),
    (
        "sudo ctr -n k8s.io images import plegtrace-0.1.0-x86_64-image.tar",
        Test("tests/tests/lab/contained.rs", "import_as(&archive"),
    ),
    ("tar -xzf plegtrace-0.1.0-kustomize.tar.gz", Test(PACKAGES, "tar -xzf \"$here\"/kustomize.tar.gz")),
    ("kubectl apply -k kustomize", Test(CLUSTER, "readme(\"tar -xzf plegtrace-0.1.0-kustomize\")")),
    ("kubectl logs -n kube-system POD --tail=5", Test(CLUSTER, "readme(\"kubectl logs \")")),
    ("kubectl exec -n kube-system POD -- /plegtrace check", Test(CLUSTER, "readme(\"kubectl exec \")")),
    (
        "kubectl plegtrace NODE --image=plegtrace:0.1.0",
        Test(CLUSTER, "readme(\"kubectl plegtrace NODE --image=plegtrace:0.1.0\")"),
    ),
    (
        "kubectl plegtrace NODE --image=plegtrace:0.1.0 -o svg",
        Test(CLUSTER, "readme(\"kubectl plegtrace NODE --image=plegtrace:0.1.0 -o svg\")"),
    ),
    (
        "sudo plegtrace -d 3600 --until-found",
        Test("tests/tests/lab/matrix/mod.rs", "&[\"-d\", \"60\", \"--until-found\"]"),
    ),
    ("sudo plegtrace --show calls,tree", Test("tests/tests/integration/first_screen.rs", "Section::")),
    ("sudo plegtrace -o json", Test("tests/tests/lab/matrix/mod.rs", "&[\"-v\", \"-o\", \"json\"]")),
    ("sudo plegtrace -o svg > flame.svg", Test("tests/tests/lab/watch.rs", "\"-o\", \"svg\"")),
    (
        "sudo plegtrace --otlp http://127.0.0.1:4317",
        Test("tests/tests/integration/otlp.rs", "&[\"--otlp\", &collector.url()]"),
    ),
    ("sudo plegtrace record node.plegtrace", Test("tests/tests/lab/recording.rs", "[\"record\", file")),
    ("plegtrace report node.plegtrace", Here(1)),
    ("sudo plegtrace watch", Test("tests/tests/lab/watch.rs", "[\"watch\", \"--dir\"")),
    ("sudo plegtrace top", Test("tests/tests/lab/top.rs", "top --kubelet-pid")),
    ("sudo plegtrace check", Test("tests/tests/lab/watch.rs", "[\"check\", \"--dir\"]")),
    ("sudo plegtrace history --since 12h", Test("tests/tests/lab/watch.rs", "[\"history\", \"--dir\"]")),
    (
        "sudo plegtrace goroutines $(pidof kubelet)",
        Test("tests/tests/lab/goroutines.rs", "&[\"goroutines\", &containerd.pid().to_string()]"),
    ),
    ("plegtrace explain R1", Here(0)),
    ("plegtrace doctor", Test("tests/tests/integration/cli.rs", "&[\"doctor\", \"-o\", \"json\", \"-q\"]")),
    ("cargo xtask demo", Test("xtask/src/test/everything.rs", "arg(\"demo\")")),
    ("cargo xtask test", Test(".ci/run", "\ncargo xtask test\n")),
    (
        "cargo xtask run -- doctor",
        Test("xtask/src/test/everything.rs", "[&[\"doctor\"][..], &[\"-d\", \"30\"]]"),
    ),
    (
        "cargo xtask run -- -d 30",
        Test("xtask/src/test/everything.rs", "[&[\"doctor\"][..], &[\"-d\", \"30\"]]"),
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The commands, in order: lines that are set off, without their comments and each part of a chain by itself.
fn commands() -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let (mut commands, mut fenced) = (Vec::new(), false);
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let Some(line) = line.strip_prefix("    ").filter(|_| !fenced) else { continue };
        let command = line.split(" # ").next().unwrap_or_default();
        commands.extend(command.split(" && ").map(|part| part.trim().to_owned()));
    }
    commands
}

#[test]
fn every_command_is_run_by_a_test() {
    let known: BTreeMap<&str, &By> = COMMANDS.iter().map(|(command, by)| (*command, by)).collect();
    let commands = commands();
    for command in &commands {
        let by = known.get(command.as_str()).unwrap_or_else(|| panic!("nobody runs `{command}`"));
        match by {
            Here(code) => here(command, *code),
            Test(file, words) => {
                let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
                assert!(text.contains(words), "`{command}`: {words:?} is not in {file}");
            }
        }
    }
    for (command, _) in &COMMANDS {
        assert!(commands.iter().any(|it| it == command), "`{command}` is not in the README");
    }
}

fn here(command: &str, code: i32) {
    let dir = tempfile::tempdir().unwrap();
    let recording = packed::recording(&kept::file(Kind::LockHostage, Observer::Early)).unwrap();
    fs::write(dir.path().join("node.plegtrace"), recording).unwrap();
    let words = command.strip_prefix("plegtrace ").expect("what needs no root begins so").split(' ');
    let ended = Command::new(program::path().unwrap()).args(words).current_dir(&dir).output().unwrap();
    assert_eq!(ended.status.code(), Some(code), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    assert!(!ended.stdout.is_empty(), "{command}");
}

/// What the README and the guide type is what plegtrace takes, word for word.
#[test]
fn every_command_of_plegtrace_is_one() {
    let mut seen = 0;
    for file in ["README.md", "tracer/docs/guide.md", "tracer/docs/causes.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let set_off = text.lines().filter_map(|line| line.strip_prefix("    "));
        for line in set_off {
            let line = line.split(" # ").next().unwrap_or_default().split(" > ").next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().skip_while(|word| *word == "sudo").collect();
            if words.first() != Some(&"plegtrace") {
                continue;
            }
            let words = words
                .iter()
                .map(|word| if word.starts_with("$(") || *word == "kubelet)" { "1" } else { word });
            // `$(pidof kubelet)` is two words here, and one for a shell.
            let mut words: Vec<&str> = words.collect();
            words.dedup_by(|a, b| *a == "1" && *b == "1");
            let parsed = Args::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{file}: {line}: {}", parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// A stranger reads it in two minutes.
#[test]
fn it_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 250, "{lines} lines");
}
