use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, Mutex, mpsc::channel},
    time::Instant,
};

use plegtrace_common::site::g_source;

use super::*;
use crate::{
    input::RefusedFact,
    plan::{BinaryFacts, CATALOGUE, FoundFunction, FoundSite, wanted},
    target::{RefuseReason, exe_link},
};

const RELIST: &str = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist";

fn site(file_offset: u64) -> FoundSite {
    let g_source = g_source::REGISTER;
    FoundSite {
        file_offset,
        code_offset: file_offset,
        bytes: vec![0x76, 0x10],
        g_source,
        tls_offset: -8,
        repeats: true,
        ns_per_hit: 650,
    }
}

/// A kubelet that `pid` runs from a file; it has a relist.
fn kubelet(path: &Path, pid: u32) -> Inspected {
    let file = AnalysedFile::any(File::open(path).unwrap()).unwrap();
    let relist = FoundFunction {
        symbol: RELIST.to_owned(),
        wanted: wanted(CATALOGUE, Component::Kubelet, RELIST).unwrap(),
        start: Ok(site(16)),
        stream: None,
        returns: Ok(vec![site(32)]),
    };
    let facts = BinaryFacts {
        component: Component::Kubelet,
        pid,
        path: exe_link(pid),
        exe: path.display().to_string(),
        inode: 7,
        kernel_dev: 8,
        register_abi: true,
        goid_offset: 152,
        functions: vec![relist],
    };
    Inspected::fake(facts, file)
}

fn probes() -> Probes {
    Probes::new(AttachMode::Multi, false, &[])
}

/// Attaches what waits, as far as that goes without a kernel.
fn attach(probes: &mut Probes) -> Vec<(usize, Lease)> {
    let waiting = std::mem::take(&mut probes.waiting);
    let attach = |place: usize| {
        let binary = probes.planner.plan().binaries[place].clone();
        let lease = probes.lease(place, &binary).unwrap();
        let attached = Attached { sites: binary.sites(), hooks: hooks_of(&binary), end: lease.end() };
        probes.attached.insert(place, attached);
        (place, lease)
    };
    waiting.into_iter().map(attach).collect()
}

/// With the last process of a file its probes go; a successor from the same file has them put on again and is known by
/// its own number, without another place in the tables, however often it is restarted.
#[test]
fn restarted_programs_are_probed_again() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut probes = probes();
    let mut versions = Vec::new();
    for pid in 1..=1000 {
        probes.take(kubelet(&file, pid));
        let leases = attach(&mut probes);
        assert!(leases.len() == 1 && leases[0].0 == 0 && leases[0].1.is_intact(), "process {pid}");
        assert_eq!(probes.plan().binaries[0].path, exe_link(pid));
        versions.extend(probes.of_pid(Component::Kubelet, pid).and_then(|kubelet| kubelet.version.clone()));
        probes.keep(|lives, _| lives != pid);
        assert!(!leases[0].1.is_intact(), "nobody runs it");
        probes.attached.clear();
    }
    assert_eq!((versions.len(), probes.plan().binaries.len(), probes.plan().hooks.len()), (1000, 1, 1));
}

/// Which hooks are on is told, and told again when that changes: neither what is only planned is, nor what nobody runs any more.
#[test]
fn what_is_on_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut probes = probes();
    let told = |probes: &mut Probes| match probes.take_facts("").pop() {
        Some(Fact::Armed(armed)) => armed.hooks.unwrap(),
        other => panic!("{other:?}"),
    };
    probes.take(kubelet(&file, 10));
    assert!(told(&mut probes).is_empty() && !probes.have_changed(), "planned");
    let _leases = attach(&mut probes);
    assert!(probes.have_changed());
    assert_eq!((told(&mut probes), probes.have_changed()), (vec![0], false));
    probes.keep(|_, _| false);
    assert!(probes.have_changed(), "they wait to be taken off");
    assert!(told(&mut probes).is_empty());
}

/// A program that ended before it had probes leaves its successor a chance.
#[test]
fn programs_that_end_while_arming_are_followed() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut probes = probes();
    probes.take(kubelet(&file, 10));
    probes.waiting.clear();
    probes.keep(|_, _| false);
    probes.take(kubelet(&file, 11));
    assert_eq!(
        (probes.waiting.as_slice(), probes.of_pid(Component::Kubelet, 10).is_some()),
        (&[0][..], false)
    );
}

