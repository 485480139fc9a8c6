//! [`RuncFiles`]: which files runc is, so that its phases are seen.
//!
//! A runc lives for milliseconds, so its file is found in two ways: where the runtime looks for programs, and from every
//! runc that is still running when the record of its exec is read. That also finds a runc that is named in the runtime's
//! configuration, and one that replaced another. All of this is done in a thread of its own, after the probes of
//! kubelet and runtime are on.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use plegtrace_common::{
    rec::{PROCESS_AGAIN, PROCESS_CRUN, PROCESS_INIT},
    role::Role,
};

use super::{inspect::Inspected, memory::give_memory_back};
use crate::{
    census,
    decode::{Process, Step},
    input::{Component, RefusedFact},
    kernel::AttachMode,
    target::{FileVersion, Program, RefuseReason, share_mounts},
};

/// The name by which runtimes look for it.
const NAME: &str = "runc";
/// Most files that are analysed: a node has one, two while it is upgraded.
const MAX_FILES: usize = 6;
/// Questions that may wait.
const QUEUE: usize = 64;

/// A file of runc, with its path.
pub(crate) type Found = (String, Result<Inspected, RefuseReason>);

/// Finds the files of runc while an observation goes on.
#[derive(Debug)]
pub(crate) struct RuncFiles {
    questions: SyncSender<Question>,
    found: Receiver<Found>,
}

#[derive(Debug)]
enum Question {
    /// Which runc does this runtime find?
    Runtime(Box<census::Request>, u32),
    /// Which one is this process?
    Process(u32),
}

impl RuncFiles {
    /// Starts to look.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (questions, asked) = sync_channel(QUEUE);
        let (answers, found) = sync_channel(MAX_FILES);
        let look = move || {
            let mut search = Search::default();
            for question in asked {
                if let Some(found) = search.answer(&question) {
                    give_memory_back();
                    // Nobody listens any more: then nobody asks either.
                    let _ = answers.send(found);
                }
            }
        };
        std::thread::Builder::new().name("runc".to_owned()).spawn(look)?;
        Ok(Self { questions, found })
    }

    /// A runtime was found.
    pub(crate) fn runtime(&self, request: census::Request, pid: u32) {
        // When the queue is full, the next runc tells.
        let _ = self.questions.try_send(Question::Runtime(Box::new(request), pid));
    }

    /// A process stepped: it may have become a runc.
    pub(crate) fn step(&self, process: &Process) {
        if let Some(pid) = runc_of(process) {
            let _ = self.questions.try_send(Question::Process(pid));
        }
    }

    /// The files found since the last time.
    pub(crate) fn take(&self) -> Vec<Found> {
        self.found.try_iter().collect()
    }
}

/// The process that has just become a runc, for a part of the node, and from its file: `runc init` may be started from a
/// copy, or through a mount over the file; and crun has no phases.
fn runc_of(process: &Process) -> Option<u32> {
    let from_file = process.flags & (PROCESS_INIT | PROCESS_AGAIN | PROCESS_CRUN) == 0;
    let of_node = !matches!(process.parent_role, Role::None | Role::Workload);
    let became = process.step == Step::Exec && process.role == Role::Runc;
    (became && from_file && of_node).then_some(process.meta.tgid)
}

/// What is known so far.
#[derive(Debug, Default)]
struct Search {
    known: HashSet<FileVersion>,
    /// The runtime, whose mounts the files of runc are on.
    runtime: Option<u32>,
    /// Where it found the last one.
    directory: Option<PathBuf>,
}

impl Search {
    fn answer(&mut self, question: &Question) -> Option<Found> {
        let program = match question {
            Question::Runtime(request, pid) => {
                self.runtime = Some(*pid);
                let program = Program::find(*pid, &census::search_path(request, *pid), NAME)?;
                self.directory = program.path.parent().map(Path::to_owned);
                program
            }
            Question::Process(pid) => self.program(*pid)?,
        };
        if self.known.len() >= MAX_FILES || !self.known.insert(program.version) {
            return None;
        }
        let path = program.path.display().to_string();
        Some((path, Inspected::of_program(Component::Runc, program)))
    }

    /// What a runc runs, when it is one of the node's: what has mounts of its own is in a container, which can make whoever
    /// opens a file of it wait. One that has ended may have been of another file than those before.
    fn program(&self, pid: u32) -> Option<Program> {
        let runtime = self.runtime.unwrap_or_else(std::process::id);
        if share_mounts(pid, runtime)
            && let Ok(Some(program)) = Program::of_process(pid)
        {
            return Some(program);
        }
        Program::find(runtime, std::slice::from_ref(self.directory.as_ref()?), NAME)
    }
}

/// A `runc init` may be started through an overlay over the file of runc (1.2 and later): its text is that file, and the
/// probes fire, but its program is another file. Where sites are found by the program, such a hit would be a loss.
pub(crate) fn can_tell_copies(mode: AttachMode) -> bool {
    mode != AttachMode::PerfAddress
}

/// Why runc is not probed then.
pub(crate) fn copies_refused() -> RefusedFact {
    RefusedFact {
        source: "uprobes".to_owned(),
        component: Some(Component::Runc),
        what: NAME.to_owned(),
        why: "on this kernel a runc init that runs from a sealed copy would not be recognised".to_owned(),
        matters: false,
    }
}

/// The runc that a runtime finds, once.
pub(crate) fn found_by(request: census::Request, runtime: u32) -> Option<Found> {
    Search::default().answer(&Question::Runtime(Box::new(request), runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is told once, and again when it is another one.
    #[test]
    fn files_are_told_once() {
        let mut search = Search::default();
        let own = Question::Process(std::process::id());
        let (path, refused) = search.answer(&own).unwrap();
        assert_eq!(path, std::env::current_exe().unwrap().display().to_string());
        assert!(refused.is_err(), "this test is no Go program");
        assert!(search.answer(&own).is_none());
        assert!(search.answer(&Question::Process(u32::MAX)).is_none(), "it has ended, and no place is known");
    }
}
