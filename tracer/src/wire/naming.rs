//! [`Naming`]: what requests call, from the header blocks that their clients sent.
//!
//! Blocks come in order, in fragments; what a socket did not take comes again. What is missing costs the header table of its
//! connection, never a wrong name.

use std::collections::BTreeMap;

use super::{Connection, Method, Side, Taught, direction::MAX_BLOCK};

/// Most connections that are followed; the one unused for longest is forgotten.
const MAX_CONNECTIONS: usize = 512;

/// A fragment of a header block of a client.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'b> {
    /// Its connection.
    pub socket: u64,
    /// Another number is another header table.
    pub joined_ns: u64,
    /// Every block of the connection has been seen.
    pub from_start: bool,
    /// Bytes of blocks before this fragment.
    pub offset: u64,
    /// Stream.
    pub stream: u32,
    /// When it was written.
    pub at_ns: u64,
    /// It begins a block.
    pub first: bool,
    /// It ends one.
    pub last: bool,
    /// How long it is.
    pub len: u32,
    /// Its bytes; `None` when they are not all there.
    pub bytes: Option<&'b [u8]>,
}

#[derive(Debug)]
struct Named {
    joined_ns: u64,
    /// The number of its header table: what is unknown in one is something else in another.
    table: u32,
    connection: Connection,
    /// Every block was seen.
    is_whole: bool,
    /// Bytes of blocks so far.
    offset: u64,
    /// The beginning of a block, and its stream.
    begun: Option<(u32, Vec<u8>)>,
    used: u64,
}

/// A name that was unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// As requests had it so far.
    pub unknown: String,
    /// `package.Service/Method`.
    pub name: String,
}

/// Names of requests, by connection and stream.
#[derive(Debug, Default)]
pub struct Naming {
    connections: BTreeMap<u64, Named>,
    turn: u64,
    tables: u32,
    learnt: Vec<Learnt>,
    /// Header blocks that were not seen whole: their requests have no name, and later ones of their connections may have
    /// none.
    pub missed: u64,
    /// Connections that were forgotten because there were too many.
    pub forgotten: u64,
    /// Times that witnesses contradicted what was known of a connection: all its names were forgotten then.
    pub contradicted: u64,
}

impl Naming {
    /// Takes a fragment.
    pub fn take(&mut self, fragment: &Fragment<'_>) {
        self.turn += 1;
        let known = self.connections.get(&fragment.socket);
        if known.is_none_or(|known| known.joined_ns != fragment.joined_ns) {
            self.join(fragment);
        }
        let Some(named) = self.connections.get_mut(&fragment.socket) else { return };
        named.used = self.turn;
        let end = fragment.offset.saturating_add(u64::from(fragment.len));
        if end <= named.offset && fragment.len > 0 {
            // Seen before: the socket had not taken it.
            return;
        }
        let again = named.offset.checked_sub(fragment.offset).and_then(|again| usize::try_from(again).ok());
        let bytes = again.and_then(|again| fragment.bytes?.get(again..));
        named.offset = end;
        let Some(bytes) = bytes else { return self.miss(fragment.socket) };
        if fragment.first && again == Some(0) {
            named.begun = Some((fragment.stream, Vec::new()));
        }
        let Some((stream, block)) = &mut named.begun else { return self.miss(fragment.socket) };
        if *stream != fragment.stream || block.len() + bytes.len() > MAX_BLOCK {
            return self.miss(fragment.socket);
        }
        block.extend_from_slice(bytes);
        if fragment.last
            && let Some((stream, block)) = named.begun.take()
        {
            named.connection.block(stream, fragment.at_ns, &block);
        }
    }

    /// A witness says what the request of a stream called (`/package.Service/Method`). Two have to agree.
    pub fn witness(&mut self, socket: u64, stream: u32, path: &str) {
        let Some(named) = self.connections.get_mut(&socket) else { return };
        if named.is_whole && named.connection.counts().broken_blocks == 0 {
            // Its own words are better.
            return;
        }
        self.contradicted += u64::from(named.connection.witness(stream, path) == Taught::Contradicts);
        let learnt = named.connection.take_learnt().into_iter();
        self.learnt.extend(learnt.map(|learnt| Learnt {
            unknown: text(&learnt.unknown, named.table),
            name: learnt.path.trim_start_matches('/').to_owned(),
        }));
    }

    /// Names that have become known since the last time, also of requests that have ended without one.
    pub fn take_learnt(&mut self) -> Vec<Learnt> {
        std::mem::take(&mut self.learnt)
    }

    /// Is this a connection whose client is followed here?
    #[must_use]
    pub fn follows(&self, socket: u64) -> bool {
        self.connections.contains_key(&socket)
    }