/// A file that processes run is guarded as well: from their end on, it can be written to. What is written is new.
#[test]
fn files_of_daemons_are_guarded() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut probes = probes();
    probes.take(kubelet(&file, 10));
    let leases = attach(&mut probes);
    let writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&file);
    assert_eq!(writer.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(!leases[0].1.is_intact(), "it is to be given up");
    drop(leases);
    fs::write(&file, "another kubelet").unwrap();
    probes.take(kubelet(&file, 11));
    assert_eq!(probes.waiting, [1], "planned anew");
    assert!(probes.attached[&0].end.is_given_up(), "the old text is not there any more");
}

/// Where no lease can be had, the program that runs is probed all the same, and its end is noticed.
#[test]
fn files_without_a_lease_are_probed() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let _writer = OpenOptions::new().write(true).open(&file).unwrap();
    let mut probes = probes();
    probes.take(kubelet(&file, 10));
    let leases = attach(&mut probes);
    assert!(leases[0].1.is_intact());
    probes.keep(|_, _| false);
    assert!(!leases[0].1.is_intact());
    let mut nobodys = probes.planner.plan().binaries[0].clone();
    nobodys.pid = 0;
    assert!(probes.lease(0, &nobodys).is_err(), "nothing guards it then");
}

fn wanted_kubelet(pid: u32) -> [Wanted; 1] {
    [Wanted { component: Component::Kubelet, pid, exe: "/usr/bin/kubelet".to_owned() }]
}

/// A file on a disk that does not answer is refused in time, and not asked for again; its successor is.
#[test]
fn files_that_do_not_answer() {
    let (asked, asks) = channel();
    let analyse = move |wanted: &Wanted| {
        let _ = asked.send(wanted.pid);
        loop {
            std::thread::park();
        }
    };
    let mut probes = probes();
    for pid in [10, 10, 11] {
        probes.inspect_within(Duration::from_millis(1), &wanted_kubelet(pid), analyse.clone());
    }
    let mut asked = [asks.recv(), asks.recv()];
    asked.sort_by_key(|pid| pid.ok());
    assert_eq!(asked, [Ok(10), Ok(11)], "each once");
    let refused = &probes.plan().refused;
    assert_eq!(refused.len(), 2);
    let why = "its file was not read within 0 s (a slow disk or too little CPU); it will be probed as soon as it is";
    assert!(refused.iter().all(|r| r.matters && r.why == why), "{refused:?}");
}

/// A file that answers late is planned then.
#[test]
fn files_that_answer_late() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let path = file.to_path_buf();
    let (open, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let analyse = move |wanted: &Wanted| {
        let _ = gate.lock().unwrap().recv();
        Ok(kubelet(&path, wanted.pid))
    };
    let mut probes = probes();
    probes.inspect_within(Duration::from_millis(1), &wanted_kubelet(10), analyse);
    assert!(!probes.take_late() && probes.waiting.is_empty());
    assert_eq!(probes.plan().refused.len(), 1);
    open.send(()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !probes.take_late() {
        assert!(Instant::now() < until, "it has answered");
        std::thread::yield_now();
    }
    assert_eq!(probes.waiting, [0]);
    assert!(probes.of_pid(Component::Kubelet, 10).is_some());
    let mut left = probes.plan().refused.iter().map(|refused| &refused.why);
    assert!(left.all(|why| !why.contains("was not read")), "a refusal that was not told yet never is");
}

/// A program for which there are no hooks left is refused, and planned as soon as one that has ended has made room; the last
/// to end gives way, too, which it would not do otherwise.
#[test]
fn room_is_waited_for() {
    let [first, second, third] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap().into_temp_path());
    let mut probes = probes();
    probes.limit_hooks(1);
    probes.take(kubelet(&first, 10));
    drop(attach(&mut probes));
    probes.attached.clear();
    probes.take(kubelet(&second, 11));
    assert!(probes.waiting.is_empty());
    let refused = probes.planner.take_refused();
    let about = |path: &Path| refused.iter().filter(|it| it.what == path.display().to_string()).count();
    assert_eq!((about(&first), about(&second)), (0, 1), "{refused:?}");
    assert!(
        refused.last().unwrap().matters && refused.last().unwrap().why.starts_with("more than 1 hooks; ")
    );
    probes.release_with(|_| panic!("nobody has ended"));
    // One that ends while it waits needs nothing any more.
    probes.take(kubelet(&third, 12));
    probes.keep(|pid, _| pid == 11);
    assert_eq!(probes.ended.len(), 1);
    probes.release_with(|_| panic!("its hooks rest"));
    assert!(!probes.take_late());
    probes.ended[0].0 = Instant::now().checked_sub(REST).unwrap();
    let mut forgotten = 0;
    probes.release_with(|_| forgotten += 1);
    assert!(probes.take_late() && !probes.take_late(), "said once");
    assert_eq!((forgotten, probes.waiting.as_slice()), (1, &[1][..]));
    assert_eq!(probes.plan().binaries[1].path, exe_link(11));
    let admitted = probes.planner.take_admitted();
    assert!(matches!(&admitted[..], [one] if one.what == second.display().to_string()), "{admitted:?}");
    assert!(probes.crowded_out.is_empty() && probes.of_pid(Component::Kubelet, 12).is_none());
}

