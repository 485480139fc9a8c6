//! O5: root has no instance of inotify left, or a daemon no open file.

use crate::{
    diagnose::{Area, Culprit, Evidence, Finding, Page, Proof, Rule, Scene, Source},
    input::{Component, DescriptorsFact, InotifyFact, InotifyUser},
    words::human,
};

pub(super) static RULE: Rule = Rule {
    id: "O5",
    title: "root has no inotify instances left, or a daemon no open files: what needs another one fails",
    area: Area::Overload,
    min_age_ns: 0,
    proof: Proof::Real,
    page: Page {
        mechanism: "Each user may have fs.inotify.max_user_instances instances of inotify, 128 by default, and all containers \
            that run as root share those of root. Once they are used up, inotify_init fails with EMFILE: a kubelet does not start, \
            containerd starts without its CRI plugin, kubectl logs -f and tail -f do not follow. Who runs already keeps \
            what it has, so the node breaks at the next restart. The same error comes from a daemon that has as many files \
            open as it may have (LimitNOFILE): it accepts no connection and opens no file.",
        versions: "all; shims leaked instances before containerd 1.6.0",
        symptoms: &[
            "inotify_init: too many open files",
            "failed to create fsnotify watcher: too many open files",
            "accept4: too many open files; retrying in 1s",
        ],
        evidence: &[
            "the processes of root hold as many instances of inotify as fs.inotify.max_user_instances, or at most 8 less, and \
                plegtrace is refused another one",
            "or: a daemon, a shim or the bus has as many files open as it may have, or at most 8 less",
        ],
        excluded_by: &["there is more room again"],
        next: &[
            "raise the limit: `sysctl -w fs.inotify.max_user_instances=8192`, and the same in /etc/sysctl.d",
            "count who has them: find /proc/[0-9]*/fd -lname anon_inode:inotify | cut -d/ -f3 | sort | uniq -c | sort -n",
            "a daemon: `prlimit --pid PID --nofile=65536`, and LimitNOFILE= in its unit",
        ],
        trap: "fs.inotify.max_user_watches is another limit (its error is \"no space left on device\"), and ulimit -n does not count \
            instances.",
        sources: &["containerd#10468", "k8s#58081", "flatcar#563", "inotify(7)"],
    },
    examine,
};

fn examine(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(scarce) = scene.scarce() else { return Vec::new() };
    let inotify = scarce.inotify.iter().map(|fact| instances(fact, scene));
    inotify.chain(scarce.descriptors.iter().map(files)).collect()
}

/// A finding about a daemon that is down, with what keeps it from starting again when no instance is left.
pub(super) fn with_what_keeps_down(finding: Finding, scene: &Scene<'_>) -> Finding {
    let fact = scene.scarce().and_then(|scarce| scarce.inotify.as_ref());
    let Some(fact) = fact.filter(|fact| none_left(fact)) else { return finding };
    let most = fact.users.first().map(|user| format!(" ({})", held(user))).unwrap_or_default();
    let text = format!("{}{most}: a program that starts now gets none", in_use(fact));
    finding.seen(Evidence::new(Source::Census, text)).advise([raise(fact)])
}

fn instances(fact: &InotifyFact, scene: &Scene<'_>) -> Finding {
    let headline = match none_left(fact) {
        true => format!("{}: a kubelet that starts now fails, as does the CRI of containerd", in_use(fact)),
        false => format!("{}: at most {} left", in_use(fact), left(fact)),
    };
    let mut finding = Finding::new(&RULE, headline).seen(Evidence::new(
        Source::Census,
        format!(
            "processes of root hold {}{} of {} (fs.inotify.max_user_instances)",
            if fact.at_least { "at least " } else { "" },
            human::plural(fact.used, "inotify instance"),
            human::count(fact.limit)
        ),
    ));
    for user in fact.users.iter().take(3) {
        finding = finding.seen(Evidence::new(Source::Census, held(user)));
    }
    finding = match fact.refused {
        Some(true) => finding
            .seen(Evidence::new(Source::Census, "plegtrace asked for another one, and was refused: EMFILE")),
        Some(false) => finding.doubted("plegtrace was given another one"),
        None => finding.doubted("whether root gets another one could not be tried"),
    };
    if fact.at_most {
        finding = finding.doubted("some processes may share an instance, and then there are fewer");
    }
    finding.culprit = fact.users.first().map(|user| culprit(user, scene));
    let most = fact.users.first().map(|user| format!("find out what {} watches with them", user.comm));
    finding.into_notice().advise([raise(fact)].into_iter().chain(most))
}

