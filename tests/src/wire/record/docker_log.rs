//! Which requests dockerd has handled, by its own log, and how they ended: by the lengths of all bodies, which lead from one status
//! line to the next.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use plegtrace::wire::Side;

use crate::wire::{Chunk, capture::Tally, contents::http1::first_lines};

/// What it writes at debug level before it handles a request (`api/server/middleware/debug.go`).
const CALLING: &str = "msg=\"Calling ";
/// What a kubelet asks for, as the description of the API has it (`api/swagger.yaml`). An id is one word, a name may have slashes.
const API: [&str; 20] = [
    "GET /_ping",
    "GET /containers/json",
    "GET /containers/{id}/json",
    "GET /exec/{id}/json",
    "GET /images/json",
    "GET /images/{name}/history",
    "GET /images/{name}/json",
    "GET /info",
    "GET /version",
    "HEAD /_ping",
    "POST /containers/create",
    "POST /containers/{id}/exec",
    "POST /containers/{id}/kill",
    "POST /containers/{id}/start",
    "POST /containers/{id}/stop",
    "POST /containers/{id}/update",
    "POST /exec/{id}/start",
    "POST /images/create",
    "DELETE /containers/{id}",
    "DELETE /images/{name}",
];

/// How often each request was handled, by what it was about and how it ended. Whatever dockerd says that it has handled is in the
/// chunks, and nothing else.
pub(super) fn handled(log: &str, chunks: &[Chunk]) -> Result<Tally> {
    let mut tally = Tally::new();
    let connections = chunks.iter().map(|chunk| chunk.connection + 1).max().unwrap_or(0);
    for connection in 0..connections {
        let [asked, answered] =
            [Side::Client, Side::Server].map(|side| first_lines(stream(chunks, connection, side)));
        ensure!(asked.len() == answered.len(), "{asked:?} is answered by {answered:?}");
        for (call, answer) in asked.iter().zip(&answered) {
            let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
            let status = status.with_context(|| format!("no status line: {answer}"))?;
            *tally.entry((method(call)?.to_owned(), status)).or_default() += 1;
        }
    }
    let mut read: BTreeMap<&str, u64> = BTreeMap::new();
    tally.iter().for_each(|((method, _), count)| *read.entry(method).or_default() += count);
    let logged = logged(log)?;
    ensure!(read == logged, "dockerd has handled {logged:?}, not {read:?}");
    Ok(tally)
}

/// How often dockerd has handled what.
pub(super) fn logged(log: &str) -> Result<BTreeMap<&'static str, u64>> {
    let mut counts = BTreeMap::new();
    for (_, call) in log.lines().filter_map(|line| line.split_once(CALLING)) {
        *counts.entry(method(call)?).or_default() += 1;
    }
    Ok(counts)
}

fn stream(chunks: &[Chunk], connection: usize, side: Side) -> Vec<u8> {
    let own = chunks.iter().filter(|chunk| (chunk.connection, chunk.side) == (connection, side));
    own.flat_map(|chunk| chunk.bytes.clone()).collect()
}

fn method(call: &str) -> Result<&'static str> {
    let (verb, path) = call.split_once(" /").with_context(|| format!("no request: {call}"))?;
    let path = path.split(['?', '"', ' ']).next().unwrap_or_default();
    let path =
        path.split_once('/').filter(|(first, _)| first.starts_with("v1.")).map_or(path, |(_, path)| path);
    let call = format!("{verb} /{path}");
    let found = API.into_iter().find(|method| is_of(&call, method));
    found.with_context(|| format!("a request that nobody expects: {call}"))
}

/// Is `GET /containers/8e87/json` a `GET /containers/{id}/json`?
fn is_of(call: &str, method: &str) -> bool {
    let Some((before, after)) = method.split_once('{') else { return call == method };
    let (kind, after) = after.split_once('}').unwrap_or((after, ""));
    let thing = call.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    thing.is_some_and(|thing| !thing.is_empty() && (kind == "name" || !thing.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "level=info msg=\"API listen on docker.sock\"\n\
        level=debug msg=\"Calling GET /v1.40/containers/json?all=1&filters=%7B%7D\"\n\
        level=debug msg=\"Calling GET /v1.40/containers/8e87/json\"\n\
        level=debug msg=\"Calling GET /v1.40/images/docker.io/library/tiny:1/json\"\n";

    fn chunks(requests: &[(&str, &str)]) -> Vec<Chunk> {
        let chunk = |side, bytes: String| Chunk { connection: 0, side, bytes: bytes.into_bytes() };
        let both = |(call, status): &(&str, &str)| {
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n[]");
            [
                chunk(Side::Client, format!("{call} HTTP/1.1\r\nHost: docker\r\n\r\n")),
                chunk(Side::Server, answer),
            ]
        };
        requests.iter().flat_map(both).collect()
    }

    /// Whatever is named becomes one of few, with its status.
    #[test]
    fn log_and_bytes_agree() {
        let asked = [
            ("GET /v1.40/containers/8e87/json", "404 Not Found"),
            ("GET /v1.40/containers/json?all=1", "200 OK"),
            ("GET /v1.40/images/docker.io/library/tiny:1/json", "200 OK"),
        ];
        let tally = handled(LOG, &chunks(&asked)).unwrap();
        let seen: Vec<String> =
            tally.iter().map(|((method, status), count)| format!("{method} {status} {count}")).collect();
        let expected = [
            "GET /containers/json 200 1",
            "GET /containers/{id}/json 404 1",
            "GET /images/{name}/json 200 1",
        ];
        assert_eq!(seen, expected);
        handled(LOG, &chunks(&asked[..2])).unwrap_err();
        logged("msg=\"Calling GET /v1.40/secrets\"").unwrap_err();
    }
}
