//! A wrong kernel offset is noticed: no call is seen and the reason is counted, so a table of tests with a wrong
//! offset in it is red. The same probes with the right offsets are the proof that nothing else is wrong.

use anyhow::{Context as _, Result, ensure};
use plegtrace::input::{Component, next_frame};
use plegtrace::kernel::{AttachMode, Kernel, LoadOptions};
use plegtrace_common::key::Watched;
use plegtrace_common::kind::RecKind;

use crate::cri::Client;
use crate::machine::{self, Containerd};

/// Calls made per attempt.
const CALLS: usize = 5;
/// Reasons that an offset is wrong.
const BLIND: [&str; 2] = ["unknown_site", "kernel_unreadable"];

/// What one attempt saw.
#[derive(Debug)]
struct Attempt {
    calls: usize,
    blind: Vec<(String, u64)>,
}

/// Traces with right offsets, then with one and with another wrong one.
///
/// # Errors
/// When a wrong offset goes unnoticed, or the right ones do not work.
pub fn run() -> Result<String> {
    let right = machine::load_options(AttachMode::PerfAddress)?;
    let control = attempt(&right).context("with the right offsets")?;
    ensure!(control.calls == CALLS && control.blind.is_empty(), "with the right offsets: {control:?}");
    let (mut file, mut code) = (right, right);
    file.settings.mm_exe_file += 8;
    code.settings.mm_start_code += 8;
    let mut said = Vec::new();
    for (name, wrong) in [("mm_exe_file", file), ("mm_start_code", code)] {
        let seen = attempt(&wrong).with_context(|| format!("with a wrong {name}"))?;
        ensure!(seen.calls == 0, "{} calls with a wrong {name}", seen.calls);
        ensure!(!seen.blind.is_empty(), "no reason is counted with a wrong {name}");
        said.push(format!("{name}+8: {:?}", seen.blind));
    }
    Ok(format!("right: {CALLS} calls; {}", said.join("; ")))
}

fn attempt(options: &LoadOptions) -> Result<Attempt> {
    let containerd = Containerd::running()?;
    let client = Client::connect()?;
    // Sites are reached by the file that was analysed, which must stay open.
    let inspected = containerd.inspect()?;
    let plan = machine::plan(&inspected);
    let [binary] = &plan.binaries[..] else { anyhow::bail!("{} executables planned", plan.binaries.len()) };
    let mut kernel = Kernel::load(options)?;
    kernel.watch(containerd.pid, Watched::found(Component::Containerd.role()))?;
    kernel.attach(0, binary)?;
    for _ in 0..CALLS {
        client.call("ListContainers")?;
    }
    let mut calls = 0;
    kernel.drain(&mut |mut bytes| {
        calls += usize::from(next_frame(&mut bytes).is_ok_and(|frame| frame.kind == RecKind::Call));
    });
    let blind = kernel.reasons()?.into_iter().filter(|count| BLIND.contains(&count.reason.as_str()));
    Ok(Attempt { calls, blind: blind.map(|count| (count.reason, count.count)).collect() })
}
