//! [`Recognised`]: which processes are kubelet and runtime by what they are, where a name does not tell or lies.
//!
//! | process | what is read, once | what it means |
//! |---|---|---|
//! | root runs it, and it is called like a kubelet or runtime | headers of its executable | no Go program: it is neither |
//! | root runs it outside of containers, and it listens on a port of kubelets, or asks the runtime as a kubelet does | its functions | those of a kubelet: it is one |
//! | the same, and it holds the socket of a runtime | nothing | it is the runtime |

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use plegtrace_common::role::Role;

use super::survey::Survey;
use crate::{
    cli::Settings,
    probes::{Content, Question, look},
    target::{self, DiscoverError, Process, Suspect},
};

/// How long executables may take that are read before a survey is done: their headers, and their functions.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_OF_FUNCTIONS: Duration = Duration::from_secs(5);
/// Who is late is asked so often at most: each time costs a thread for as long as its disk does not answer.
const MAX_TRIES: u32 = 3;
/// Who was late, and sockets that nobody was found to hold, are looked at again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// Executables whose functions are read for one survey.
const MAX_SUSPECTS: usize = 2;
/// Those whose headers are.
const MAX_NAMED: usize = 8;
/// Processes that are remembered.
const MAX_KNOWN: usize = 64;
/// Surveys until all is known: without an impostor there may be a suspect.
const ROUNDS: u32 = 3;

/// A process by its number and start.
type Life = (u32, u64);

/// How it went to look at a process.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// When it was late, if it was.
    late: Option<Instant>,
    tries: u32,
}

/// What was found out so far.
#[derive(Debug, Default)]
pub(crate) struct Recognised {
    known: Vec<target::Recognised>,
    /// Who was looked at.
    asked: HashMap<Life, Asked>,
    /// Who asks the runtime as a kubelet does.
    lists: Option<u32>,
    fruitless: Option<(Instant, BTreeSet<u64>)>,
}

impl Recognised {
    /// Looks at every process, and at the executables of those of which a name or a socket says what they may be.
    pub(crate) fn survey(&mut self, settings: &Settings) -> Result<Survey, DiscoverError> {
        let mut survey = self.take(settings)?;
        for _ in 1..ROUNDS {
            let questions = self.questions(&survey, settings);
            if questions.is_empty() {
                break;
            }
            let functions = questions.iter().any(|question| question.functions);
            let answers = look(questions, if functions { PATIENCE_OF_FUNCTIONS } else { PATIENCE });
            if !self.learn(&answers, Instant::now()) {
                break;
            }
            survey = self.take(settings)?;
        }
        Ok(survey)
    }

    /// This process asks the runtime as a kubelet does; says whether that is news.
    pub(super) fn suspect(&mut self, pid: u32) -> bool {
        self.lists.replace(pid) != Some(pid)
    }

    fn take(&mut self, settings: &Settings) -> Result<Survey, DiscoverError> {
        let fruitless = self.fruitless.take_if(|(since, _)| since.elapsed() < AGAIN);
        let vain = fruitless.as_ref().map(|(_, inodes)| inodes.clone()).unwrap_or_default();
        let survey = Survey::take_knowing(settings, &self.known, &vain)?;
        self.fruitless = fruitless;
        if !survey.node.unheld.is_empty() {
            let all = survey.node.unheld.union(&vain).copied().collect();
            self.fruitless = Some((Instant::now(), all));
        }
        self.remember(&survey.node.recognised);
        Ok(survey)
    }