    /// What an open request calls; empty when that could not be read.
    #[must_use]
    pub fn name(&self, socket: u64, stream: u32) -> String {
        let Some(named) = self.connections.get(&socket) else { return String::new() };
        named.connection.request(stream).map(|request| text(&request.method, named.table)).unwrap_or_default()
    }

    /// The same of one that has ended, which is forgotten.
    pub fn end(&mut self, socket: u64, stream: u32) -> String {
        let Some(named) = self.connections.get_mut(&socket) else { return String::new() };
        let ended = named.connection.forget(stream);
        ended.map(|request| text(&request.method, named.table)).unwrap_or_default()
    }

    /// Forgets the requests older than `before_ns` that are not open any more.
    pub fn keep(&mut self, before_ns: u64, is_open: impl Fn(u64, u32) -> bool) {
        for (socket, named) in &mut self.connections {
            let over =
                |request: &&super::Request| request.start_ns < before_ns && !is_open(*socket, request.stream);
            let over: Vec<u32> = named.connection.open().filter(over).map(|request| request.stream).collect();
            for stream in over {
                named.connection.forget(stream);
            }
        }
    }

    /// A connection begins, or is in step again.
    fn join(&mut self, fragment: &Fragment<'_>) {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&fragment.socket) {
            let oldest =
                self.connections.iter().min_by_key(|(_, named)| named.used).map(|(socket, _)| *socket);
            oldest.map(|socket| self.connections.remove(&socket));
            self.forgotten += 1;
        }
        let begins = fragment.from_start && fragment.offset == 0;
        let connection = if begins { Connection::new() } else { Connection::late() };
        let (joined_ns, used) = (fragment.joined_ns, self.turn);
        self.tables = self.tables.wrapping_add(1);
        // Of a table that began before us nothing is missing that was known.
        let offset = if begins { 0 } else { fragment.offset };
        let table = self.tables;
        let named = Named { joined_ns, table, connection, is_whole: begins, offset, begun: None, used };
        self.connections.insert(fragment.socket, named);
    }

    fn miss(&mut self, socket: u64) {
        self.missed += 1;
        if let Some(named) = self.connections.get_mut(&socket) {
            (named.begun, named.is_whole) = (None, false);
            named.connection.miss(Side::Client);
        }
    }
}

