//! `plegtrace`: see `plegtrace --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Here, and not in the library: another commit compiles these few lines, and nothing else.
    plegtrace::session::main(option_env!("PLEGTRACE_COMMIT"))
}
