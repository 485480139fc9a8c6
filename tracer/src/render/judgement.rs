//! [`sentence`] and [`doubt`]: what is held up, and why nothing can be said, in words that are safe to print.

use crate::{
    correlate::{
        Age, Doing, Place, RecentKind,
        thresholds::{EVENTED_PERIOD_NS, RELIST_PERIOD_NS},
    },
    cri::Method,
    diagnose::{Doubt, Peer, Reason, Slow, SlowKind},
    input::Component,
    render::{
        escape,
        human::{self, duration},
    },
    span::Leg,
    words,
};

/// A reason in words.
#[must_use]
pub(super) fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::Down { component, evidence } => {
            format!("{} does not run: {}", component.name(), escape::text(evidence))
        }
        Reason::Stuck(stuck) => escape::line(&words::sentence(stuck)),
        Reason::RelistOpen { age_ns, waiting_in, of_pod } => {
            let which = if *of_pod { "relist of one pod" } else { "relist" };
            let age = duration(*age_ns);
            waiting_in.as_ref().map_or_else(
                || format!("{which} open {age}, in no traced call"),
                |operation| format!("{which} open {age}, waiting in {}", escape::text(operation)),
            )
        }
        Reason::ListStale { age, failing: true } => {
            format!("relists fail, last successful list {}", age_of(*age))
        }
        Reason::ListStale { age, failing: false } => format!("last successful list {}", age_of(*age)),
        Reason::Abandoned { operation, component, count, oldest_ns } => format!(
            "{} abandoned {} in {} (the kubelet gave up), oldest {}",
            human::count(*count),
            escape::text(operation),
            component.name(),
            duration(*oldest_ns)
        ),
        Reason::CallsOpen { operation, component, count, oldest_ns, .. } => {
            let calls = if *count == 1 { "" } else { &format!("{} calls of ", human::count(*count)) };
            let oldest = if *count == 1 { "open" } else { "open, oldest" };
            let mut text = format!(
                "{calls}{} in {} {oldest} {}",
                escape::text(operation),
                component.name(),
                duration(*oldest_ns)
            );
            let deadline = Method::from_name(operation).and_then(Method::deadline_ns);
            if let Some(limit) = deadline.filter(|limit| oldest_ns > limit) {
                let limit = human::minutes(limit);
                text.push_str(&format!(" (older than the kubelet's deadline of {limit})"));
            }
            text
        }
        Reason::RequestsOpen { method, count, oldest_ns, asker, answerer } => {
            let (calls, age) = (escape::text_to(method, 40), duration(*oldest_ns));
            let what = match *count {
                1 => format!("{calls} without an answer for {age}"),
                count => format!("{} calls of {calls} without an answer, oldest {age}", human::count(count)),
            };
            let answerer = answerer.map_or("a process that is not known".to_owned(), peer);
            format!("{what}: sent by {} to {answerer}", peer(*asker))
        }
        Reason::ProcessesOpen { kind, count, oldest_ns, pid, container } => {
            let many = if *count == 1 { "" } else { &format!("{} × ", human::count(*count)) };
            let oldest = if *count == 1 { "runs" } else { "run, oldest" };
            let container =
                container.as_deref().map(|id| format!(", container {}", escape::text(&words::short_id(id))));
            format!(
                "{many}{} {oldest} {} (pid {pid}{})",
                escape::text(&kind.to_string()),
                duration(*oldest_ns),
                container.unwrap_or_default()
            )
        }
    }
}

/// What is slow, in words.
#[must_use]
pub(super) fn slowness(slow: &Slow) -> String {
    let (what, verb) = match &slow.what {
        SlowKind::Relists => ("relists".to_owned(), "take"),
        SlowKind::Recent(RecentKind::Calls(method)) => (method.name().to_owned(), "takes"),
        SlowKind::Recent(RecentKind::Runc { by, sub }) => {
            (format!("{} {}", by.name(), escape::text(sub)), "takes")
        }
        SlowKind::Recent(RecentKind::Cni { plugin, action }) => {
            let action = action.as_ref().map(|action| format!(" {}", escape::text(action)));
            (format!("CNI plugin {}{}", escape::text(plugin), action.unwrap_or_default()), "takes")
        }
        SlowKind::Recent(RecentKind::Hook(program)) => {
            (format!("OCI hook {}", escape::text(program)), "takes")
        }
        SlowKind::Recent(RecentKind::Shim(pid)) => {
            let pod = escape::line(&words::of_pod(slow.container.as_ref()));
            (format!("shim {pid}{pod}"), "takes")
        }
    };
    let (p50, normal) = (duration(slow.p50_ns), duration(slow.normal_ns));
    let count = human::count(slow.count);
    let part = slow.part.as_ref().map(|(place, share)| format!("; {share} % of it: {}", part(place)));
    let alone = match &slow.what {
        SlowKind::Recent(RecentKind::Shim(_)) => " for a command, beside the runc that it runs",
        _ => "",
    };
    let part = part.unwrap_or_default();
    if slow.late * 2 <= slow.count {
        let late = human::count(slow.late);
        return format!("{late} of {count} {what} took longer than the {normal} that are normal{part}");
    }
    format!("{what} {verb} {p50}{alone} (median of {count}), more than the {normal} that are normal{part}")
}

