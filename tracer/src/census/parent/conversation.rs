//! Asks a child of plegtrace: gives each process its time, kills the child that is late, starts another one for the rest,
//! and keeps the answers.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    merge::Merged,
    pool::{self, Question},
    request::{Limits, Request},
    worker::{Heard, Worker},
};
use crate::{
    census::protocol::{Answer, HELLO, Job, Order, Step},
    input::Unanswered,
};

/// Why there is no answer, of a question whose reader cannot even be killed: at the end.
pub const HANGS: &str = "; the reader hangs in the kernel and was left behind";
/// A child that got no processor when its time was over gets it so many times more.
const PATIENCE: u32 = 4;

/// What others than the node's own processes may take: a quarter of the time, of the late answers, and of the readers that
/// hang in the kernel. A container can make whoever asks it wait, as often as it has processes.
#[derive(Debug)]
struct Share {
    left: Duration,
    late: u32,
}

impl Share {
    fn new(limits: &Limits, until: Instant, questions: &[Question]) -> Self {
        let hang = questions.iter().any(|question| question.elsewhere);
        let left = if hang { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) / 4 };
        Self { left, late: (limits.restarts / 4).max(1) }
    }

    /// One of the others was asked for so long.
    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// One of the others was late; `hangs`: its reader cannot be killed.
    fn was_late(&mut self, hangs: bool) {
        self.late = self.late.saturating_sub(1);
        if self.late == 0 || hangs {
            self.left = Duration::ZERO;
        }
    }
}

/// Asks until everything is told, the time is over, or too many children were late. Was everything told that was not
/// refused?
pub(super) fn converse(
    request: &Request,
    what: &Job,
    each: Duration,
    until: Instant,
    merged: &mut Merged,
) -> bool {
    let hung = hung(merged);
    let mut share = Share::new(&request.limits, until, &hung);
    let mut late: Vec<(u32, Step)> = hung.iter().map(|question| (question.pid, question.step)).collect();
    for _ in 0..=request.limits.restarts {
        let order = order(request, what, &share, &late, merged);
        let (worker, silence) = match say(request, &order, (each, until), &mut share, merged) {
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
                let why = "the census ran out of time";
                merged.refuse(at.map_or_else(|| nobody(why.to_owned()), |asked| asked.unanswered(why)));
                return false;
            }
            Silence::Late(asked, why) => {
                let hangs = if gone { "" } else { HANGS };
                merged.refuse(asked.unanswered(&format!("{why}{hangs}")));
                late.push((asked.pid, asked.step));
                if asked.elsewhere {
                    share.was_late(!gone);
                }
            }
        }
    }
    merged.refuse(nobody(format!("gave up after {} late answers", late.len())));
    false
}

fn order(request: &Request, what: &Job, share: &Share, late: &[(u32, Step)], merged: &Merged) -> Order {
    let mut skip = pool::pids();
    skip.push(std::process::id());
    Order {
        root: request.root.clone(),
        files_of: request.files_of,
        parent: std::process::id(),
        kubelet: request.kubelet,
        runtime: request.runtime,
        skip,
        foreign: request.foreign.clone(),
        shims_call: request.shims_call.clone(),
        of_user: request.of_user,
        connections: request.connections,
        finished: merged.told(what),
        namespace: request.namespace,
        others_ms: u64::try_from(share.left.as_millis()).unwrap_or(u64::MAX),
        late: late.to_vec(),
        plugins: request.plugins,
        what: what.clone(),
    }
}

/// Gives an order to the child that waits for one, else to a new one, and listens to the end. One that waited and does
/// not even greet has ended meanwhile, or was stopped: a new one takes its place.
fn say(
    request: &Request,
    order: &Order,
    (each, until): (Duration, Instant),
    share: &mut Share,
    merged: &mut Merged,
) -> io::Result<(Worker, Silence)> {
    let idle = if order.what.is_for_one() { None } else { pool::take_idle(&request.program) };
    if let Some(mut worker) = idle {
        let told = worker.order(order);
        match told.map(|()| greeting(&mut worker, each, until)) {
            Ok(None) => {
                let silence = listen(&mut worker, (each, until), share, merged);
                return Ok((worker, silence));
            }
            Ok(Some(_)) | Err(_) => drop(pool::end(worker, None)),
        }
    }
    let mut worker = pool::start(&request.program, until)?;
    // What it did not take it cannot answer.
    let patience = until.saturating_duration_since(Instant::now());
    let silence = match worker.order(order) {
        Ok(()) => greeting(&mut worker, patience, until)
            .unwrap_or_else(|| listen(&mut worker, (each, until), share, merged)),
        Err(error) => Silence::Greeting(error.to_string()),
    };
    Ok((worker, silence))
}