/// Is it certain that root gets none? What its processes hold is not all that counts for it: a daemon may have taken one before it
/// became somebody else.
fn none_left(fact: &InotifyFact) -> bool {
    fact.refused == Some(true)
}

/// How many there are if its processes hold them all.
fn left(fact: &InotifyFact) -> String {
    human::count(fact.limit.saturating_sub(fact.used))
}

fn in_use(fact: &InotifyFact) -> String {
    match none_left(fact) {
        true => format!("root has no inotify instance left of its {}", human::count(fact.limit)),
        false => format!(
            "root has {} of {} inotify instances in use",
            human::count(fact.used),
            human::count(fact.limit)
        ),
    }
}

/// Who holds how many.
fn held(user: &InotifyUser) -> String {
    let instances = human::count(user.instances);
    let place = match (&user.container, &user.cgroup) {
        (Some(container), _) => match (&container.pod, &container.namespace) {
            (Some(pod), Some(namespace)) => format!(" of pod {namespace}/{pod}"),
            _ => format!(" of container {}", container.id.chars().take(12).collect::<String>()),
        },
        (None, Some(cgroup)) => format!(" of {cgroup}"),
        (None, None) => String::new(),
    };
    if user.processes == 1 {
        return format!("{} {}{place} holds {instances}", user.comm, user.pid);
    }
    let processes = human::plural(user.processes.into(), "process");
    let own = human::count(user.own);
    format!("{processes} named {} hold {instances}, {}{place} alone {own}", user.comm, user.pid)
}

fn culprit(user: &InotifyUser, scene: &Scene<'_>) -> Culprit {
    let known = scene.snapshot.census.processes.iter().find(|seen| seen.fact.pid == user.pid);
    Culprit {
        component: known.map_or(Component::Helper, |seen| seen.fact.component),
        pid: Some(user.pid),
        container: user.container.clone(),
        words: format!("{} inotify instances", held(user)),
    }
}

fn raise(fact: &InotifyFact) -> String {
    let more = fact.limit.saturating_mul(2).max(8192);
    format!("`sysctl -w fs.inotify.max_user_instances={more}`, and the same in /etc/sysctl.d")
}

fn files(fact: &DescriptorsFact) -> Finding {
    let (name, pid) = (fact.component.name(), fact.pid);
    let open = format!("{} of {} files open", human::count(fact.open), human::count(fact.limit));
    let left = fact.limit.saturating_sub(fact.open);
    let fails = match left {
        0 => "it can neither open another nor accept a connection".to_owned(),
        left => format!("{} left", human::count(left)),
    };
    let words = format!("{name} {pid} has {open}");
    let finding = Finding::new(&RULE, format!("{words}: {fails}")).seen(Evidence::new(
        Source::Census,
        format!("{} descriptors below its limit (RLIMIT_NOFILE) are free", human::count(left)),
    ));
    let finding = if left > 0 { finding.doubted("it has not been seen to fail yet") } else { finding };
    let culprit = Culprit { component: fact.component, pid: Some(pid), container: None, words };
    let finding = Finding { culprit: Some(culprit), ..finding };
    let more = fact.limit.saturating_mul(2).max(65_536);
    finding.into_notice().advise([
        format!("`prlimit --pid {pid} --nofile={more}`: at once; for good LimitNOFILE= in its unit"),
        format!("`ls -l /proc/{pid}/fd`: what it keeps open"),
    ])
}
