//! The other half of the fault matrix: faults that whoever observes another node on the machine would notice, too.

use super::matrix;

/// The loud ones are named, too, by a plegtrace that nobody has told which kubelet and which runtime are meant.
#[test]
fn loud_faults_are_named() {
    matrix::loud_faults_are_named();
}
