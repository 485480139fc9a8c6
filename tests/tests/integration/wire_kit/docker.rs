//! What a client writes to Docker's socket and what comes back, read as the kernel side and `decode` read it. An input of the fuzz
//! target: the bytes of one write.

use plegtrace::cri::DockerCall;
use plegtrace::decode::docker_line;
use plegtrace_common::wire::docker::{HEAD, begins_request, is_final, status};

/// Longest method with its placeholders.
const LONGEST: usize = 128;

/// What a write is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// It begins a request, which has a line or not.
    Request(Option<DockerCall>),
    /// It is an answer with this status, or what comes before one.
    Status(u16, bool),
    /// Neither.
    Other,
}

/// Reads the beginning of a write.
pub(crate) fn read(write: &[u8]) -> Read {
    let mut head = [0; HEAD];
    for (to, from) in head[..HEAD - 1].iter_mut().zip(write) {
        *to = *from;
    }
    let word = |at: usize| head[at..at + 8].try_into().expect("eight bytes");
    if write.len() >= 8 && begins_request(&word(0)) {
        return Read::Request(docker_line(&head).and_then(DockerCall::read));
    }
    status(word(0), word(8)).map_or(Read::Other, |status| Read::Status(status, is_final(status)))
}

/// Reads an input; what comes out is bounded, and has nothing of a query in it.
///
/// # Panics
///
/// It is not.
pub(crate) fn run(input: &[u8]) -> Read {
    let read = read(input);
    if let Read::Request(Some(call)) = &read {
        let DockerCall { method, container } = call;
        assert!(method.len() <= LONGEST && !method.contains(['?', '#']), "{method}");
        assert!(method.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{method}");
        let is_id = container.bytes().all(|byte| byte.is_ascii_hexdigit()) && container.len() <= 64;
        assert!(is_id, "{container}");
    }
    if let Read::Status(status, _) = read {
        assert!(status < 1000);
    }
    read
}
