//! The gate, on the other containerds: each is started once, without a kubelet. What their Go versions and their programs have in other
//! places is read there: arguments of handlers, connections, goroutines, ids on stacks.
//!
//! The archive may lose the suites of these, and one of them changes every day: then they are skipped.

use plegtrace_lab::{Containerd, Generation};

use super::shared::{self, Shared};
use super::{goroutines, modes, requests, wire};

/// Two pods of whose shims one is stopped.
fn stopped_shim(containerd: &Containerd) {
    let pods = ["stopped", "other"].map(|name| containerd.run_pod(name).unwrap());
    wire::stopped_shim_is_named(containerd, &pods);
}

macro_rules! runtime {
    ($module:ident, $generation:ident) => {
        mod $module {
            use super::*;

            static CONTAINERD: Shared<Containerd> =
                Shared::new(|| shared::containerd(Generation::$generation));

            #[test]
            fn containers_are_read_from_stacks() {
                CONTAINERD.lend(requests::containers_are_read);
            }

            #[test]
            fn goroutines_are_those_of_its_dump() {
                CONTAINERD.lend(goroutines::containerd_and_shim_are_read);
            }

            #[test]
            fn handlers_are_exact() {
                CONTAINERD.lend(|containerd| modes::handlers_are_exact(containerd, modes::MULTI.0));
            }

            #[test]
            fn requests_are_exact() {
                CONTAINERD.lend(wire::requests_are_exact);
            }

            /// Last: its pods are left.
            #[test]
            fn stopped_shim_is_named() {
                CONTAINERD.lend(stopped_shim);
            }
        }
    };
}

// Go 1.15: arguments are on the stack.
runtime!(v1_4, V1_4);
// Go 1.24.
runtime!(v1_7, V1_7);
// What sid builds with.
runtime!(v2_1, V2_1);
