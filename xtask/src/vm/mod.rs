//! `cargo xtask vm`: our programs on the kernels of four Debian releases.
//!
//! For each suite `image` makes a disk with that release's own kernel, systemd, containerd and runc (once, cached);
//! `payload` makes a small second disk with our static test binary and the script that runs it; `qemu` starts a
//! guest from both, throwing away what it writes to the first. The guest's console (ttyS0) goes to a file, in which
//! `console` watches for a dying kernel; our output comes over a second serial port (ttyS1), where nothing else
//! writes. `verdict` turns its lines into results, and into a table of kernels and tests.
//!
//! With `--packages` the second disk holds a release instead ([`packages`]), and the guest starts twice.
//!
//! A guest that hangs, panics, gives no verdict or gives two has failed. A suite that has left the archive is a
//! skip that is declared and counted.

mod accel;
mod ahead;
mod command;
mod console;
mod gate;
mod guest;
mod image;
mod packages;
mod payload;
mod qemu;
mod suites;
mod verdict;

pub(crate) use ahead::ahead;
pub(crate) use command::{Figures, Options, PART, Selection, again, install_everywhere, run, run_all, stats};
pub(crate) use verdict::Counts;
