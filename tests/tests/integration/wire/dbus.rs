//! D-Bus as an independent library writes it: every message is read as it reads it itself, however the stream is cut.

use plegtrace_common::wire::dbus::{MAX_FIELDS, MAX_MESSAGE, Position, field, kind};
use proptest::prelude::*;
use zbus::message::{Flags, Message, Type};
use zbus::zvariant::{BE, Endian, LE};

use super::cut;
use crate::wire_kit::dbus::{read, run};

/// As godbus and sd-bus begin: with one line per write, and with all in one.
const GODBUS: [&str; 3] = ["\0", "AUTH EXTERNAL 30\r\n", "BEGIN\r\n"];
const SD_BUS: &str = "\0AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n";

const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

fn call(member: &str, endian: Endian, flags: Option<Flags>, body: &[u8]) -> Message {
    let message = Message::method_call(PATH, member).unwrap().endian(endian);
    let message = message.interface(MANAGER).unwrap().destination("org.freedesktop.systemd1").unwrap();
    let message = if let Some(flags) = flags { message.with_flags(flags).unwrap() } else { message };
    message.build(&(body.to_vec(), "replace")).unwrap()
}

fn one(what: u8, endian: Endian, body: &[u8]) -> Message {
    let asked = call("GetUnit", endian, None, b"");
    match what {
        0 => call("StartTransientUnit", endian, None, body),
        1 => call("Reload", endian, Some(Flags::NoReplyExpected), body),
        2 => Message::method_return(&asked.header())
            .unwrap()
            .endian(endian)
            .sender(":1.5")
            .unwrap()
            .build(&body.to_vec())
            .unwrap(),
        3 => {
            let name = "org.freedesktop.DBus.Error.LimitsExceeded";
            Message::error(&asked.header(), name).unwrap().endian(endian).build(&"too many").unwrap()
        }
        4 => Message::method_call("/", "Hello").unwrap().endian(endian).build(&()).unwrap(),
        _ => Message::signal(PATH, MANAGER, "JobRemoved")
            .unwrap()
            .endian(endian)
            .build(&body.to_vec())
            .unwrap(),
    }
}

/// Type of a message, whether somebody is to answer it, its serial, the serial of the call that it answers, and its size.
type Seen = (u8, bool, u32, u32, u32);

/// What the library itself reads of a message.
fn expected(message: &Message) -> Seen {
    let header = message.header();
    let kind = match header.message_type() {
        Type::MethodCall => kind::CALL,
        Type::MethodReturn => kind::RETURN,
        Type::Error => kind::ERROR,
        Type::Signal => kind::SIGNAL,
    };
    let silent = header.primary().flags().contains(Flags::NoReplyExpected);
    let (serial, reply) = (header.primary().serial_num().get(), header.reply_serial());
    let size = u32::try_from(message.data().len()).unwrap();
    (kind, kind == kind::CALL && !silent, serial, reply.map_or(0, std::num::NonZero::get), size)
}

