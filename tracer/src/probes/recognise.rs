//! What a process is by its executable. Reading one can take as long as a disk does, so each is read by a thread of its own.

use std::{
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use super::{inspect::Inspected, memory::give_memory_back};
use crate::{
    input::Component,
    plan::Class,
    target::{RefuseReason, exe_link, is_go},
};

/// What is asked about an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) pid: u32,
    pub(crate) started_ns: u64,
    /// Its path, for people.
    pub(crate) exe: String,
    /// Has it the functions of a kubelet? Else: is it a Go program, which its headers tell?
    pub(crate) functions: bool,
}

/// What is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The functions of a kubelet.
    Kubelet,
    /// No Go program: neither kubelet nor runtime.
    NotGo,
    /// Neither is known.
    Other,
    /// It has not answered in time.
    Late,
}

/// Reads the executables of these, for no longer than `patience`.
pub(crate) fn look(questions: Vec<Question>, patience: Duration) -> Vec<(Question, Content)> {
    let (say, heard) = channel();
    let mut answers: Vec<(Question, Content)> = Vec::new();
    for (place, question) in questions.into_iter().enumerate() {
        answers.push((question.clone(), Content::Late));
        let say = say.clone();
        let read = move || {
            let _ = say.send((place, content(&question)));
        };
        if let Err(error) = thread::Builder::new().name("recognise".to_owned()).spawn(read) {
            tracing::warn!("cannot read an executable: {error}");
        }
    }
    drop(say);
    let until = Instant::now() + patience;
    while let Ok((place, content)) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[place].1 = content;
    }
    if answers.iter().any(|(question, _)| question.functions) {
        give_memory_back();
    }
    answers
}

fn content(question: &Question) -> Content {
    if !question.functions {
        return if is_go(&exe_link(question.pid)) == Some(false) { Content::NotGo } else { Content::Other };
    }
    match Inspected::of_process(Component::Kubelet, question.pid, &question.exe) {
        Ok(inspected) => {
            let relists = |class| class == Class::Relist;
            let found = inspected.facts.functions.iter().any(|function| relists(function.wanted.row.class));
            if found { Content::Kubelet } else { Content::Other }
        }
        Err(RefuseReason::NotGo) => Content::NotGo,
        Err(_) => Content::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// We are no Go program, whichever way one asks; who is gone is nothing.
    #[test]
    fn what_we_are() {
        let of = |pid, functions| {
            let question = Question { pid, started_ns: 1, exe: "x".to_owned(), functions };
            look(vec![question], Duration::from_secs(60))[0].1
        };
        let us = std::process::id();
        assert_eq!([of(us, false), of(us, true)], [Content::NotGo; 2]);
        assert_eq!([of(u32::MAX, false), of(u32::MAX, true)], [Content::Other; 2]);
        let question = Question { pid: us, started_ns: 1, exe: "x".to_owned(), functions: true };
        assert_eq!(look(vec![question.clone()], Duration::ZERO), [(question, Content::Late)]);
    }
}
