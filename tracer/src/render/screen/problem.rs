//! The screen of a verdict that calls for action: a stall, a failure, slowness, or doubt.

use super::{
    View, advice,
    block::{Block, LABEL, Line, labelled},
    cause, facts, headline, node, versions, waits,
};
use crate::{
    correlate::Snapshot,
    diagnose::{Confidence, Culprit, Failing, Finding, UnknownCause, Verdict},
    input::Command,
    render::{
        escape,
        failing::{advice as advice_of, effect, error, failure},
        human,
        judgement::{sentence, slowness},
        wrap::{GLUE, clip, fold},
    },
    stuck::StuckKind,
    words,
};

/// By then who is to blame and what to type are read.
const TOP: usize = 10;
/// Pieces of evidence where there is no chain.
const EVIDENCE: usize = 3;
/// Other findings, reasons, failures.
const OTHERS: usize = 3;

/// Its blocks, in order.
pub(super) fn blocks(view: View<'_>) -> Vec<Block> {
    let (mut top, first_step) = top(view);
    let rest = rest(view);
    // Air above the first step, where there is room for it.
    let above: usize = top.iter().map(Block::len).sum();
    if above + 1 + first_step <= TOP {
        let place = top.len() - 1;
        top.insert(place, Block::blank(9));
    }
    top.extend(rest);
    top
}

/// What stands above everything: versions and date.
pub(super) fn head(view: View<'_>) -> Vec<Block> {
    let snapshot = view.snapshot;
    let (header, versions) =
        (versions::header(snapshot).join("   "), versions::versions(snapshot).join(", "));
    let one = format!("{header}   {versions}");
    let lines = if one.chars().count() <= view.width {
        vec![Line::Plain(one)]
    } else {
        vec![Line::Plain(clip(&header, view.width)), Line::Plain(clip(&versions, view.width))]
    };
    let lines = lines.into_iter().filter(|line| *line != Line::Plain(String::new())).collect();
    vec![Block::whole(lines), Block::whole(vec![Line::Blank])]
}

/// The verdict in at most `most` lines.
pub(super) fn verdict(view: View<'_>, most: usize) -> Block {
    let (word, text) = headline::parts(view.snapshot, view.diagnosis);
    let first = view.width - word.chars().count() - 2;
    let mut folded = hanging(&text, first, view.width - LABEL).into_iter();
    let mut all = vec![Line::Verdict(word, folded.next().unwrap_or_default())];
    all.extend(folded.map(|text| Line::Labelled("", text)));
    if all.len() > most {
        all.truncate(most);
        if let Some(last) = all.last_mut() {
            last.mark(view.width);
        }
    }
    Block::whole(all)
}

/// Folds with a first line of another width.
fn hanging(text: &str, first: usize, others: usize) -> Vec<String> {
    let head = fold(text, first).into_iter().next().unwrap_or_default();
    let rest = text.get(head.len()..).unwrap_or_default().trim_start();
    let mut lines = vec![head];
    if !rest.is_empty() {
        lines.extend(fold(rest, others));
    }
    lines
}

/// What, who, since when, who suffers, what to do; and how many lines the first step takes.
fn top(view: View<'_>) -> (Vec<Block>, usize) {
    let width = view.width;
    let mut blocks = head(view);
    let verdict = verdict(view, 2);
    let room = if verdict.len() == 1 { 2 } else { 1 };
    blocks.push(verdict);
    let one = |label, text: &str| Block::labelled(label, text, width, 1, 0).at_most(1, width);
    let culprit = culprit(view).or_else(|| cause::cause(view.diagnosis).map(str::to_owned));
    if let Some(culprit) = culprit {
        blocks.push(Block::labelled("culprit", &culprit, width, 1, 0).at_most(room, width));
    }
    if let Some(since) = facts::since_line(view) {
        blocks.push(one("since", &since));
    }
    if let Some(hits) = hits(view) {
        blocks.push(one("hits", &hits));
    }
    blocks.push(one("node", &node::node(view)));
    let steps = advice::steps(&steps(view), width);
    let first = advice::steps(&steps_of(view, 1), width).len().min(2);
    let least = steps.len().min(3);
    blocks.push(Block::cut(steps, least, 2));
    (blocks, first.max(1))
}