fn found(pieces: &[&[u8]]) -> (Vec<Seen>, usize, Position) {
    let (read, position) = read(pieces);
    let messages = read.messages.iter();
    let messages =
        messages.map(|(it, _)| (it.kind, it.expects_answer(), it.serial, it.reply, it.size)).collect();
    (messages, read.lost, position)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any cut of a stream gives the same messages with the same texts, in both byte orders.
    #[test]
    fn messages_read_alike_however_they_are_cut(
        messages in prop::collection::vec((0u8..6, any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..8),
        preamble in 0usize..3,
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let messages: Vec<Message> =
            messages.iter().map(|(what, big, body)| one(*what, if *big { BE } else { LE }, body)).collect();
        let begin = [String::new(), GODBUS.concat(), SD_BUS.to_owned()][preamble].clone();
        let mut stream = begin.into_bytes();
        messages.iter().for_each(|message| stream.extend_from_slice(message.data()));
        let (seen, lost, position) = found(&cut(&stream, &places));
        prop_assert_eq!(seen, messages.iter().map(expected).collect::<Vec<_>>());
        prop_assert_eq!(lost, 0);
        prop_assert!(position.is_boundary());
        let (whole, _) = read(&[&stream]);
        let (pieces, _) = read(&cut(&stream, &places));
        prop_assert_eq!(whole.messages, pieces.messages);
        prop_assert_eq!(whole.preambles, usize::from(preamble > 0));
    }

    /// Any bytes are read without a panic and within bounds.
    #[test]
    fn any_bytes(input in prop::collection::vec(any::<u8>(), 0..400)) {
        run(&input);
    }

    /// A message with any bytes changed is read without a panic, and the message after it, which has a write of its
    /// own, is read again at the latest after that.
    #[test]
    fn damaged(
        what in 0u8..6,
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = one(what, LE, b"body").data().to_vec();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let input = [&u16::try_from(bytes.len()).unwrap().to_le_bytes()[..], &bytes].concat();
        run(&input);
    }
}

/// The texts of headers are found where the library put them.
#[test]
fn texts() {
    let (read, _) = read(&[one(0, LE, b"x").data()]);
    let text = |code| read.texts.iter().find(|(field, _)| *field == code).map(|(_, text)| text.as_str());
    assert_eq!(text(field::PATH), Some(PATH));
    assert_eq!(text(field::INTERFACE), Some(MANAGER));
    assert_eq!(text(field::MEMBER), Some("StartTransientUnit"));
    assert_eq!(text(field::DESTINATION), Some("org.freedesktop.systemd1"));
    let (read, _) = super::dbus::read(&[one(3, BE, b"").data()]);
    let text = |code| read.texts.iter().find(|(field, _)| *field == code).map(|(_, text)| text.as_str());
    assert_eq!(text(field::ERROR_NAME), Some("org.freedesktop.DBus.Error.LimitsExceeded"));
}

/// Headers that cannot be, each by one thing that is wrong with them; limits are those of the specification.
#[test]
fn what_is_no_message() {
    let header = |body: u32, serial: u32, fields: u32| {
        let numbers = [body, serial, fields].map(u32::to_le_bytes).concat();
        [&b"l\x01\0\x01"[..], &numbers].concat()
    };
    let lost = |bytes: &[u8]| read(&[bytes]).0.lost;
    assert_eq!(lost(&header(0, 1, 0)), 0);
    assert_eq!(lost(&header(0, 0, 0)), 1, "no serial is 0");
    assert_eq!(lost(&header(MAX_MESSAGE - 16, 1, 0)), 0, "the longest");
    assert_eq!(lost(&header(MAX_MESSAGE - 15, 1, 0)), 1);
    assert_eq!(lost(&header(u32::MAX, 1, u32::MAX)), 1);
    assert_eq!(lost(&header(0, 1, MAX_FIELDS)), 0);
    assert_eq!(lost(&header(0, 1, MAX_FIELDS + 1)), 1);
    for (at, byte) in [(0, b'L'), (0, 0xff), (1, 0), (1, 5), (3, 2)] {
        let mut bytes = header(0, 1, 0);
        bytes[at] = byte;
        assert_eq!(lost(&bytes), 1, "{at}: {byte}");
    }
    // A text that is longer than all fields are.
    let field = [&header(0, 1, 16)[..], b"\x03\x01s\0\xff\0\0\0", &[0; 8]].concat();
    assert_eq!(lost(&field), 1);
}

/// A field of a type that we do not know hides only the fields behind it.
#[test]
fn unknown_fields_are_passed_over() {
    let fields = b"\x05\x01u\0\x07\0\0\0\x0a\x03a{s\0\0\0";
    let header =
        [b"l\x02\0\x01", &3u32.to_le_bytes()[..], &9u32.to_le_bytes(), &16u32.to_le_bytes()].concat();
    let whole = [&header[..], fields, b"abc", one(4, LE, b"").data()].concat();
    let (seen, lost, _) = found(&[&whole]);
    assert_eq!((seen[0], lost), ((kind::RETURN, false, 9, 7, 35), 0));
    assert_eq!(seen.len(), 2, "the next message is in step");
}

/// After bytes that are none, the next write is read again.
#[test]
fn in_step_again() {
    let hello = one(4, LE, b"");
    let (seen, lost, _) = found(&[b"\xff\xfe not D-Bus at all", hello.data()]);
    assert_eq!((seen.len(), lost), (1, 1));
}

/// Lines are text: any other byte, wherever it is, means that they are none.
#[test]
fn lines_are_text() {
    for (byte, at) in (0..=u8::MAX).flat_map(|byte| [(byte, 4), (byte, 11)]) {
        let mut line = b"AUTH EXTERNAL 30\r\n".to_vec();
        line[at] = byte;
        let is_text = matches!(byte, b' '..=b'~' | b'\r' | b'\n');
        assert_eq!(read(&[&line]).0.lost, usize::from(!is_text), "{byte:#x} at {at}");
    }
}
