use std::collections::BTreeSet;

use plegtrace_common::site::{err_source, g_source, pairing};

use super::*;
use crate::plan::wanted;

fn site(file_offset: u64, g: u8) -> FoundSite {
    FoundSite {
        file_offset,
        code_offset: file_offset,
        bytes: vec![0x76, 0x10],
        g_source: g,
        tls_offset: -8,
        repeats: true,
        ns_per_hit: 650,
    }
}

fn function(component: Component, symbol: &str, returns: Result<Vec<FoundSite>, String>) -> FoundFunction {
    FoundFunction {
        symbol: symbol.to_owned(),
        wanted: wanted(CATALOGUE, component, symbol).expect("in the catalogue"),
        start: Ok(site(0x1000, g_source::REGISTER)),
        stream: None,
        returns,
    }
}

fn facts(component: Component, functions: Vec<FoundFunction>) -> BinaryFacts {
    BinaryFacts {
        component,
        pid: 1,
        path: "/proc/1/exe".into(),
        exe: "/usr/bin/x".to_owned(),
        inode: 7,
        kernel_dev: 8,
        register_abi: true,
        goid_offset: 152,
        functions,
    }
}

/// A relist is ended by its own RETs, a counted call by `recordOperation`, and what is missing is said.
#[test]
fn kubelet_plan() {
    let functions = vec![
        function(
            Component::Kubelet,
            "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
            Ok(vec![site(0x1100, g_source::REGISTER), site(0x1200, g_source::REGISTER)]),
        ),
        function(Component::Kubelet, "k8s.io/kubernetes/pkg/kubelet/kuberuntime.recordOperation", Ok(vec![])),
    ];
    let mut planner = Planner::default();
    planner.add(&facts(Component::Kubelet, functions));
    let plan = planner.finish();
    assert_eq!((plan.binaries[0].starts.len(), plan.binaries[0].ends.len()), (1, 3));
    assert_eq!(plan.binaries[0].ends[0].conf.pairing, pairing::GOROUTINE);
    assert_eq!(plan.binaries[0].ends[2].conf.pairing, pairing::FRAME);
    assert!(plan.refused.iter().any(|r| r.what == "list-phase" && r.matters));
    let newer = plan.refused.iter().filter(|r| r.source == CATALOGUE_SOURCE);
    let newer: Vec<&str> = newer.map(|r| r.what.as_str()).collect();
    let unseen = [
        "list phases of relists",
        "status phases of relists",
        "calls that the kubelet counts",
        "CRI client methods",
    ];
    assert_eq!(newer, unseen);
    let layers = unseen.map(|calls| layers_of(calls).collect::<BTreeSet<Layer>>());
    let expected = [Layer::ListPhase, Layer::StatusPhase, Layer::KubeletCall, Layer::KubeletClient];
    assert_eq!(layers, expected.map(|layer| BTreeSet::from([layer])));
}

/// A handler takes the stream that came in on its goroutine only where such a site is planned; the site knows where the number
/// is. They are left out where each probe is dear.
#[test]
fn streams_of_handlers() {
    let planned = |with: bool, budget: Budget| {
        let symbols = [
            "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_Status_Handler",
            "google.golang.org/grpc.(*Server).handleStream",
            "google.golang.org/grpc/internal/transport.(*http2Server).WriteStatus",
        ];
        let functions = symbols.iter().map(|symbol| FoundFunction {
            stream: symbol.ends_with("handleStream").then_some((8, Some(108))),
            ..function(Component::Containerd, symbol, Ok(vec![]))
        });
        let functions = functions.filter(|function| with || function.stream.is_none()).collect();
        let mut planner = Planner::new(budget);
        planner.add(&facts(Component::Containerd, functions));
        planner.finish().binaries.remove(0)
    };
    let binary = planned(true, Budget::All);
    let came = binary.ends.iter().find(|site| site.conf.action == action::CAME).expect("planned");
    assert_eq!((came.conf.stream_off, came.conf.stream_then), (8, 108));
    assert_eq!((came.conf.err_source, came.conf.class), (err_source::REG0 + 3, Class::Handler as u32));
    assert_eq!(binary.starts[0].conf.comes, 1);
    assert_eq!(planned(false, Budget::All).starts[0].conf.comes, 0);
    let few = planned(true, Budget::Few);
    assert!(few.ends.iter().all(|site| site.conf.action != action::CAME));
    assert_eq!(few.starts[0].conf.comes, 0);
}