fn steps_of(view: View<'_>, most: usize) -> Vec<String> {
    steps(view).into_iter().take(most).collect()
}

/// What not to do, why, what else, what not, how well it was seen.
fn rest(view: View<'_>) -> Vec<Block> {
    let (width, diagnosis) = (view.width, view.diagnosis);
    let mut blocks = Vec::new();
    let accused = diagnosis.accused().first();
    if let Some(finding) = accused {
        blocks.push(Block::cut(advice::trap(finding, width), 1, 3));
    }
    blocks.push(Block::blank(8));
    blocks.extend(why(view));
    let others = others(view);
    if !others.is_empty() {
        let texts = others.iter().take(OTHERS).map(|text| clip(text, width - LABEL)).collect();
        let mut lines = labelled("also", texts);
        if others.len() > OTHERS {
            lines.push(Line::Labelled(
                "",
                format!("{} more, -v", human::count((others.len() - OTHERS) as u64)),
            ));
        }
        blocks.push(Block::cut(lines, 1, 6));
    }
    blocks.push(Block::blank(7));
    if let Some(finding) = accused.filter(|finding| finding.confidence != Confidence::High) {
        let doubt =
            finding.doubts.first().map(|doubt| format!(": {}", escape::line(doubt))).unwrap_or_default();
        let text = format!("{} confidence{doubt}", finding.confidence.name());
        blocks.push(Block::labelled("sure", &text, width, 1, 5));
    }
    let excluded: Vec<&str> = diagnosis.excluded.iter().map(|excluded| excluded.what).collect();
    // What fails may well be one of these: that none of them hangs is no excuse.
    if !excluded.is_empty() && diagnosis.verdict != Verdict::Failing {
        blocks.push(Block::labelled("not", &excluded.join(", "), width, 1, 5));
    }
    blocks.extend(tail(view));
    blocks
}

/// Where to read on, and how well it was seen.
pub(super) fn tail(view: View<'_>) -> Vec<Block> {
    let more = match view.diagnosis.main() {
        Some(finding) => format!("plegtrace explain {}; -v, --show calls,census", finding.rule.id),
        None => "-v, --show calls,census".to_owned(),
    };
    let seen = facts::seen(view.snapshot);
    vec![Block::labelled("more", &more, view.width, 1, 5), Block::labelled("seen", &seen, view.width, 1, 4)]
}

fn culprit(view: View<'_>) -> Option<String> {
    let diagnosis = view.diagnosis;
    let finding = diagnosis.accused().first()?;
    let culprit = finding.culprit.as_ref()?;
    let stuck = facts::stuck_of(finding, &diagnosis.stuck);
    let stuck = stuck.filter(|stuck| Some(stuck.what.pid()) == culprit.pid);
    let Some(stuck) = stuck else { return Some(with_container(&escape::line(&culprit.words), culprit)) };
    let (name, pid) = words::party(stuck);
    let pid = pid.or(culprit.pid).map(|pid| format!(" {pid}")).unwrap_or_default();
    let of = escape::line(&words::of_pod(culprit.container.as_ref()));
    let kind = match &stuck.what {
        StuckKind::Process { command: Command::Cni { .. }, .. } => "CNI plugin ",
        _ => "",
    };
    Some(with_container(&format!("{kind}{}{pid}{of}", escape::text(&name)), culprit))
}

/// With the container, as far as its pod alone does not tell.
fn with_container(text: &str, culprit: &Culprit) -> String {
    let Some(container) = &culprit.container else { return text.to_owned() };
    let id = escape::text(&words::short_id(&container.id));
    if text.contains(&id) {
        return text.to_owned();
    }
    // On one line: a name and its id are one thing.
    let name = container.name.as_deref().map(|name| format!("{}{GLUE}", escape::text_to(name, 40)));
    format!("{text}, container{GLUE}{}{id}", name.unwrap_or_default())
}

fn hits(view: View<'_>) -> Option<String> {
    let diagnosis = view.diagnosis;
    match (diagnosis.failing.first(), diagnosis.slow.first(), diagnosis.accused().first()) {
        (Some(first), ..) => Some(effect(first).to_owned()),
        // Without a culprit that is the headline.
        (None, Some(first), Some(_)) => Some(slowness(first)),
        (None, Some(_), None) => None,
        (None, None, _) => facts::hits(view),
    }
}

