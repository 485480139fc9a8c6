//! Both directions of one connection: frames in, requests out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plegtrace_common::wire::grpc::Messages;

use super::direction::{Direction, Frame, Side, count};
use super::hpack::{Entry, Line, MAX_LINES};
use super::request::{End, Method, Request, timeout_ns};

/// Most requests of one connection that may be open.
pub const MAX_OPEN: usize = 16_384;
/// Most finished requests that wait to be taken.
pub const MAX_FINISHED: usize = 16_384;
/// Streams of which a teacher may still speak.
const MAX_REMEMBERED: usize = 256;
/// First words of witnesses that wait for a second one.
const MAX_SAID: usize = 128;
/// Entries without content before the path of a request; with more of them nothing is learnt.
const MAX_AMONG: usize = 32;

/// What did not fit, or was not what it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests seen.
    pub requests: u64,
    /// Requests that were not followed because too many were open.
    pub refused: u64,
    /// Finished requests dropped because nobody took them.
    pub dropped: u64,
    /// Header blocks on streams that are not ours to open: even, or not above the last one.
    pub strange_streams: u64,
    /// Responses to requests that we have not seen.
    pub unasked: u64,
    /// Lessons that cannot be true of what is known.
    pub contradictions: u64,
    /// Header blocks that could not be decoded, both directions.
    pub broken_blocks: u64,
    /// Times a direction got out of step.
    pub losses: u64,
    /// Bytes skipped while out of step.
    pub skipped: u64,
}

/// What came of a lesson.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taught {
    /// It is remembered, or was known.
    Fits,
    /// Nothing can be learnt from it: the stream is forgotten or unknown, or its table is gone.
    Useless,
    /// It contradicts what is known: all that was learnt on the connection is forgotten.
    Contradicts,
}

/// What a request's block says about its path.
#[derive(Debug)]
enum Path {
    Known(Arc<str>),
    /// It is one of these entries, or of these values, whose names are unknown.
    Among(Vec<u64>, Vec<Arc<str>>),
    Unreadable,
}

/// A stream of which a teacher may still speak.
#[derive(Debug)]
struct Remembered {
    stream: u32,
    /// The table that its block was decoded with.
    epoch: u32,
    path: Path,
}

/// What the first witness said of requests that look like this one.
#[derive(Debug)]
struct Said {
    stream: u32,
    epoch: u32,
    among: Vec<u64>,
    method: Arc<str>,
}

/// What requests of an unknown method have called, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The method as they had it.
    pub unknown: Method,
    /// `/package.Service/Method`.
    pub path: Arc<str>,
}

/// A connection between a client and a runtime.
#[derive(Debug)]
pub struct Connection {
    client: Direction,
    server: Direction,
    /// Oldest first.
    remembered: VecDeque<Remembered>,
    /// Oldest first.
    said: VecDeque<Said>,
    /// Since the last time that somebody asked.
    learnt: Vec<Learnt>,
    open: BTreeMap<u32, Request>,
    finished: VecDeque<Request>,
    last_stream: u32,
    counts: Counts,
}

impl Connection {
    /// One whose first byte we see.
    #[must_use]
    pub fn new() -> Self {
        Self { client: Direction::new(Side::Client), server: Direction::new(Side::Server), ..Self::late() }
    }

    /// One that is older than us.
    #[must_use]
    pub fn late() -> Self {
        Self {
            client: Direction::late(Side::Client),
            server: Direction::late(Side::Server),
            remembered: VecDeque::new(),
            said: VecDeque::new(),
            learnt: Vec::new(),
            open: BTreeMap::new(),
            finished: VecDeque::new(),
            last_stream: 0,
            counts: Counts::default(),
        }
    }

    /// Takes the bytes that `side` sent in one system call at `at_ns`.
    pub fn push(&mut self, side: Side, at_ns: u64, bytes: &[u8]) {
        // The direction is taken out while its frames change the rest.
        let place = self.direction(side);
        let mut direction = std::mem::replace(place, Direction::late(side));
        direction.push(bytes, |direction, frame| match side {
            Side::Client => self.client_sent(direction, at_ns, frame),
            Side::Server => self.server_sent(at_ns, frame),
        });
        *self.direction(side) = direction;
    }

    /// Bytes of `side` were missed.
    pub fn miss(&mut self, side: Side) {
        self.direction(side).miss();
        self.lost();
    }