/// A function whose RETs could not be decoded is refused with the reason, and nothing of it is planned.
#[test]
fn refusal_carries_the_reason() {
    let relist = function(
        Component::Kubelet,
        "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
        Err("byte 0x06 is no instruction".to_owned()),
    );
    let mut planner = Planner::default();
    planner.add(&facts(Component::Kubelet, vec![relist]));
    let plan = planner.finish();
    assert!(plan.binaries.is_empty());
    assert!(plan.refused.iter().any(|r| r.why.contains("0x06")));
}

const HANDLER: &str = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler";
const REPLY: &str = "google.golang.org/grpc.(*Server).sendResponse";
const END: &str = "google.golang.org/grpc/internal/transport.(*http2Server).WriteStatus";

/// Functions of a runtime.
fn functions(symbols: &[&str]) -> Vec<FoundFunction> {
    symbols.iter().map(|symbol| function(Component::Containerd, symbol, Ok(vec![]))).collect()
}

/// A handler fails when it does not reply; where no reply is seen, it is not known. The order of functions is no
/// matter, and a mark that was found but cannot be probed is none.
#[test]
fn handlers_fail_by_what_is_seen() {
    let err_source = |functions| {
        let mut planner = Planner::default();
        planner.add(&facts(Component::Containerd, functions));
        planner.plan().binaries[0].starts[0].conf.err_source
    };
    assert_eq!(err_source(functions(&[HANDLER, REPLY, END])), err_source::REPLY);
    assert_eq!(err_source(functions(&[END, REPLY, HANDLER])), err_source::REPLY);
    assert_eq!(err_source(functions(&[HANDLER, END])), err_source::NONE);
    let mut refused = functions(&[HANDLER, REPLY, END]);
    refused[1].start = Err("no stack check".to_owned());
    assert_eq!(err_source(refused), err_source::NONE);
}

/// Calls that nothing would end are not begun: one sentence for all of them.
#[test]
fn calls_need_an_end() {
    let mut found = functions(&[HANDLER, &HANDLER.replace("ListContainers", "ListPodSandbox"), REPLY, END]);
    found[3].start = Err("no stack check".to_owned());
    let mut planner = Planner::default();
    planner.add(&facts(Component::Containerd, found));
    let plan = planner.finish();
    assert!(plan.binaries[0].starts.is_empty() && plan.hooks.iter().all(|h| h.layer == Layer::Mark));
    let about: Vec<_> = plan.refused.iter().filter(|r| r.what == "CRI handlers").collect();
    assert!(about.len() == 1 && about[0].matters && about[0].why.contains("when they end"), "{about:?}");
}

/// The kernel side is told which starts one call can pass twice.
#[test]
fn starts_that_repeat() {
    let repeats = |repeats: bool| {
        let mut found = functions(&[HANDLER, END]);
        let start = FoundSite { repeats, ..site(0x1000, g_source::REGISTER) };
        found[0].start = Ok(start);
        let mut planner = Planner::default();
        planner.add(&facts(Component::Containerd, found));
        planner.plan().binaries[0].starts[0].conf.repeats
    };
    assert_eq!([true, false].map(repeats), [1, 0]);
}

/// Parks are followed where both sites are found and wanted, never with one of them alone.
#[test]
fn parks_need_both_sites() {
    let plan = |symbols: &[&str], follow: bool| {
        let mut planner = Planner::default().with_parks(follow);
        planner.add(&facts(Component::Containerd, functions(&[&[HANDLER, END], symbols].concat())));
        planner.finish()
    };
    let both = plan(&["runtime.gopark", "runtime.execute"], true);
    let binary = &both.binaries[0];
    assert_eq!((binary.parks.len(), binary.resumes.len(), binary.starts[0].conf.parks), (1, 1, 1));
    let (park, resume) = (binary.parks[0].conf, binary.resumes[0].conf);
    assert_eq!((park.action, park.err_source), (action::PARK, err_source::REG0 + 2));
    assert_eq!((resume.action, resume.err_source), (action::RESUME, err_source::REG0));
    let one = plan(&["runtime.gopark"], true);
    let binary = &one.binaries[0];
    assert_eq!((binary.parks.len(), binary.resumes.len(), binary.starts[0].conf.parks), (0, 0, 0));
    assert!(one.refused.iter().any(|r| r.source == "parks" && r.what == "runtime.execute" && !r.matters));
    let left_out = plan(&["runtime.gopark", "runtime.execute"], false);
    assert_eq!((left_out.binaries[0].parks.len(), left_out.binaries[0].starts[0].conf.parks), (0, 0));
}

