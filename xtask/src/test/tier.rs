//! [`Tier`]: which tests prove a change, and which prove the product. The first must be quick and never fail without a reason; the second
//! has everything that there is.

use super::layers::{Layer, Program};

/// A tier of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// `cargo xtask test`: all that needs no machine, thirty tests on real nodes, and each kernel loads and fires.
    Gate,
    /// `cargo xtask test --all`.
    All,
}

/// Modules of the lab that a change has to pass: those written for it, on nodes that they share, and some that need none.
const LIVE: [&str; 8] = [
    "gate_node",
    "gate_restarts",
    "gate_runtimes",
    "gate_bus",
    "census",
    "capabilities",
    "debug_log",
    "limits",
];

/// Tests without a machine that need other archives than bookworm's, or many compilers.
const OTHERS: &str = "::others::";
const BUILDS: &str = "target_builds";

impl Tier {
    /// Its name in `xtask/expected-tests.txt`, before that of the layer.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::All => "all",
        }
    }

    /// What of a program it runs; `None`: nothing. `module` is the outermost one of its tests.
    pub(crate) fn of(self, mut program: Program, module: &str) -> Option<Program> {
        if self == Self::All {
            return Some(program);
        }
        match program.layer {
            Layer::Unit => Some(program),
            Layer::Integration => {
                program.tests.retain(|test| !test.contains(OTHERS));
                (module != BUILDS && !program.tests.is_empty()).then_some(program)
            }
            // The lab's own tests prove the lab, not the change.
            Layer::Lab => (!program.is_of_lab_package() && LIVE.contains(&module)).then_some(program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(layer: Layer, package: &str, tests: &[&str]) -> Program {
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Program { layer, name: format!("{package}-x"), file: "f".into(), directory: "d".into(), tests }
    }

    /// The gate leaves out compilers, archives and whole nodes; `--all` leaves out nothing.
    #[test]
    fn what_a_change_has_to_pass() {
        let gate = |program: Program, module| Tier::Gate.of(program, module).map(|program| program.tests);
        let goroutines =
            program(Layer::Integration, "plegtrace-tests", &["goroutines::a", "goroutines::others::b"]);
        assert_eq!(gate(goroutines.clone(), "goroutines"), Some(vec!["goroutines::a".to_owned()]));
        assert_eq!(Tier::All.of(goroutines.clone(), "goroutines"), Some(goroutines));
        assert_eq!(
            gate(program(Layer::Integration, "plegtrace-tests", &["target_builds::a"]), "target_builds"),
            None
        );
        let matrix = program(Layer::Lab, "plegtrace-tests", &["matrix::a"]);
        assert_eq!(gate(matrix.clone(), "matrix"), None);
        assert_eq!(gate(matrix, "gate_node"), Some(vec!["matrix::a".to_owned()]));
        assert_eq!(gate(program(Layer::Lab, "plegtrace-lab", &["limits::a"]), "limits"), None);
        assert!(gate(program(Layer::Unit, "plegtrace", &[]), "").is_some());
    }
}