    /// Says that the request of a stream was `method` (`/package.Service/Method`), also when it has ended.
    pub fn teach(&mut self, stream: u32, method: &str) -> Taught {
        let method: Arc<str> = method.into();
        if Method::of_path(&method) == Method::Unreadable {
            return Taught::Useless;
        }
        let found = self.remembered.iter().rev().find(|of| of.stream == stream);
        let Some(found) = found.filter(|found| found.epoch == self.client.epoch()) else {
            return Taught::Useless;
        };
        let certain = match &found.path {
            Path::Known(known) if *known == method => return Taught::Fits,
            Path::Known(_) => return self.contradict(),
            Path::Among(among, values) if !among.is_empty() && !values.contains(&method) => {
                self.client.lessons.teach(&method, among)
            }
            Path::Among(..) | Path::Unreadable => return Taught::Useless,
        };
        let Ok(certain) = certain else { return self.contradict() };
        certain.iter().for_each(|(entry, path)| self.client.decoder.learn(*entry, ":path", path));
        let epoch = self.client.epoch();
        let news = self.client.lessons.news(&certain);
        let learnt = news.map(|(entry, path)| Learnt { unknown: Method::unknown(&[entry], epoch), path });
        self.learnt.extend(learnt);
        self.name_all(&certain);
        Taught::Fits
    }

    /// The same by a witness that may err: it counts when a second one says the same of another stream with the same unknown
    /// entries.
    pub fn witness(&mut self, stream: u32, method: &str) -> Taught {
        let epoch = self.client.epoch();
        let found = self.remembered.iter().rev().find(|of| of.stream == stream);
        let Some(found) = found.filter(|found| found.epoch == epoch) else { return Taught::Useless };
        let Path::Among(among, _) = &found.path else { return self.teach(stream, method) };
        let alike = |said: &&Said| (said.epoch, &said.among, &*said.method) == (epoch, among, method);
        match self.said.iter().find(alike) {
            Some(first) if first.stream != stream => self.teach(stream, method),
            Some(_) => Taught::Useless,
            None => {
                let said = Said { stream, epoch, among: among.clone(), method: method.into() };
                if self.said.len() >= MAX_SAID {
                    self.said.pop_front();
                }
                self.said.push_back(said);
                Taught::Useless
            }
        }
    }

    /// Takes a header block of the client that was put together elsewhere.
    pub fn block(&mut self, stream: u32, at_ns: u64, block: &[u8]) {
        let mut client = std::mem::replace(&mut self.client, Direction::late(Side::Client));
        let lines = client.decode(block);
        self.client_sent(&client, at_ns, Frame::Block { stream, is_last: false, lines });
        self.client = client;
    }

    /// What was learnt since the last time: every block that refers to such an entry has that path, also of requests that have
    /// ended.
    pub fn take_learnt(&mut self) -> Vec<Learnt> {
        std::mem::take(&mut self.learnt)
    }

    /// The request of a stream that has no end yet.
    #[must_use]
    pub fn request(&self, stream: u32) -> Option<&Request> {
        self.open.get(&stream)
    }

    /// Forgets the request of a stream, whose end was seen elsewhere.
    pub fn forget(&mut self, stream: u32) -> Option<Request> {
        self.open.remove(&stream)
    }

    /// The requests without an end, by stream.
    pub fn open(&self) -> impl Iterator<Item = &Request> {
        self.open.values()
    }

    /// The requests that have ended since the last time, in the order of their ends.
    pub fn take_finished(&mut self) -> Vec<Request> {
        self.finished.drain(..).collect()
    }