/// Phases of runc pair by frame; one that ends in an `execve` has no end; what is missing is no reason for doubt; and
/// where sites are dear only those remain in which runc waits for others.
#[test]
fn phases_of_runc() {
    let runc = "github.com/opencontainers/runc/libcontainer";
    let functions = || {
        let returns = || Ok(vec![site(0x1100, g_source::REGISTER)]);
        let symbols = [".(*linuxStandardInit).Init", ".destroy", "/configs.HookList.RunHooks"];
        symbols.map(|name| function(Component::Runc, &format!("{runc}{name}"), returns())).to_vec()
    };
    let plan = |budget| {
        let mut planner = Planner::new(budget).with_parks(true);
        planner.add(&facts(Component::Runc, functions()));
        planner.finish()
    };
    let all = plan(Budget::All);
    let binary = &all.binaries[0];
    assert_eq!((binary.starts.len(), binary.ends.len(), binary.parks.len()), (3, 2, 0));
    assert!(binary.every_site().all(|site| site.conf.pairing == pairing::FRAME && site.conf.parks == 0));
    assert!(all.refused.iter().any(|r| r.what == "runc-seccomp"), "{:?}", all.refused);
    assert!(all.refused.iter().all(|r| !r.matters && r.source == "uprobes"), "{:?}", all.refused);
    let few = plan(Budget::Few);
    assert_eq!((few.hooks.len(), few.hooks[0].operation.as_str()), (1, "RunHooks"));
}

/// Old binaries give the error on the stack, and their RETs find the goroutine in thread-local storage.
#[test]
fn stack_abi() {
    let mut old = facts(
        Component::Kubelet,
        vec![function(
            Component::Kubelet,
            "k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).GetPods",
            Ok(vec![site(0x1100, g_source::TLS)]),
        )],
    );
    old.register_abi = false;
    let mut planner = Planner::default();
    planner.add(&old);
    let conf = planner.plan().binaries[0].ends[0].conf;
    assert_eq!((conf.err_source, conf.err_stack_off, conf.tls_off), (err_source::STACK, 48, -8));
}

/// Kubelets that are replaced one after the other never run out of sites and hooks when what has ended is released, and
/// do when it is not. No index stands for two things.
#[test]
fn released_sites_are_used_again() {
    let replaced = |times: u64, release: bool| {
        let mut planner = Planner::default();
        let mut before = None;
        for n in 0..times {
            let relist = function(
                Component::Kubelet,
                "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
                Ok(vec![site(0x1100, g_source::REGISTER), site(0x1200, g_source::REGISTER)]),
            );
            let kubelet = BinaryFacts { inode: n, ..facts(Component::Kubelet, vec![relist]) };
            let Some(place) = planner.add(&kubelet) else { return planner };
            let sites = |place: usize| planner.plan().binaries[place].every_site().map(|site| site.index);
            if let Some(before) = before {
                let all: BTreeSet<u32> = sites(before).chain(sites(place)).collect();
                assert_eq!(all.len(), sites(before).count() + sites(place).count());
            }
            assert!(!planner.take_hooks().is_empty());
            if let Some(before) = before.filter(|_| release) {
                assert!(planner.release(before).is_some_and(|released| released.sites() > 0));
                let left = &planner.plan().binaries[before];
                assert_eq!((left.starts.capacity(), left.ends.capacity()), (0, 0), "memory is given back");
            }
            before = Some(place);
        }
        planner
    };
    let is_full = |planner: &Planner| planner.plan().refused.iter().any(|one| one.why.contains("more than"));
    let planner = replaced(2000, true);
    assert!(!is_full(&planner));
    assert!(planner.plan().hooks.len() < 9, "the table stays short: {}", planner.plan().hooks.len());
    assert!(is_full(&replaced(2000, false)));
}