/// Waits for the first line for so long; `None` when it is right. A child that gets no processor has more time.
fn greeting(worker: &mut Worker, patience: Duration, until: Instant) -> Option<Silence> {
    let began = Instant::now();
    for extended in 1..=PATIENCE {
        match worker.listen(until.min(began + patience * extended)) {
            Heard::Answer(answer) if *answer == Answer::Hello(HELLO.to_owned()) => return None,
            Heard::Answer(_) => return Some(Silence::Greeting("the reader is not plegtrace".to_owned())),
            Heard::End(why) => return Some(Silence::Greeting(why)),
            Heard::Nothing if Instant::now() < until && worker.wants_to_run() => {}
            Heard::Nothing => break,
        }
    }
    Some(Silence::TimeOver(None))
}

/// What children are still asking since earlier conversations, and cannot be killed: nobody asks it again meanwhile.
fn hung(merged: &mut Merged) -> Vec<Question> {
    let questions = pool::questions_left_behind();
    for Question { pid, step, .. } in &questions {
        let why = "an earlier reader hangs in the kernel".to_owned();
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
    elsewhere: bool,
}

impl Asked {
    fn unanswered(&self, why: &str) -> Unanswered {
        let what = self.step.words().to_owned();
        Unanswered { pid: self.pid, comm: self.comm.clone(), what, why: why.to_owned() }
    }

    /// The next question. All questions to one process share its time, except for those that are slow by nature.
    fn next(before: Option<&Self>, (pid, comm): (u32, String), step: Step, elsewhere: bool) -> Self {
        let same = before.filter(|asked| asked.pid == pid && pid != 0 && step != Step::Names);
        let (since, extended) = same.map_or((Instant::now(), 0), |asked| (asked.since, asked.extended));
        Self { pid, comm, step, since, extended, elsewhere }
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
    fn question(&self) -> Option<Question> {
        match self {
            Self::Late(asked, _) | Self::TimeOver(Some(asked)) => {
                Some(Question { pid: asked.pid, step: asked.step, elsewhere: asked.elsewhere })
            }
            Self::Done | Self::Greeting(_) | Self::TimeOver(None) => None,
        }
    }
}

fn listen(
    worker: &mut Worker,
    (each, until): (Duration, Instant),
    share: &mut Share,
    merged: &mut Merged,
) -> Silence {
    let mut asked: Option<Asked> = None;
    let mut heard = Instant::now();
    loop {
        let deadline = match &asked {
            Some(asked) => asked.since + each * (1 + asked.extended),
            // It only has to start.
            None => until,
        };
        let said = worker.listen(deadline.min(until));
        if asked.as_ref().is_some_and(|asked| asked.elsewhere) {
            share.spend(heard.elapsed());
        }
        heard = Instant::now();
        match said {
            Heard::Answer(answer) => match *answer {
                Answer::Done => return Silence::Done,
                Answer::Unconfined { why } => {
                    tracing::debug!("the reader keeps more rights than it needs: {why}");
                }
                Answer::Asking { pid, comm, step, elsewhere } => {
                    asked = Some(Asked::next(asked.as_ref(), (pid, comm), step, elsewhere));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Others have a quarter of the time and of the late answers, and none after the first reader that hangs over one.
    #[test]
    fn shares() {
        let limits = Limits { restarts: 8, ..Limits::default() };
        let until = Instant::now() + Duration::from_secs(8);
        let share_of =
            |elsewhere| Share::new(&limits, until, &[Question { pid: 7, step: Step::Path, elsewhere }]);
        let mut share = share_of(false);
        assert!((1900..=2000).contains(&share.left.as_millis()), "{share:?}");
        share.spend(Duration::from_millis(500));
        share.was_late(false);
        assert!((1400..=1500).contains(&share.left.as_millis()), "{share:?}");
        share.was_late(false);
        assert_eq!(share.left, Duration::ZERO);
        assert_eq!(share_of(true).left, Duration::ZERO, "one hangs already");
        let mut share = share_of(false);
        share.was_late(true);
        assert_eq!(share.left, Duration::ZERO);
        let mut share = share_of(false);
        share.spend(Duration::from_secs(9));
        assert_eq!(share.left, Duration::ZERO);
    }
}
