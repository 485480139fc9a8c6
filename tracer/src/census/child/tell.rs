//! [`Tell`]: the child's voice. Buffers answers, and hands them over before anything that can block.

use std::{
    collections::{BTreeSet, HashMap},
    io::{self, BufWriter, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::census::protocol::{Answer, HELLO, OTHERS, Order, Step};
use crate::input::Unanswered;
use crate::target::namespace;

/// Order and answers.
pub(super) struct Tell {
    pub(super) order: Order,
    out: BufWriter<Box<dyn Write>>,
    others: Others,
    links_wait: Option<bool>,
}

/// Processes that are not in the pid namespace of the node: a container can name them as it likes, and make whoever asks
/// them wait. They are asked after the node's own, within a time of their own.
#[derive(Default)]
struct Others {
    known: HashMap<u32, bool>,
    /// Since when one of them is asked.
    asked: Option<Instant>,
    spent: Duration,
    unasked: BTreeSet<u32>,
}

impl Tell {
    pub(super) fn new(order: Order) -> Self {
        Self::to(order, io::stdout())
    }

    fn to(order: Order, out: impl Write + 'static) -> Self {
        Self {
            order,
            out: BufWriter::with_capacity(1 << 16, Box::new(out)),
            others: Others::default(),
            links_wait: None,
        }
    }

    /// One that looks at the tree below a directory.
    #[cfg(test)]
    pub(super) fn below(root: &std::path::Path, out: impl Write + 'static) -> Self {
        let order = Order {
            root: root.to_owned(),
            files_of: None,
            parent: 1,
            kubelet: None,
            runtime: None,
            skip: Vec::new(),
            foreign: Vec::new(),
            shims_call: None,
            of_user: false,
            connections: false,
            finished: Vec::new(),
            namespace: None,
            others_ms: 1000,
            late: Vec::new(),
            plugins: false,
            what: crate::census::protocol::Job::Processes,
        };
        Self::to(order, out)
    }

    /// First line.
    pub(super) fn hello(&mut self) -> io::Result<()> {
        self.say(&Answer::Hello(HELLO.to_owned()))?;
        self.out.flush()
    }

    /// Says something, soon.
    pub(super) fn say(&mut self, answer: &Answer) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, answer)?;
        self.out.write_all(b"\n")
    }

    /// May this be asked? Then the parent knows that it is asked now, and everything said before.
    pub(super) fn ask(&mut self, pid: u32, comm: &str, step: Step) -> io::Result<bool> {
        if let Some(asked) = self.others.asked.take() {
            self.others.spent += asked.elapsed();
        }
        if self.order.was_late(pid, step) {
            return Ok(false);
        }
        let elsewhere = pid != 0 && self.is_elsewhere(pid);
        if elsewhere && self.others.spent >= Duration::from_millis(self.order.others_ms) {
            self.others.unasked.insert(pid);
            return Ok(false);
        }
        self.say(&Answer::Asking { pid, comm: comm.to_owned(), step, elsewhere })?;
        self.out.flush()?;
        self.others.asked = elsewhere.then(Instant::now);
        Ok(true)
    }

    /// Can the link to the program of a process make its reader wait? Before Linux 4.1, and where the version is not known.
    pub(super) fn links_wait(&mut self) -> bool {
        if let Some(known) = self.links_wait {
            return known;
        }
        let release = std::fs::read_to_string(self.path("/proc/sys/kernel/osrelease")).unwrap_or_default();
        let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        *self.links_wait.insert(version < (4, 1))
    }

    /// Is it in another pid namespace than the node's own processes? `false` when that cannot be told. Waits for nothing.
    pub(super) fn is_elsewhere(&mut self, pid: u32) -> bool {
        if let Some(known) = self.others.known.get(&pid) {
            return *known;
        }
        let node = self.order.namespace.or_else(|| namespace(&self.process(1), "pid"));
        let own = namespace(&self.process(pid), "pid");
        let elsewhere = own.zip(node).is_some_and(|(own, node)| own != node);
        self.others.known.insert(pid, elsewhere);
        elsewhere
    }

    /// The node's own processes first, otherwise in the same order.
    pub(super) fn own_first(&mut self, pids: &mut [u32]) {
        pids.sort_by_cached_key(|pid| self.is_elsewhere(*pid));
    }

    /// A question that was answered with an error.
    pub(super) fn refused(&mut self, pid: u32, comm: &str, what: &str, why: &io::Error) -> io::Result<()> {
        // Without the number that Rust adds.
        let why = match why.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "permission denied".to_owned(),
            Some(libc::ENOENT) => "this kernel does not tell".to_owned(),
            _ => why.to_string(),
        };
        self.say(&Answer::Refused(Unanswered { pid, comm: comm.to_owned(), what: what.to_owned(), why }))
    }

    /// Something was cut at its bound.
    pub(super) fn cut(&mut self, pid: u32, comm: &str, what: &str, why: String) -> io::Result<()> {
        self.say(&Answer::Refused(Unanswered { pid, comm: comm.to_owned(), what: what.to_owned(), why }))
    }

    /// Last line.
    pub(super) fn done(&mut self) -> io::Result<()> {
        let unasked = self.others.unasked.len();
        if unasked > 0 {
            self.cut(
                0,
                "",
                OTHERS,
                format!("{unasked} were not asked: their share of the time was used up"),
            )?;
        }
        self.say(&Answer::Done)?;
        self.out.flush()
    }

    /// Did an earlier child tell everything of it?
    pub(super) fn is_finished(&self, pid: u32) -> bool {
        self.order.finished.contains(&pid)
    }

    /// A path of the node, below the root that is looked at.
    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.order.root.join(absolute.trim_start_matches('/'))
    }

    /// Is this the machine we run on? Memory and sockets can only be asked for there.
    pub(super) fn is_here(&self) -> bool {
        self.order.root.as_os_str() == "/"
    }

    /// The directory of a process.
    pub(super) fn process(&self, pid: u32) -> PathBuf {
        self.path(&format!("/proc/{pid}"))
    }
}
