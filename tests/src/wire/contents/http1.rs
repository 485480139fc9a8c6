//! HTTP/1.1: the bodies of requests and answers, and whatever a connection carries once it is something else.

/// What follows the head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// So many bytes.
    Length(usize),
    /// Pieces, each behind its length.
    Chunked,
    /// Everything up to the end of the connection.
    Rest,
}

/// Calls `with` for each byte of each body in a whole direction; the lengths of chunks stay. Of an answer to HEAD
/// nothing but a length of 0 is understood, which is what dockerd answers to a ping.
pub(super) fn each_content(stream: &mut [u8], with: &mut impl FnMut(&mut u8)) {
    each_message(stream, |_| (), with);
}

/// The first line of each message of a whole direction.
pub(crate) fn first_lines(mut stream: Vec<u8>) -> Vec<String> {
    let mut lines = Vec::new();
    each_message(&mut stream, |line| lines.push(line.to_owned()), &mut |_| ());
    lines
}

fn each_message(stream: &mut [u8], mut first: impl FnMut(&str), with: &mut impl FnMut(&mut u8)) {
    let mut at = 0;
    while let Some((head, body, upgrades)) = head(&stream[at..]) {
        let line = stream[at..at + head].split(|byte| *byte == b'\r').next().unwrap_or_default();
        first(str::from_utf8(line).unwrap_or_default());
        at += head;
        at = match body {
            Body::Length(length) => content(stream, at, length, with),
            Body::Chunked => chunks(stream, at, with),
            Body::Rest => content(stream, at, usize::MAX, with),
        };
        if upgrades {
            at = content(stream, at, usize::MAX, with);
        }
    }
}

/// Takes so many bytes from `at` on, at most all that there are; gives where they end.
fn content(stream: &mut [u8], at: usize, length: usize, with: &mut impl FnMut(&mut u8)) -> usize {
    let end = at.saturating_add(length).min(stream.len());
    stream[at..end].iter_mut().for_each(with);
    end
}

/// Takes a chunked body; gives where it ends.
fn chunks(stream: &mut [u8], mut at: usize, with: &mut impl FnMut(&mut u8)) -> usize {
    while let Some(line) = find(&stream[at..], b"\r\n") {
        let digits = str::from_utf8(&stream[at..at + line]).unwrap_or_default();
        let length = usize::from_str_radix(digits, 16).unwrap_or(0);
        // A line end is behind each chunk, the last one, which is empty, included.
        at = (content(stream, at + line + 2, length, with) + 2).min(stream.len());
        if length == 0 {
            break;
        }
    }
    at
}

/// The bytes of the head that begins here, what follows it, and whether the connection is something else after that.
fn head(stream: &[u8]) -> Option<(usize, Body, bool)> {
    let length = find(stream, b"\r\n\r\n")? + 4;
    let text = str::from_utf8(&stream[..length]).ok()?.to_ascii_lowercase();
    let (first, fields) = text.split_once("\r\n")?;
    let field = |name: &str| {
        fields.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let status = first.strip_prefix("http/1.").and_then(|rest| rest.get(2..5));
    let body = match (field("content-length"), field("transfer-encoding")) {
        (Some(length), _) => Body::Length(length.parse().ok()?),
        (None, Some("chunked")) => Body::Chunked,
        _ => match status {
            // A request, or an answer that never has one.
            None | Some("100" | "101" | "204" | "304") => Body::Length(0),
            Some(_) => Body::Rest,
        },
    };
    Some((length, body, field("upgrade").is_some()))
}

fn find(stream: &[u8], what: &[u8]) -> Option<usize> {
    stream.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emptied(stream: &str) -> String {
        let mut stream = stream.as_bytes().to_vec();
        each_content(&mut stream, &mut |byte| *byte = b'_');
        String::from_utf8(stream).unwrap()
    }

    /// Bodies go, whatever says where they end; heads and the lengths of chunks stay.
    #[test]
    fn bodies_are_found() {
        let requests =
            "GET /a HTTP/1.1\r\nHost: docker\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nab\r\n\r";
        let kept =
            "GET /a HTTP/1.1\r\nHost: docker\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\n_____";
        assert_eq!(emptied(requests), kept);
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n2\r\n\r\n\r\n0\r\n\r\n";
        let kept =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n___________\r\n2\r\n__\r\n0\r\n\r\n";
        let (empty, rest) = ("HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 404 Not Found\r\n\r\nno");
        let kept = format!("{kept}{empty}HTTP/1.0 404 Not Found\r\n\r\n__");
        let answers = format!("{chunked}{empty}{rest}");
        assert_eq!(emptied(&answers), kept);
        let lines = ["HTTP/1.1 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.0 404 Not Found"];
        assert_eq!(first_lines(answers.into_bytes()), lines);
    }

    /// Behind an upgrade everything is content.
    #[test]
    fn streams_of_commands_are_content() {
        let asked = "POST /e HTTP/1.1\r\nContent-Length: 2\r\nUpgrade: tcp\r\n\r\n{}in";
        assert_eq!(emptied(asked), format!("{}____", &asked[..asked.len() - 4]));
        let answer = "HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n\u{1}out";
        assert_eq!(emptied(answer), format!("{}____", &answer[..answer.len() - 4]));
    }
}
