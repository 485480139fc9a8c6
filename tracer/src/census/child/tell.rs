//! [`Tell`]: the child's voice. Buffers answers, and hands them over before anything that can block.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use crate::census::protocol::{Answer, HELLO, Order, Step};
use crate::input::Unanswered;

/// Order and answers.
pub(super) struct Tell {
    pub(super) order: Order,
    out: BufWriter<Box<dyn Write>>,
}

impl Tell {
    pub(super) fn new(order: Order) -> Self {
        Self::to(order, io::stdout())
    }

    fn to(order: Order, out: impl Write + 'static) -> Self {
        Self { order, out: BufWriter::with_capacity(1 << 16, Box::new(out)) }
    }

    /// One that looks at the tree below a directory.
    #[cfg(test)]
    pub(super) fn below(root: &std::path::Path, out: impl Write + 'static) -> Self {
        let order = Order {
            root: root.to_owned(),
            parent: 1,
            kubelet: None,
            runtime: None,
            skip: Vec::new(),
            foreign: Vec::new(),
            finished: Vec::new(),
            late: Vec::new(),
            what: crate::census::protocol::What::Processes,
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
        if self.order.was_late(pid, step) {
            return Ok(false);
        }
        self.say(&Answer::Asking { pid, comm: comm.to_owned(), step })?;
        self.out.flush()?;
        Ok(true)
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
