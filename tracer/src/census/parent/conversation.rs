//! Asks a child of plegtrace: gives each process its time, kills the child that is late, starts another one for the rest,
//! and keeps what was told.

use std::time::{Duration, Instant};

use super::{
    merge::Merged,
    protocol::{Answer, HELLO, Order, Step, What},
    request::Request,
    worker::{self, Heard, Worker},
};
use crate::input::Unanswered;

/// A child that got no processor when its time was over gets it so many times more.
const PATIENCE: u32 = 4;

/// Asks until everything is told, the time is over, or too many children were late. Was everything told that was not
/// refused?
pub(super) fn converse(
    request: &Request,
    what: &What,
    each: Duration,
    until: Instant,
    merged: &mut Merged,
) -> bool {
    let mut late = hung(merged);
    for _ in 0..=request.limits.restarts {
        let mut skip = worker::left_behind();
        skip.push(std::process::id());
        let order = Order {
            root: request.root.clone(),
            parent: std::process::id(),
            kubelet: request.kubelet,
            runtime: request.runtime,
            skip,
            foreign: request.foreign.clone(),
            finished: merged.told(what),
            late: late.clone(),
            what: what.clone(),
        };
        let mut worker = match Worker::start(&request.program, &order) {
            Ok(worker) => worker,
            Err(error) => {
                merged.refuse(nobody(format!("cannot start the reader: {error}")));
                return false;
            }
        };
        let silence = listen(&mut worker, each, until, merged);
        let gone = worker.end(silence.question());
        match silence {
            Silence::Done => return true,
            Silence::Greeting(why) => {
                merged.refuse(nobody(why));
                return false;
            }
            Silence::TimeOver(at) => {
                let why = "the time for the whole census was over";
                merged.refuse(at.map_or_else(|| nobody(why.to_owned()), |asked| asked.unanswered(why)));
                return false;
            }
            Silence::Late(asked, why) => {
                let hangs = if gone { "" } else { "; the reader hangs in the kernel and was left behind" };
                merged.refuse(asked.unanswered(&format!("{why}{hangs}")));
                late.push((asked.pid, asked.step));
            }
        }
    }
    merged.refuse(nobody(format!("given up after {} late answers", late.len())));
    false
}

/// What children are still asking since earlier conversations, and cannot be killed: nobody asks it again meanwhile.
fn hung(merged: &mut Merged) -> Vec<(u32, Step)> {
    let questions = worker::questions_left_behind();
    for (pid, step) in &questions {
        let why = "a reader that asked before hangs in the kernel".to_owned();
        let what = step.words().to_owned();
        merged.refuse(Unanswered { pid: *pid, comm: String::new(), what, why });
    }
    questions
}

fn nobody(why: String) -> Unanswered {
    Unanswered { pid: 0, comm: String::new(), what: "census".to_owned(), why }
}

/// A question that was announced.
#[derive(Clone, Debug)]
struct Asked {
    pid: u32,
    comm: String,
    step: Step,
    /// When its process was first asked, and how often it got more time.
    since: Instant,
    extended: u32,
}

impl Asked {
    fn unanswered(&self, why: &str) -> Unanswered {
        let what = self.step.words().to_owned();
        Unanswered { pid: self.pid, comm: self.comm.clone(), what, why: why.to_owned() }
    }

    /// The next question. All questions to one process share its time, except for those that are slow by nature.
    fn next(before: Option<&Self>, pid: u32, comm: String, step: Step) -> Self {
        let same = before.filter(|asked| asked.pid == pid && pid != 0 && step != Step::Names);
        let (since, extended) = same.map_or((Instant::now(), 0), |asked| (asked.since, asked.extended));
        Self { pid, comm, step, since, extended }
    }
}

/// Why a child is not listened to any more.
enum Silence {
    /// It told everything.
    Done,
    /// It is no child of ours.
    Greeting(String),
    /// It did not come back from a question, and why not.
    Late(Asked, String),
    /// All time is over; the last question.
    TimeOver(Option<Asked>),
}

impl Silence {
    /// The question that was not answered.
    fn question(&self) -> Option<(u32, Step)> {
        match self {
            Self::Late(asked, _) | Self::TimeOver(Some(asked)) => Some((asked.pid, asked.step)),
            Self::Done | Self::Greeting(_) | Self::TimeOver(None) => None,
        }
    }
}

fn listen(worker: &mut Worker, each: Duration, until: Instant, merged: &mut Merged) -> Silence {
    let mut asked: Option<Asked> = None;
    let mut greeted = false;
    loop {
        let deadline = match &asked {
            Some(asked) => asked.since + each * (1 + asked.extended),
            // It only has to start.
            None => until,
        };
        match worker.listen(deadline.min(until)) {
            Heard::Answer(answer) => match *answer {
                Answer::Hello(words) if words == HELLO => greeted = true,
                _ if !greeted => return Silence::Greeting("the reader is not plegtrace".to_owned()),
                Answer::Done => return Silence::Done,
                Answer::Asking { pid, comm, step } => {
                    asked = Some(Asked::next(asked.as_ref(), pid, comm, step));
                }
                answer => merged.take(answer),
            },
            Heard::End(why) => {
                return match asked {
                    Some(asked) if greeted => Silence::Late(asked, why),
                    _ => Silence::Greeting(why),
                };
            }
            Heard::Nothing if Instant::now() >= until => return Silence::TimeOver(asked),
            Heard::Nothing => {
                if let Some(asked) = asked.as_mut() {
                    if asked.extended + 1 < PATIENCE && worker.wants_to_run() {
                        asked.extended += 1;
                        continue;
                    }
                    let why = format!("no answer within {} ms", asked.since.elapsed().as_millis());
                    return Silence::Late(asked.clone(), why);
                }
            }
        }
    }
}
