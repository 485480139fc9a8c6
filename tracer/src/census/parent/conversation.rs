//! Asks a child of plegtrace: gives each process its time, kills the child that is late, starts another one for the rest,
//! and keeps what was told.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    merge::Merged,
    pool,
    request::Request,
    worker::{Heard, Worker},
};
use crate::{
    census::protocol::{Answer, HELLO, Order, Step, What},
    input::Unanswered,
};

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
        let mut skip = pool::pids();
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
        let (worker, silence) = match say(request, &order, each, until, merged) {
            Ok(said) => said,
            Err(error) => {
                merged.refuse(nobody(format!("cannot start the reader: {error}")));
                return false;
            }
        };
        if matches!(silence, Silence::Done) && !what.is_for_one() {
            pool::keep(&request.program, worker);
            return true;
        }
        let gone = pool::end(worker, silence.question());
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

/// Gives an order to the child that waits for one, else to a new one, and listens to the end. One that waited and does
/// not even greet has ended meanwhile, or was stopped: a new one takes its place.
fn say(
    request: &Request,
    order: &Order,
    each: Duration,
    until: Instant,
    merged: &mut Merged,
) -> io::Result<(Worker, Silence)> {
    let idle = if order.what.is_for_one() { None } else { pool::take_idle(&request.program) };
    if let Some(mut worker) = idle {
        let told = worker.order(order);
        match told.map(|()| greeting(&mut worker, until.min(Instant::now() + each))) {
            Ok(None) => {
                let silence = listen(&mut worker, each, until, merged);
                return Ok((worker, silence));
            }
            Ok(Some(_)) | Err(_) => drop(pool::end(worker, None)),
        }
    }
    let mut worker = pool::start(&request.program, until)?;
    // What it did not take it cannot answer.
    let silence = match worker.order(order) {
        Ok(()) => greeting(&mut worker, until).unwrap_or_else(|| listen(&mut worker, each, until, merged)),
        Err(error) => Silence::Greeting(error.to_string()),
    };
    Ok((worker, silence))
}

/// Waits for the first line; `None` when it is right.
fn greeting(worker: &mut Worker, deadline: Instant) -> Option<Silence> {
    // It only has to be given the processor.
    let mut extended = 0;
    let began = Instant::now();
    let patience = deadline.saturating_duration_since(began);
    loop {
        match worker.listen(began + patience * (1 + extended)) {
            Heard::Answer(answer) if *answer == Answer::Hello(HELLO.to_owned()) => return None,
            Heard::Answer(_) => return Some(Silence::Greeting("the reader is not plegtrace".to_owned())),
            Heard::End(why) => return Some(Silence::Greeting(why)),
            Heard::Nothing if extended + 1 < PATIENCE && worker.wants_to_run() => extended += 1,
            Heard::Nothing => return Some(Silence::TimeOver(None)),
        }
    }
}

/// What children are still asking since earlier conversations, and cannot be killed: nobody asks it again meanwhile.
fn hung(merged: &mut Merged) -> Vec<(u32, Step)> {
    let questions = pool::questions_left_behind();
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
    loop {
        let deadline = match &asked {
            Some(asked) => asked.since + each * (1 + asked.extended),
            // It only has to start.
            None => until,
        };
        match worker.listen(deadline.min(until)) {
            Heard::Answer(answer) => match *answer {
                Answer::Done => return Silence::Done,
                Answer::Asking { pid, comm, step } => {
                    asked = Some(Asked::next(asked.as_ref(), pid, comm, step));
                }
                answer => merged.take(answer),
            },
            Heard::End(why) => {
                return match asked {
                    Some(asked) => Silence::Late(asked, why),
                    None => Silence::Greeting(why),
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