/// A kubelet and a runtime that are one file, as in k3s: where both have a site it is probed once, and that is said. The
/// rest of both is probed.
#[test]
fn one_file_is_probed_once() {
    let at = |mut function: FoundFunction, offset: u64| {
        function.start = Ok(site(offset, g_source::REGISTER));
        function
    };
    let both = |component, own: FoundFunction, offset| {
        let scheduler = [("runtime.gopark", 0x5000), ("runtime.execute", 0x6000)];
        let shared = scheduler.map(|(symbol, offset)| at(function(component, symbol, Ok(vec![])), offset));
        facts(component, [vec![at(own, offset)], shared.to_vec()].concat())
    };
    let relist = function(
        Component::Kubelet,
        "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
        Ok(vec![site(0x1100, g_source::REGISTER)]),
    );
    let end = function(Component::Containerd, END, Ok(vec![]));
    let programs = [both(Component::Kubelet, relist, 0x1000), both(Component::Containerd, end, 0x2000)];
    for order in [[0, 1], [1, 0]] {
        let mut planner = Planner::default().with_parks(true);
        let places = order.map(|place| planner.add(&programs[place]).unwrap());
        let plan = planner.plan();
        let sites: Vec<u64> =
            plan.binaries.iter().flat_map(PlannedBinary::every_site).map(|site| site.file_offset).collect();
        let once: BTreeSet<u64> = sites.iter().copied().collect();
        assert_eq!(sites.len(), once.len(), "{sites:x?}");
        assert_eq!(once, BTreeSet::from([0x1000, 0x1100, 0x2000, 0x5000, 0x6000]));
        let parks = places.map(|place| plan.binaries[place].parks.len());
        assert_eq!(parks, [1, 0], "they are of whoever came first");
        let second = programs[order[1]].component;
        let said = plan.refused.iter().find(|refused| refused.source == "parks").unwrap();
        assert_eq!((said.component, said.what.as_str()), (Some(second), "runtime.gopark"));
        assert!(said.why.starts_with("already probed for "), "{}", said.why);
        // Whoever comes when the first is gone has them.
        planner.release(places[0]);
        let again = planner.add(&programs[order[1]]).unwrap();
        assert_eq!(planner.plan().binaries[again].parks.len(), 1);
    }
    let mut other = programs[1].clone();
    other.inode += 1;
    let mut planner = Planner::default().with_parks(true);
    let places = [&programs[0], &other].map(|facts| planner.add(facts).unwrap());
    assert_eq!(places.map(|place| planner.plan().binaries[place].parks.len()), [1, 1], "of two files");
}

/// An executable for which there is no room leaves no trace: neither slots nor hooks nor refusals. It is planned whole when
/// another one has made room.
#[test]
fn all_or_nothing() {
    let other = HANDLER.replace("ListContainers", "ListPodSandbox");
    let mut planner = Planner::default();
    planner.limit_hooks(4);
    let first = planner.add_whole(&facts(Component::Containerd, functions(&[HANDLER, REPLY, END])));
    assert_eq!(first, Ok(Some(0)));
    let told = (planner.take_hooks().len(), planner.take_refused().len());
    assert_eq!(told.0, 3);
    let second = facts(Component::Containerd, functions(&[&other, HANDLER, REPLY, END]));
    for _ in 0..3 {
        assert_eq!(planner.add_whole(&second), Err("more than 4 hooks".to_owned()));
    }
    assert!(planner.take_hooks().is_empty() && planner.take_refused().is_empty());
    assert_eq!(planner.plan().binaries.len(), 1);
    planner.release(0);
    assert_eq!(planner.add_whole(&second), Ok(Some(1)));
    let hooks: BTreeSet<u32> = planner.take_hooks().iter().map(|hook| hook.index).collect();
    assert_eq!(hooks, BTreeSet::from([0, 1, 2, 3]));
}

/// The table is as large as the plan and one successor of everything in it need, within bounds.
#[test]
fn the_table_follows_the_plan() {
    let wanted = |hooks: usize| {
        let mut planner = Planner::default();
        let hook = |symbol: &str| function(Component::Containerd, symbol, Ok(vec![]));
        let found = (0..hooks).map(|_| hook(REPLY)).collect();
        planner.add(&facts(Component::Containerd, found));
        planner.hooks_wanted()
    };
    assert_eq!([0, 50, 100, 300].map(wanted), [192, 192, 232, MAX_HOOKS]);
}
