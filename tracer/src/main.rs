//! `plegtrace`: see `plegtrace --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    plegtrace::session::main()
}