/// What is said to be refused now, and what is no longer.
fn refusals(probes: &mut Probes, path: &Path) -> (Vec<String>, Vec<String>) {
    let of_file = |all: Vec<RefusedFact>| {
        let of_file = all.into_iter().filter(|refused| refused.what == path.display().to_string());
        of_file.map(|refused| refused.why).collect::<Vec<_>>()
    };
    let admitted = of_file(probes.planner.take_admitted());
    (of_file(probes.planner.take_refused()), admitted)
}

/// An executable that could not be attached is tried again, ever less often, and is refused once; when it is attached, it is refused no
/// longer. The same of one that would have stopped the node.
#[test]
fn refused_once_and_tried_again() {
    let late = || NotAttached::Now(Hazard::Late);
    let failed = || NotAttached::Failed("the kernel is busy".to_owned());
    for why in [&late as &dyn Fn() -> NotAttached, &failed] {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let (mut probes, begun) = (probes(), Instant::now());
        probes.take(kubelet(&file, 10));
        refusals(&mut probes, &file);
        let mut tries = 0;
        let mut attach = |probes: &mut Probes, second: u64, works: bool| {
            let now = begun + Duration::from_secs(second);
            let due = probes.put_off.due(now);
            probes.waiting.extend(due);
            probes.attach_with(now, |_, _, _| {
                tries += 1;
                if works { Ok(None) } else { Err(why()) }
            });
            tries
        };
        assert_eq!(attach(&mut probes, 0, false), 1);
        let (refused, admitted) = refusals(&mut probes, &file);
        assert!(refused.len() == 1 && refused[0].contains("plegtrace tries again"), "{refused:?}");
        assert!(admitted.is_empty());
        for second in 1..100 {
            attach(&mut probes, second, false);
        }
        let tried = attach(&mut probes, 100, false);
        assert!((4..=21).contains(&tried), "{tried}");
        assert_eq!(refusals(&mut probes, &file), (vec![], vec![]), "said once");
        assert_eq!(attach(&mut probes, 1000, true), tried + 1);
        assert_eq!(refusals(&mut probes, &file), (vec![], refused), "it is attached");
        assert_eq!(attach(&mut probes, 5000, true), tried + 1, "nothing is left to try");
    }
}

/// A file that is not the one that was analysed is analysed again for the process that runs it.
#[test]
fn a_changed_file_is_analysed_again() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let mut probes = probes();
    probes.take(kubelet(&file, 10));
    let changed =
        |_: &mut Probes, _: usize, _: &PlannedBinary| Err(NotAttached::Changed("it changed".to_owned()));
    probes.attach_with(Instant::now(), changed);
    assert!(probes.of_pid(Component::Kubelet, 10).is_none());
    fs::write(&file, "another kubelet").unwrap();
    probes.take(kubelet(&file, 10));
    assert_eq!(probes.waiting, [1], "planned anew");
}

/// A file that cannot be read is read again, not at once; one that is nothing to probe is not.
#[test]
fn files_that_cannot_be_read_are_read_again() {
    let (asked, asks) = channel();
    let fails = move |transient: bool| {
        let asked = asked.clone();
        move |wanted: &Wanted| {
            let _ = asked.send(wanted.pid);
            Err(if transient {
                RefuseReason::Io(std::io::ErrorKind::NotFound.into())
            } else {
                RefuseReason::NotGo
            })
        }
    };
    let mut probes = probes();
    let patience = Duration::from_secs(60);
    for (pid, transient) in [(10, true), (11, false)] {
        probes.inspect_within(patience, &wanted_kubelet(pid), fails(transient));
        probes.inspect_within(patience, &wanted_kubelet(pid), fails(transient));
    }
    assert_eq!(asks.try_iter().collect::<Vec<_>>(), [10, 11], "not at once");
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    for pid in [10, 11] {
        probes.unread.forget((Component::Kubelet, pid));
        probes.unread.fail((Component::Kubelet, pid), long_ago);
        probes.inspect_within(patience, &wanted_kubelet(pid), fails(true));
    }
    assert_eq!(asks.try_iter().collect::<Vec<_>>(), [10]);
}