    /// How many requests it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.open.len() + self.finished.len()
    }

    /// What did not fit.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (client, server) = (self.client.walker(), self.server.walker());
        Counts {
            broken_blocks: self.client.broken() + self.server.broken(),
            losses: u64::from(client.losses) + u64::from(server.losses),
            skipped: client.skipped.saturating_add(server.skipped),
            ..self.counts
        }
    }

    fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn client_sent(&mut self, direction: &Direction, at_ns: u64, frame: Frame<'_>) {
        match frame {
            Frame::Block { stream, is_last, lines } => {
                if let Some(request) = self.open.get_mut(&stream) {
                    request.half_closed |= is_last;
                } else if stream % 2 == 0 || stream <= self.last_stream {
                    self.counts.strange_streams += 1;
                } else {
                    self.begin(stream, direction, at_ns, is_last, lines.as_deref());
                }
            }
            Frame::Data { stream, bytes, is_last } => {
                if let Some(request) = self.open.get_mut(&stream) {
                    count(&mut request.sent, bytes);
                    request.half_closed |= is_last;
                }
            }
            Frame::Reset { stream, code } => {
                self.end(stream, at_ns, End::Reset { by: Side::Client, code });
            }
            Frame::Lost => self.lost(),
            Frame::Joined | Frame::GoAway { .. } => {}
        }
    }

    fn server_sent(&mut self, at_ns: u64, frame: Frame<'_>) {
        match frame {
            Frame::Block { stream, is_last, lines } => {
                let Some(request) = self.open.get_mut(&stream) else {
                    self.counts.unasked += u64::from(stream > self.last_stream);
                    return;
                };
                request.answered = true;
                if is_last {
                    let status = lines.as_deref().and_then(status_of);
                    self.end(stream, at_ns, End::Status(status));
                }
            }
            Frame::Data { stream, bytes, is_last } => {
                let Some(request) = self.open.get_mut(&stream) else { return };
                request.answered = true;
                count(&mut request.received, bytes);
                if is_last {
                    self.end(stream, at_ns, End::WithoutTrailers);
                }
            }
            Frame::Reset { stream, code } => {
                self.end(stream, at_ns, End::Reset { by: Side::Server, code });
            }
            Frame::GoAway { last, code } => {
                let refused: Vec<u32> =
                    self.open.range(last.saturating_add(1)..).map(|(stream, _)| *stream).collect();
                refused.into_iter().for_each(|stream| self.end(stream, at_ns, End::Refused { code }));
            }
            Frame::Lost => self.lost(),
            Frame::Joined => {}
        }
    }

    fn begin(
        &mut self,
        stream: u32,
        direction: &Direction,
        at_ns: u64,
        half_closed: bool,
        lines: Option<&[Line]>,
    ) {
        self.last_stream = stream;
        self.counts.requests += 1;
        let path = lines.map_or(Path::Unreadable, path_of);
        let method = match &path {
            Path::Known(path) => Method::of_path(path),
            Path::Among(among, _) => method_among(direction, among),
            Path::Unreadable => Method::Unreadable,
        };
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(Remembered { stream, epoch: direction.epoch(), path });
        if self.open.len() >= MAX_OPEN {
            self.counts.refused += 1;
            return;
        }
        let timeout_ns = lines.and_then(|lines| value_of(lines, "grpc-timeout")).and_then(timeout_ns);
        let request = Request {
            stream,
            method,
            timeout_ns,
            start_ns: at_ns,
            end: None,
            sent: Messages::default(),
            received: Messages::default(),
            half_closed,
            answered: false,
            doubtful: false,
        };
        self.open.insert(stream, request);
    }

    fn end(&mut self, stream: u32, at_ns: u64, end: End) {
        let Some(mut request) = self.open.remove(&stream) else { return };
        request.end = Some((at_ns, end));
        if self.finished.len() >= MAX_FINISHED {
            self.finished.pop_front();
            self.counts.dropped += 1;
        }
        self.finished.push_back(request);
    }

    /// Names the requests of the current table that have no name yet.
    fn name_all(&mut self, certain: &[(u64, Arc<str>)]) {
        let epoch = self.client.epoch();
        for remembered in self.remembered.iter_mut().filter(|one| one.epoch == epoch) {
            let Path::Among(among, _) = &remembered.path else { continue };
            let learnt = certain.iter().find(|(entry, _)| among.contains(entry));
            let path = learnt.map(|(_, path)| path).or_else(|| self.client.lessons.value_of(among));
            let Some(path) = path.cloned() else { continue };
            let stream = remembered.stream;
            let finished = self.finished.iter_mut().rev().find(|request| request.stream == stream);
            if let Some(request) = self.open.get_mut(&stream).or(finished) {
                request.method = Method::of_path(&path);
            }
            remembered.path = Path::Known(path);
        }
    }

    fn contradict(&mut self) -> Taught {
        self.counts.contradictions += 1;
        self.client.forget();
        Taught::Contradicts
    }

    fn lost(&mut self) {
        self.open.values_mut().for_each(|request| request.doubtful = true);
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::late()
    }
}

/// The value of the first field of a name.
fn value_of<'l>(lines: &'l [Line], name: &str) -> Option<&'l str> {
    let line = lines.iter().find(|line| line.entry.name.as_deref() == Some(name))?;
    line.entry.value.as_deref()
}

/// The grpc-status of trailers.
fn status_of(lines: &[Line]) -> Option<u32> {
    value_of(lines, "grpc-status")?.parse().ok()
}

/// What a request's block says about its path.
fn path_of(lines: &[Line]) -> Path {
    if let Some(line) = lines.iter().find(|line| line.entry.name.as_deref() == Some(":path")) {
        return line.entry.value.clone().map_or(Path::Unreadable, Path::Known);
    }
    // Fields that begin with a colon come first (RFC 9113, 8.3): behind any other there is no path.
    let is_early = |line: &&Line| line.entry.name.as_deref().is_none_or(|name| name.starts_with(':'));
    let early = || lines.iter().take_while(is_early);
    let among: Vec<u64> =
        early().filter(|line| line.entry == Entry::default()).filter_map(|line| line.ordinal).collect();
    let nameless = early().filter(|line| line.entry.name.is_none());
    let values = nameless.filter_map(|line| line.entry.value.clone()).collect();
    if among.len() > MAX_AMONG || lines.len() >= MAX_LINES {
        Path::Unreadable
    } else {
        Path::Among(among, values)
    }
}

fn method_among(direction: &Direction, among: &[u64]) -> Method {
    if let Some(path) = direction.lessons.value_of(among) {
        return Method::of_path(path);
    }
    let left: Vec<u64> = among.iter().copied().filter(|entry| !direction.lessons.is_common(*entry)).collect();
    Method::unknown(&left, direction.epoch())
}
