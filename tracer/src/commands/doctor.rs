//! `plegtrace doctor` and `--dry-run`: every check and every probe, nothing attached.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
};

use super::{CommandError, output};
use crate::{
    chain::chain,
    checks::{Check, State},
    cli::{Output, Settings, SocketBackend},
    clock,
    engine::{EngineError, Recognised, checks, node_and_kernel},
    exit::Exit,
    input::RefusedFact,
    kernel::{AttachMode, KernelError, WireProbes},
    preflight::{attach_mode, unproved},
    probes::{self, Probes},
    render::doctor::{self, DoctorView, Verdict, files, programs},
    target::KernelOffsets,
};

/// Looks, plans, verifies, prints. The exit code says whether plegtrace can run here.
///
/// # Errors
///
/// The report cannot be written, or the operator named a process that does not exist.
pub(crate) fn run(settings: &Settings) -> Result<Exit, CommandError> {
    let mut checked = checks::run(settings);
    checked.report.checks.push(wire(settings.socket_backend));
    let mode = attach_mode(&checked.features, settings.attach).unwrap_or(AttachMode::Multi);
    let survey = Recognised::default().survey(settings).map_err(EngineError::from)?;
    let mut probes = Probes::new(mode, true, &settings.without);
    probes.inspect(&survey.wanted());
    let asked = survey.runtime_to_ask(settings).filter(|_| probes::can_tell_copies(mode));
    let found = asked.and_then(|(request, pid)| probes::found_by(request, pid));
    probes.take_files(found.into_iter().collect());
    let mut refused = probes.plan().refused.clone();
    refused.extend((!probes::can_tell_copies(mode)).then(probes::copies_refused));
    refused.extend(probes.verify());
    refused.extend(survey.ambiguous_runtime().map(choice));
    let targets = survey.targets(&probes, clock::boottime_offset_ns());
    let why = |t: &crate::input::TargetFact| {
        unproved(t.component, &t.exe, std::env::consts::ARCH).map(str::to_owned)
    };
    let (node, kernel) = node_and_kernel();
    let view = DoctorView {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        kernel,
        report: checked.report,
        programs: [programs(&targets, probes.plan(), why), files(probes.plan(), |b| probes.file_facts(b))]
            .concat(),
        presence: survey.node.presence.clone(),
        refused,
    };
    write(&view, settings).map_err(CommandError::Write)?;
    Ok(if view.verdict() == Verdict::CannotRun { Exit::CannotRun } else { Exit::Healthy })
}

/// Is the source that is on only when it is asked for possible here? Nothing else needs it.
fn wire(wanted: SocketBackend) -> Check {
    let check = |state, detail: String| Check::new("wire", "requests on sockets", state, detail);
    match KernelOffsets::load(Path::new("/")).and_then(|offsets| offsets.wire()) {
        Ok(_) => match how(WireProbes::candidates(wanted)) {
            Some(how) => check(State::Ok, format!("gRPC, ttrpc, Docker's HTTP and D-Bus: {how}")),
            None => check(State::Warn, format!("{}; leave out --socket-backend", KernelError::Preempted)),
        },
        Err(error) => check(State::Warn, format!("not possible: {}", chain(&error))),
    }
}

/// What `wire` would put probes on; nothing is loaded to find out.
fn how(candidates: &[WireProbes]) -> Option<&'static str> {
    let best = candidates.first()?;
    Some(match best {
        WireProbes::Functions if candidates.len() > 1 => {
            "probes on the kernel's socket functions, or on every system call where it takes none"
        }
        WireProbes::Functions => "probes on the kernel's socket functions",
        WireProbes::RawTracepoints => "probes on every system call",
        WireProbes::Events => "probes on system calls that read or write",
    })
}

fn choice(why: String) -> RefusedFact {
    RefusedFact {
        source: "uprobes".to_owned(),
        component: None,
        what: "container runtime".to_owned(),
        why,
        matters: true,
    }
}

fn write(view: &DoctorView, settings: &Settings) -> io::Result<()> {
    let stdout = io::stdout();
    let colour = output::colour(settings.color, stdout.is_terminal());
    let mut out = io::BufWriter::new(stdout.lock());
    match settings.output {
        Output::Json => doctor::json(view, &mut out)?,
        Output::Text | Output::Folded | Output::Svg | Output::Perfetto => {
            doctor::text(view, colour, &mut out)?;
        }
    }
    out.flush()
}
