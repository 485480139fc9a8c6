//! Who else sees how slow the node is: the kubelet's own metrics, the clocks of plugins and hooks, our own calls. What is
//! slow is what takes longer than the documented figure of its kind; the verdict of plegtrace plays no part in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plegtrace::correlate::thresholds::{CNI_SLOW_NS, HOOK_SLOW_NS, RUNC_SLOW_NS};
use plegtrace::cri::Takes;
use plegtrace_lab::Node;
use plegtrace_lab::gate::{self, Place};
use plegtrace_lab::promtext::Page;

use super::kind::{Kind, POD};
use super::{COME, LIMIT};

/// So many relists, and so many rarer operations, have to be slow: one is none.
const MANY: usize = 5;
const FEW: usize = 3;
/// Operations of the kubelet that write to the disk of containerd, what a sound node takes for each, and the first bucket of the
/// kubelet's histograms that is not below that, in seconds.
const WRITING: [(&str, Takes, &str); 4] = [
    ("run_podsandbox", Takes::Network, "10"),
    ("create_container", Takes::Disk, "5"),
    ("start_container", Takes::Forks, "5"),
    ("remove_container", Takes::Disk, "5"),
];
const OPERATIONS: &str = "kubelet_runtime_operations_duration_seconds";

/// What a witness has seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Of what.
    pub(super) what: String,
    pub(super) count: usize,
    /// A median, or of what the kubelet tells no more than the mean.
    pub(super) takes: Duration,
    /// What it takes at most on a node that is merely busy.
    pub(super) figure: Duration,
    /// How many took longer than that.
    pub(super) late: usize,
    enough: usize,
    /// Not most of them have to be late, but a quarter: with a quota they are so in bursts.
    in_bursts: bool,
}

impl Seen {
    /// Would an operator call the node slow? Most are late; or, of relists below a quota, a quarter.
    pub(super) fn is_slow(&self) -> bool {
        let late = if self.in_bursts { self.late * 4 >= self.count } else { self.late * 2 > self.count };
        self.count >= self.enough && late
    }

    fn median(what: &str, mut all: Vec<Duration>, figure_ns: u64, enough: usize) -> Seen {
        all.sort_unstable();
        let takes = all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let figure = Duration::from_nanos(figure_ns);
        let late = all.iter().filter(|took| **took > figure).count();
        Seen { what: what.to_owned(), count: all.len(), takes, figure, late, enough, in_bursts: false }
    }
}

/// A witness at work.
pub(super) enum Witness {
    /// What the kubelet's page said before.
    Page(Box<Page>),
    /// How many came to a gate before.
    Gate(Place, usize),
    /// Commands that we execute ourselves.
    Execs(Execs),
}

impl Witness {
    pub(super) fn start(node: &Node, kind: Kind) -> Witness {
        match kind {
            Kind::Containerd | Kind::Kubelet | Kind::Disk => {
                Witness::Page(Box::new(node.kubelet().metrics(LIMIT).unwrap()))
            }
            Kind::Plugin => Witness::gate(node, Place::Cni),
            Kind::Hook => Witness::gate(node, Place::CreateRuntime),
            Kind::Shim => Witness::Execs(Execs::start(node)),
        }
    }

    fn gate(node: &Node, place: Place) -> Witness {
        Witness::Gate(place, passed(node, place).len())
    }

    /// What it has seen since it started; pods were `asked` for then.
    pub(super) fn seen(self, node: &Node, asked: Option<Instant>) -> Seen {
        match self {
            Witness::Page(before) => {
                let after = node.kubelet().metrics(LIMIT).unwrap();
                match asked {
                    Some(asked) => operations(&before, &after, asked),
                    None => relists(&before, &after),
                }
            }
            Witness::Gate(place, before) => {
                let all = passed(node, place).split_off(before);
                let figure = if place == Place::Cni { CNI_SLOW_NS } else { HOOK_SLOW_NS };
                Seen::median(place.name(), all, figure, FEW)
            }
            Witness::Execs(execs) => Seen::median("exec", execs.stop(), RUNC_SLOW_NS, FEW),
        }
    }
}

fn passed(node: &Node, place: Place) -> Vec<Duration> {
    gate::passed(node.containerd().scratch().path(), place).unwrap()
}

/// What came to a histogram of the kubelet between two pages: how many, their mean, and how many were above a bucket.
fn grown(name: &str, labels: &[(&str, &str)], bucket: &str, pages: [&Page; 2]) -> (usize, Duration, usize) {
    let grown = |part: &str, labels: &[(&str, &str)]| {
        let name = format!("{name}_{part}");
        let [before, after] = pages.map(|page| page.sum(&name, labels));
        after - before
    };
    let (count, sum) = (grown("count", labels), grown("sum", labels));
    let late = count - grown("bucket", &[labels, &[("le", bucket)]].concat());
    let mean = Duration::from_secs_f64(if count > 0.0 { sum / count } else { 0.0 });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of calls")]
    (count as usize, mean, late as usize)
}

/// Of relists with their two lists.
fn relists(before: &Page, after: &Page) -> Seen {
    let figure = Duration::from_nanos(2 * Takes::Memory.normal_ns().unwrap());
    let bucket = figure.as_secs_f64().to_string();
    let (count, takes, late) = grown("kubelet_pleg_relist_duration_seconds", &[], &bucket, [before, after]);
    // Of those that take seconds few come in the time.
    let enough = if takes > Duration::from_secs(1) { FEW } else { MANY };
    Seen { what: "relist".to_owned(), count, takes, figure, late, enough, in_bursts: true }
}

/// Of the operations that write, the one of which most are late. Of sandboxes that are not there yet each takes at least as long
/// as has passed.
fn operations(before: &Page, after: &Page, asked: Instant) -> Seen {
    let of = |(name, takes, bucket): (&str, Takes, &str)| {
        let (count, mean, late) = grown(OPERATIONS, &[("operation_type", name)], bucket, [before, after]);
        let figure = Duration::from_nanos(takes.normal_ns().unwrap());
        Seen { what: name.to_owned(), count, takes: mean, figure, late, enough: FEW, in_bursts: false }
    };
    let all = WRITING.map(of).into_iter().filter(|seen| seen.count >= FEW);
    all.max_by_key(|seen| (seen.late, seen.takes)).unwrap_or_else(|| {
        let sandboxes = of(WRITING[0]);
        let (what, takes) = (format!("{}, open", sandboxes.what), asked.elapsed());
        let count = COME - sandboxes.count;
        let late = if takes > sandboxes.figure { count } else { 0 };
        Seen { what, takes, count, late, ..sandboxes }
    })
}

/// Commands that our own client executes in a pod, one after the other, with a clock.
pub(super) struct Execs {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Execs {
    fn start(node: &Node) -> Execs {
        let (client, container) = (node.containerd().client().clone(), node.pod(POD).unwrap().container);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut taken = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                client.exec_sync(&container, &["/bin/true"], LIMIT).unwrap();
                taken.push(began.elapsed());
            }
            taken
        });
        Execs { stop, thread }
    }

    fn stop(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
