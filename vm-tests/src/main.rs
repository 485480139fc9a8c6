//! The guest's binary: runs the table of tests as root and prints what the host reads.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use plegtrace::census;
use plegtrace_vm_tests::kernel::KernelVersion;
use plegtrace_vm_tests::{kubelet, runner, table};

fn main() -> ExitCode {
    if called_as("plegtrace") {
        return plegtrace::session::main(None);
    }
    if called_as(kubelet::NAME) {
        return kubelet::main();
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A service of a test runs this program under another name.
fn called_as(name: &str) -> bool {
    let own = std::env::args_os().next();
    own.is_some_and(|own| Path::new(&own).file_name() == Some(OsStr::new(name)))
}

/// `--list` prints the names, `--only PART[,PART…]` runs the tests whose name contains one of them.
fn run() -> Result<bool> {
    let mut only = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--list", None) => {
                table::ALL.iter().for_each(|test| println!("{}", test.name));
                return Ok(true);
            }
            ("--only", Some(part)) => only = Some(part),
            // What the census of a test runs as its child.
            (census::CHILD_COMMAND, None) => return Ok(census::serve().map(|()| true)?),
            _ => bail!("unknown argument {argument}: run with --list, or with --only PART"),
        }
    }
    let counts =
        runner::run(table::ALL, only.as_deref(), KernelVersion::running()?, &mut io::stdout().lock())?;
    Ok(counts.ok())
}
