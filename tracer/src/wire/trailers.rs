//! What a server says of a call that failed: the words of its error, from trailers alone.
//!
//! grpc-go writes `grpc-status`, `grpc-message`, and sometimes `grpc-status-details-bin`, in this order (`writeStatus` in
//! internal/transport/http2_server.go). Connections are older than plegtrace, so the header table is not known; but the words of an error
//! are rarely the same twice, because ids are in them, and so stand in the block itself.
//!
//! Errors carry what should not go further: of URLs their query (signatures) and their user are taken out.

use super::hpack::{Literal, literals};

/// Most characters of an error that are kept.
pub const MAX_WORDS: usize = 400;

/// Words of an error in a block of trailers, of which the end may be missing; redacted, and no longer than [`MAX_WORDS`]. `None` when there
/// are none in it.
#[must_use]
pub fn error_words(block: &[u8]) -> Option<String> {
    let fields = literals(block);
    let named = fields.iter().find(|field| field.name.as_deref() == Some("grpc-message"));
    let field = named.or_else(|| fields.iter().find(|field| may_be_words(field)))?;
    let words = redacted(&unescaped(&field.value));
    let words: String = words.trim().chars().take(MAX_WORDS).collect();
    (!words.is_empty()).then_some(words)
}

/// Of a field whose name is in a table that is not known.
fn may_be_words(field: &Literal) -> bool {
    let is_number = field.value.bytes().all(|byte| byte.is_ascii_digit());
    // What describes the error further is base64 and has no space.
    let is_text = field.value.contains([' ', ':', '%']);
    field.name.is_none() && !is_number && is_text
}

/// `grpc-message` is percent-encoded (gRPC over HTTP/2, "Percent-Encoded").
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = (*first == b'%').then(|| after.split_at_checked(2)).flatten();
        let byte = escape.and_then(|(digits, left)| Some((hex(digits)?, left)));
        let (byte, left) = byte.unwrap_or((*first, after));
        bytes.push(byte);
        rest = left;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// Without the query and the user of each URL.
fn redacted(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>'))
            .unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        let host_ends = url.find(['/', '?']).unwrap_or(url.len());
        let user = url[..host_ends].rfind('@').map_or(0, |at| at + 1);
        match url[user..].split_once(['?', '#']) {
            Some((kept, _)) => {
                out.push_str(kept);
                out.push_str("?…");
                // The colon behind a URL belongs to the sentence.
                out.push_str(if url.ends_with(':') { ":" } else { "" });
            }
            None => out.push_str(&url[user..]),
        }
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A literal that enters the table, with a name of the table or its own.
    fn field(name: Option<&str>, value: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        match name {
            Some(name) => {
                bytes.extend([0x40, u8::try_from(name.len()).unwrap()]);
                bytes.extend(name.as_bytes());
            }
            None => bytes.push(0x40 | 62),
        }
        bytes.extend(length(value.len()));
        bytes.extend(value.as_bytes());
        bytes
    }

    fn length(n: usize) -> Vec<u8> {
        let n = u8::try_from(n.min(254)).unwrap();
        if n < 127 { vec![n] } else { vec![127, n - 127] }
    }

    /// By its name, or by its place where the names are in a table that began before us.
    #[test]
    fn words_of_trailers() {
        let said = "name \"x_default\" is reserved%0Afor 5%25";
        let want = Some("name \"x_default\" is reserved\nfor 5%".to_owned());
        let own = [field(Some("grpc-status"), "2"), field(Some("grpc-message"), said)].concat();
        assert_eq!(error_words(&own), want);
        let details = "CAISB2Zvcm1lbA";
        let late = [field(None, "13"), field(None, said), field(None, details)].concat();
        assert_eq!(error_words(&late), want);
        // The status stands in the table as a whole, as the type of the content does.
        let short = [vec![0xbe, 0xc0], field(None, said)].concat();
        assert_eq!(error_words(&short), want);
        let only = [
            vec![0x88],
            field(Some("content-type"), "application/grpc"),
            field(None, "2"),
            field(None, said),
        ];
        assert_eq!(error_words(&only.concat()), want);
    }

    /// Without words there are none; what is no block is no panic.
    #[test]
    fn no_words() {
        let well = [field(Some("grpc-status"), "0"), field(Some("grpc-message"), "")].concat();
        let table = vec![0xbe, 0xbf];
        let details = [vec![0xbe, 0xbf], field(None, "CAISB2Zvcm1lbA")].concat();
        for block in [well, table, details, vec![], vec![0x40], vec![0xff; 40], vec![0x7f; 40]] {
            assert_eq!(error_words(&block), None, "{block:x?}");
        }
    }

    /// Of a long error the beginning is enough.
    #[test]
    fn what_is_cut_off() {
        let whole = field(None, &"no such file ".repeat(10));
        assert_eq!(error_words(&whole[..30]).as_deref(), Some("no such file no such file n"));
        // "www.example.com" as Huffman codes (RFC 7541, C.4.1), and its first bytes.
        let huffman =
            [&[0x40, 0x0c][..], b"grpc-message", &[0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a]].concat();
        assert_eq!(error_words(&huffman).as_deref(), Some("www.ex"), "half of a code is none");
        let long = field(Some("grpc-message"), &"a ".repeat(120));
        assert!(error_words(&long).unwrap().len() <= MAX_WORDS);
    }

    /// Signatures and passwords of registries go nowhere.
    #[test]
    fn secrets() {
        let said = "failed to pull: Get \"https://u:secret@s3.example/blob?X-Amz-Signature=secret&a=b\": dial tcp 10.0.0.1:443";
        let want = "failed to pull: Get \"https://s3.example/blob?…\": dial tcp 10.0.0.1:443";
        assert_eq!(error_words(&field(Some("grpc-message"), said)).as_deref(), Some(want));
        let said = "head https://r.example/v2?token=secret: EOF; then https://r.example/v2/: EOF";
        let want = "head https://r.example/v2?…: EOF; then https://r.example/v2/: EOF";
        assert_eq!(error_words(&field(Some("grpc-message"), said)).as_deref(), Some(want));
    }
}
