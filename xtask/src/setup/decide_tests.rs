//! What is chosen on the machines we know of.

use super::*;

fn pair(rustc: &str, version: (u32, u32), llvm: u32) -> Pair {
    Pair {
        rustc: rustc.to_owned(),
        cargo: rustc.replace("rustc", "cargo"),
        src: format!("{}-src", rustc.replace("rustc", "rust")),
        clippy: None,
        version,
        llvm,
    }
}

fn llvm(versions: &[u32]) -> BTreeMap<u32, String> {
    versions.iter().map(|v| (*v, format!("1:{v}.1"))).collect()
}

/// Debian 12 with its updates: the plain pair is too old, the web pair has the LLVM that is packaged beside it.
#[test]
fn bookworm_takes_the_web_pair() {
    let facts = Facts {
        pairs: vec![pair("rustc", (1, 63), 14), pair("rustc-web", (1, 96), 22)],
        llvm_dev: llvm(&[13, 14, 15, 16, 19, 22]),
        apt: true,
        ..Facts::default()
    };
    let decision = decide(&facts).unwrap();
    assert_eq!(decision.compiler, Choice::Distro { suffix: String::new(), clippy: false });
    assert_eq!(decision.linker, Linker::Build { llvm: 22 });
    assert_eq!(
        decision.packages,
        [
            "rustc-web",
            "cargo-web",
            "rust-web-src",
            "llvm-22-dev",
            "libpolly-22-dev",
            "libzstd-dev",
            "zlib1g-dev",
            "g++"
        ]
    );
}

/// Ubuntu has one package per version: the newest whose LLVM has a matching linker wins, not simply the newest.
#[test]
fn ubuntu_takes_the_newest_pair_with_a_matching_llvm() {
    let facts = Facts {
        pairs: vec![
            pair("rustc-1.89", (1, 89), 20),
            pair("rustc-1.93", (1, 93), 21),
            pair("rustc-1.99", (1, 99), 24),
        ],
        llvm_dev: llvm(&[20, 21, 22]),
        apt: true,
        ..Facts::default()
    };
    let decision = decide(&facts).unwrap();
    assert_eq!(decision.compiler, Choice::Distro { suffix: "-1.93".to_owned(), clippy: false });
    assert_eq!(decision.linker, Linker::Build { llvm: 21 });
}

/// A newer LLVM may read the bitcode of an older one, never the other way round.
#[test]
fn the_linker_is_never_older_than_the_compiler() {
    let mut facts = Facts {
        pairs: vec![pair("rustc", (1, 89), 20)],
        llvm_dev: llvm(&[22]),
        apt: true,
        ..Facts::default()
    };
    assert_eq!(decide(&facts).unwrap().linker, Linker::Build { llvm: 22 });
    facts.pairs = vec![pair("rustc", (1, 99), 23)];
    assert!(decide(&facts).is_err());
}

/// A nightly that is ready goes before any package, and needs none.
#[test]
fn a_ready_nightly_is_preferred() {
    let facts = Facts {
        nightlies: vec![Nightly { name: "nightly".to_owned(), has_rust_src: true, llvm: 22 }],
        linker_on_path: Some(PathBuf::from("/opt/bpf-linker")),
        pairs: vec![pair("rustc-web", (1, 96), 22)],
        llvm_dev: llvm(&[22]),
        apt: true,
    };
    let decision = decide(&facts).unwrap();
    assert_eq!(decision.compiler, Choice::Rustup { toolchain: "nightly".to_owned() });
    assert_eq!(decision.packages, Vec::<String>::new());
}

/// A nightly without library sources cannot build core.
#[test]
fn a_nightly_without_sources_is_passed_over() {
    let facts = Facts {
        nightlies: vec![Nightly { name: "nightly".to_owned(), has_rust_src: false, llvm: 22 }],
        pairs: vec![pair("rustc-web", (1, 96), 22)],
        llvm_dev: llvm(&[22]),
        apt: true,
        ..Facts::default()
    };
    assert!(matches!(decide(&facts).unwrap().compiler, Choice::Distro { .. }));
}

/// When nothing fits, the message holds a command that fixes it.
#[test]
fn no_way_names_the_command() {
    let old = Facts {
        pairs: vec![pair("rustc", (1, 63), 14)],
        llvm_dev: llvm(&[14]),
        apt: true,
        ..Facts::default()
    };
    let text = decide(&old).unwrap_err().to_string();
    assert!(
        text.contains("rustc 1.63 (LLVM 14)") && text.contains("rustup toolchain install nightly"),
        "{text}"
    );
    let text = decide(&Facts::default()).unwrap_err().to_string();
    assert!(text.contains("rustup toolchain install nightly"), "{text}");
}