/// What to do, the first thing first.
fn steps(view: View<'_>) -> Vec<String> {
    let diagnosis = view.diagnosis;
    if let Some(finding) = diagnosis.accused().first() {
        return finding.next.clone();
    }
    if let Some(first) = diagnosis.failing.first() {
        return vec![advice_of(first).to_owned()];
    }
    match diagnosis.verdict {
        Verdict::Slow => diagnosis.slow.iter().take(1).map(|slow| cause::step(slow).to_owned()).collect(),
        _ => unexplained(view.snapshot, diagnosis.unknown_cause),
    }
}

/// What shows more of a stall without a known cause.
fn unexplained(snapshot: &Snapshot, why: Option<UnknownCause>) -> Vec<String> {
    let is_runtime = |pid: &u32| {
        let mut targets = snapshot.targets.iter();
        targets.any(|target| target.fact.pid == *pid && target.fact.component.role().is_runtime())
    };
    let runtime = snapshot.targets.iter().map(|target| target.fact.pid).find(is_runtime);
    let first = match why {
        Some(UnknownCause::BusNotFollowed) => {
            "`sudo plegtrace --sources all`: runc waits for systemd over D-Bus, which was not followed"
                .to_owned()
        }
        Some(UnknownCause::NoCensus) => {
            "`sudo plegtrace`: no census was taken, which shows what waits for what".to_owned()
        }
        _ => "`sudo plegtrace --show calls,census`: what is in flight, and where it waits".to_owned(),
    };
    let second = runtime.map(|pid| {
        format!("`sudo plegtrace goroutines {pid}`: what every goroutine of the runtime waits for")
    });
    std::iter::once(first).chain(second).collect()
}

/// The chain, or where there is none the weightiest evidence.
fn why(view: View<'_>) -> Vec<Block> {
    let (width, diagnosis) = (view.width, view.diagnosis);
    let chain = waits::lines(&diagnosis.chain, width);
    if !chain.is_empty() {
        let least = chain.len();
        return vec![Block::cut(chain, least, 1)];
    }
    let texts: Vec<String> = match (diagnosis.accused().first(), diagnosis.failing.first()) {
        (Some(finding), _) => evidence(finding),
        (None, Some(failing)) => error(failing).into_iter().collect(),
        (None, None) => diagnosis.chain.iter().map(waits::sentence).collect(),
    };
    let label = if diagnosis.accused().is_empty() && !diagnosis.failing.is_empty() { "error" } else { "why" };
    let blocks = texts.iter().take(EVIDENCE).enumerate().map(|(place, text)| {
        let label = if place == 0 { label } else { "" };
        let rank = if place == 0 { 3 } else { 4 };
        Block::labelled(label, text, width, 1, rank).at_most(2, width)
    });
    blocks.collect()
}

/// What was seen beside what the culprit's line says.
fn evidence(finding: &Finding) -> Vec<String> {
    let culprit = finding.culprit.as_ref().map(|culprit| culprit.words.as_str());
    let texts = finding.evidence.iter().map(|evidence| evidence.text.as_str());
    texts.filter(|text| Some(*text) != culprit && *text != finding.headline).map(escape::line).collect()
}

/// Further findings, reasons and failures, one line each.
fn others(view: View<'_>) -> Vec<String> {
    let (snapshot, diagnosis) = (view.snapshot, view.diagnosis);
    let (accused, notices) = diagnosis.split();
    let of = |finding: &Finding| format!("{}  {}", finding.rule.id, escape::line(&finding.headline));
    let mut all: Vec<String> = accused.iter().skip(1).map(of).collect();
    let skipped = usize::from(accused.is_empty());
    all.extend(diagnosis.unexplained().skip(skipped).map(sentence));
    all.extend(diagnosis.failing.iter().skip(1).map(|failing: &Failing| failure(failing, snapshot)));
    // The first one is the headline, or who is hit.
    let slow = diagnosis.slow.iter().skip(1);
    all.extend(slow.map(slowness));
    all.extend(notices.iter().map(of));
    all
}