/// A part in harmless words.
pub(super) fn part(place: &Place) -> String {
    let component = place.component.map_or("a component", Component::name);
    match place.doing {
        Doing::Runs => format!("{component}: running, ready to run or in a system call"),
        Doing::Lock => format!("{component}: waiting for a lock"),
        Doing::Waits => format!("{component}: waiting"),
        Doing::Inside => format!("inside {component}"),
        Doing::Transport(leg) => on_the_way(leg).to_owned(),
        Doing::Unanswered => "in calls whose handler was not seen".to_owned(),
        Doing::Program => match &place.program {
            Some(program) => escape::text_to(program, 48),
            None => format!("other programs of {component}"),
        },
        Doing::Unexplained => "unexplained".to_owned(),
    }
}

/// A part of the way between the kubelet and the runtime.
fn on_the_way(leg: Leg) -> &'static str {
    match leg {
        Leg::Send => "request waiting for the kubelet to write it",
        Leg::Accept => "request waiting for the runtime to take it",
        Leg::Answer => "answer waiting for the runtime to write it",
        Leg::Receive => "answer waiting for the kubelet to take it",
        Leg::Whole => "between the kubelet and the runtime",
    }
}

/// A doubt in words.
#[must_use]
pub(super) fn doubt(doubt: &Doubt) -> String {
    match doubt {
        Doubt::NoKubelet => "no kubelet runs here, so no relist can be seen".into(),
        Doubt::KubeletUnknown { sign } => format!(
            "no process was recognised as the kubelet, but {}: --kubelet-pid PID names it",
            escape::text(&sign.words())
        ),
        Doubt::RuntimeUnknown { sign } => format!(
            "no process was recognised as the runtime, but {}: --runtime-pid PID names it",
            escape::text(&sign.words())
        ),
        Doubt::RelistUntraced => {
            "relists of this kubelet cannot be traced (plegtrace doctor shows why)".into()
        }
        Doubt::NoRelist { window_ns, period_ns } => {
            let due = match *period_ns {
                RELIST_PERIOD_NS => "each second".to_owned(),
                period_ns => format!("every {}", duration(period_ns)),
            };
            format!(
                "no relist started in {}, although one is due {due}: one may have been hanging since before plegtrace started",
                duration(*window_ns)
            )
        }
        Doubt::PaceUnknown { silent_ns } => format!(
            "no list succeeded in {}, and the kubelet follows events: before Kubernetes 1.37 it then lists every {}, later each second; which one was not seen",
            duration(*silent_ns),
            duration(EVENTED_PERIOD_NS)
        ),
        Doubt::NewerThanKnown { component, calls } => format!(
            "this {} is newer than this plegtrace knows: no {} found (plegtrace doctor)",
            component.name(),
            escape::text(calls)
        ),
        Doubt::CallsUntraced => {
            "no CRI call of kubelet or runtime can be traced (plegtrace doctor shows why), so a pod may be held up".into()
        }
        Doubt::ListUnknown => "relists ended, but whether their lists succeeded was not seen".into(),
        Doubt::NotArmed => "the probes were never attached".into(),
        Doubt::OpenUnread => "the list of open calls is incomplete".into(),
        Doubt::NoCensus => {
            "no census was taken: anything stuck before the probes were attached is unknown".into()
        }
        Doubt::CensusCut => "no census of the node's processes was completed".into(),
        Doubt::GoroutinesUnread { component, why } => {
            format!("the goroutines of {} could not be read: {}", component.name(), escape::text(why))
        }
        Doubt::LoopWaits { what, ns } => {
            format!("{} for {} at least, and may only be slow", escape::line(what), duration(*ns))
        }
        Doubt::Paused { ns } => format!(
            "nothing on this machine ran for {} until a moment ago, although its clock went on: it seems to have been stopped as a whole",
            duration(*ns)
        ),
        Doubt::Lost { count, sentence } => {
            format!("{} lost: {}", human::plural(*count, "event"), escape::text(sentence))
        }
    }
}

fn age_of(age: Age) -> String {
    format!("{} ago", words::age(age))
}

/// `kubelet (pid 7)`.
fn peer(peer: Peer) -> String {
    match peer.component {
        Some(component) => format!("{} (pid {})", component.name(), peer.pid),
        None => format!("pid {}", peer.pid),
    }
}