/// `package.Service/Method`, `unknown#k@table`, or nothing.
fn text(method: &Method, table: u32) -> String {
    match method {
        Method::Known(path) => path.trim_start_matches('/').to_owned(),
        Method::Unknown { .. } => format!("{method}@{table}"),
        Method::Unreadable => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `:path: /a.B/C` as a literal that enters the table.
    const LITERAL: &[u8] = b"\x44\x06/a.B/C";
    /// The newest entry of the table.
    const INDEXED: &[u8] = b"\xbe";

    fn fragment(stream: u32, offset: u64, bytes: &[u8]) -> Fragment<'_> {
        Fragment {
            socket: 7,
            joined_ns: 50,
            from_start: true,
            offset,
            stream,
            at_ns: 100 + offset,
            first: true,
            last: true,
            len: u32::try_from(bytes.len()).unwrap(),
            bytes: Some(bytes),
        }
    }

    /// The second request of a connection refers to what the first has said.
    #[test]
    fn names_of_a_connection_that_begins() {
        let mut naming = Naming::default();
        naming.take(&fragment(1, 0, LITERAL));
        naming.take(&fragment(3, 8, INDEXED));
        assert_eq!((naming.name(7, 1), naming.name(7, 3)), ("a.B/C".to_owned(), "a.B/C".to_owned()));
        assert_eq!(
            (naming.end(7, 1), naming.end(7, 1), naming.missed),
            ("a.B/C".to_owned(), String::new(), 0)
        );
        assert_eq!([naming.name(7, 5), naming.name(8, 3)], ["", ""]);
        naming.keep(108, |_, _| false);
        assert_eq!(naming.name(7, 3), "a.B/C", "it is not older");
        naming.keep(109, |socket, stream| (socket, stream) == (7, 3));
        assert_eq!(naming.name(7, 3), "a.B/C");
        naming.keep(109, |_, _| false);
        assert_eq!(naming.name(7, 3), "");
    }

    /// What comes again because a socket had no room is not taken twice, wherever it was cut.
    #[test]
    fn written_again() {
        for cut in 0..=LITERAL.len() {
            let mut naming = Naming::default();
            naming.take(&fragment(1, 0, LITERAL));
            let rest = Fragment { first: cut == 0, ..fragment(1, cut as u64, &LITERAL[cut..]) };
            if cut < LITERAL.len() {
                naming.take(&rest);
            }
            naming.take(&fragment(3, 8, INDEXED));
            assert_eq!((naming.name(7, 3).as_str(), naming.missed), ("a.B/C", 0), "cut at {cut}");
        }
    }

    /// A block in fragments is one.
    #[test]
    fn in_fragments() {
        for cut in 1..LITERAL.len() {
            let mut naming = Naming::default();
            naming.take(&Fragment { last: false, ..fragment(1, 0, &LITERAL[..cut]) });
            naming.take(&Fragment { first: false, ..fragment(1, cut as u64, &LITERAL[cut..]) });
            assert_eq!((naming.name(7, 1).as_str(), naming.missed), ("a.B/C", 0), "cut at {cut}");
        }
    }

    /// A block that is missing, or cut, costs the table: what it had said is unknown, not something else.
    #[test]
    fn what_is_missing_is_unknown() {
        let mut naming = Naming::default();
        naming.take(&fragment(1, 0, LITERAL));
        naming.take(&fragment(5, 8 + 30, INDEXED));
        naming.take(&fragment(7, 8 + 31, INDEXED));
        assert_eq!((naming.name(7, 5).as_str(), naming.missed), ("", 1));
        assert!(naming.name(7, 7).starts_with("unknown#"), "{}", naming.name(7, 7));
        naming.take(&fragment(9, 8 + 32, LITERAL));
        assert_eq!(naming.name(7, 9), "a.B/C", "its own words are believed");

        let mut naming = Naming::default();
        naming.take(&Fragment { bytes: None, ..fragment(1, 0, LITERAL) });
        naming.take(&fragment(3, 8, INDEXED));
        assert_eq!((naming.name(7, 1).as_str(), naming.missed), ("", 1));
        assert!(naming.name(7, 3).starts_with("unknown#"));
    }

    /// Two witnesses that agree give a name to requests of before and of later; one does not, nor the same one twice.
    #[test]
    fn two_witnesses() {
        let late = |stream, offset, bytes| Fragment { from_start: false, ..fragment(stream, offset, bytes) };
        // Entries 63 and 62 of a table that is older than we: two methods.
        let (status, version) = (b"\xbf", b"\xbe");
        let mut naming = Naming::default();
        for (place, bytes) in [status, version, status, version, status].into_iter().enumerate() {
            naming.take(&late(2 * place as u32 + 1, 40 + place as u64, bytes));
        }
        let unknown = naming.name(7, 9);
        assert!(unknown.starts_with("unknown#"), "{unknown}");
        naming.witness(7, 1, "/a.B/Status");
        naming.witness(7, 1, "/a.B/Status");
        naming.witness(7, 3, "/a.B/Version");
        assert_eq!(naming.name(7, 9), unknown);
        naming.witness(7, 5, "/a.B/Status");
        let learnt = Learnt { unknown, name: "a.B/Status".to_owned() };
        assert_eq!((naming.take_learnt(), naming.take_learnt()), (vec![learnt], vec![]), "once");
        let names = [1, 3, 5, 7, 9].map(|stream| naming.name(7, stream));
        assert_eq!([&names[0], &names[2], &names[4]], ["a.B/Status"; 3]);
        assert!(names[1].starts_with("unknown#") && names[1] == names[3], "{names:?}");
        naming.take(&late(11, 45, status));
        assert_eq!((naming.name(7, 11).as_str(), naming.contradicted), ("a.B/Status", 0));
        // What cannot be true costs all names, and is counted.
        naming.witness(7, 11, "/a.B/Version");
        naming.take(&late(13, 46, status));
        assert!(naming.name(7, 13).starts_with("unknown#"), "{}", naming.name(7, 13));
        assert_eq!(naming.contradicted, 1);
        // A connection that was seen from its beginning needs none.
        naming.take(&Fragment { socket: 8, ..fragment(1, 0, LITERAL) });
        for _ in 0..2 {
            naming.witness(8, 1, "/a.B/D");
        }
        assert_eq!((naming.name(8, 1).as_str(), naming.contradicted), ("a.B/C", 1));
    }

    /// A connection that is older than us, or in step again, has a table that nobody knows.
    #[test]
    fn a_table_from_before() {
        let mut naming = Naming::default();
        naming.take(&fragment(1, 0, LITERAL));
        naming.take(&Fragment { joined_ns: 60, from_start: false, ..fragment(3, 0, INDEXED) });
        assert!(naming.name(7, 3).starts_with("unknown#"), "{}", naming.name(7, 3));
        naming.take(&Fragment { socket: 8, ..fragment(5, 40, INDEXED) });
        assert!(naming.name(8, 5).starts_with("unknown#"), "the beginning was forgotten");
        for socket in 100..100 + MAX_CONNECTIONS as u64 {
            naming.take(&Fragment { socket, ..fragment(1, 0, LITERAL) });
        }
        assert_eq!((naming.connections.len(), naming.forgotten), (MAX_CONNECTIONS, 2));
    }
}