    fn questions(&mut self, survey: &Survey, settings: &Settings) -> Vec<Question> {
        let given = [settings.kubelet_pid, settings.runtime_pid];
        let named = survey.node.processes.iter().filter(|process| {
            let component = process.role == Role::Kubelet || process.role.is_runtime();
            component && !process.is_foreign() && !process.is_nested() && !given.contains(&Some(process.pid))
        });
        let question = |process: &Process| Question {
            pid: process.pid,
            started_ns: process.started_ns,
            exe: process.comm.clone(),
            functions: false,
        };
        let mut questions: Vec<Question> = named.map(question).filter(|it| self.is_open(it)).collect();
        questions.truncate(MAX_NAMED);
        let lists = self.lists.filter(|_| survey.node.kubelet().is_none()).and_then(Suspect::of_root);
        let suspects = survey.node.suspects.iter().cloned().chain(lists).map(|suspect| Question {
            pid: suspect.pid,
            started_ns: suspect.started_ns,
            exe: suspect.exe.display().to_string(),
            functions: true,
        });
        let suspects: Vec<Question> = suspects.filter(|it| self.is_open(it)).take(MAX_SUSPECTS).collect();
        questions.extend(suspects);
        questions
    }

    fn is_open(&self, question: &Question) -> bool {
        match self.asked.get(&(question.pid, question.started_ns)) {
            None => true,
            Some(Asked { late, tries }) => {
                *tries < MAX_TRIES && late.is_some_and(|late| late.elapsed() >= AGAIN)
            }
        }
    }

    /// Takes answers; says whether another survey would show something else.
    fn learn(&mut self, answers: &[(Question, Content)], now: Instant) -> bool {
        if self.asked.len() + answers.len() > 16 * MAX_KNOWN {
            // Whoever lives is looked at once more.
            self.asked.clear();
        }
        let mut learnt = Vec::new();
        for (Question { pid, started_ns, functions, .. }, content) in answers {
            let asked = self.asked.entry((*pid, *started_ns)).or_default();
            asked.late = (*content == Content::Late).then_some(now);
            asked.tries += 1;
            let role = match content {
                Content::Kubelet => Some(Role::Kubelet),
                Content::NotGo if !functions => None,
                Content::NotGo | Content::Other | Content::Late => continue,
            };
            learnt.push(target::Recognised { pid: *pid, started_ns: *started_ns, role });
        }
        self.remember(&learnt)
    }

    /// Keeps what is new; says whether anything is. The oldest makes room.
    fn remember(&mut self, found: &[target::Recognised]) -> bool {
        let fresh: Vec<_> = found.iter().filter(|it| !self.known.contains(it)).copied().collect();
        for one in &fresh {
            self.known.retain(|known| known.pid != one.pid);
            self.known.push(*one);
        }
        let over = self.known.len().saturating_sub(MAX_KNOWN);
        self.known.drain(..over);
        !fresh.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(pid: u32, functions: bool) -> Question {
        Question { pid, started_ns: u64::from(pid), exe: String::new(), functions }
    }

    /// Each is asked once, and once more when it was late; what it is is remembered, within bounds.
    #[test]
    fn asked_once() {
        let (mut all, now) = (Recognised::default(), Instant::now());
        let fake = (question(7, false), Content::NotGo);
        assert!(all.is_open(&fake.0) && all.learn(std::slice::from_ref(&fake), now) && !all.is_open(&fake.0));
        assert_eq!(all.known, [target::Recognised { pid: 7, started_ns: 7, role: None }]);
        assert!(!all.learn(&[fake], now), "nothing new");
        let kubelet = (question(8, true), Content::Kubelet);
        assert!(all.learn(&[kubelet], now));
        assert_eq!(all.known[1].role, Some(Role::Kubelet));
        let others = [(question(9, true), Content::Other), (question(10, true), Content::NotGo)];
        assert!(!all.learn(&others, now), "who listens there may be anything");
        let late = (question(11, true), Content::Late);
        let before = now.checked_sub(AGAIN).unwrap();
        assert!(!all.learn(std::slice::from_ref(&late), now) && !all.is_open(&late.0));
        all.learn(std::slice::from_ref(&late), before);
        assert!(all.is_open(&late.0));
        all.learn(std::slice::from_ref(&late), before);
        assert!(!all.is_open(&late.0), "not for ever");
        for pid in 100..2000 {
            all.learn(&[(question(pid, false), Content::NotGo)], now);
        }
        assert!(all.known.len() <= MAX_KNOWN && all.asked.len() <= 16 * MAX_KNOWN);
    }
}
