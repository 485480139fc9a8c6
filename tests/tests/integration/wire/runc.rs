//! What the real runc of each release and its systemd said to each other, as they cut it and cut otherwise: every message is read, and
//! the calls are those that `busctl` saw.

use std::collections::BTreeMap;

use plegtrace::wire::Side;
use plegtrace_common::wire::dbus::{Message, field, kind};
use plegtrace_tests::draw::Draw;
use plegtrace_tests::wire::{Capture, record::RUNCS};

use crate::wire_kit::{
    dbus::{Read, read},
    pieces::{cut, pieces},
};

/// Times that each stream is cut in other places.
const CUTS: usize = 20;

fn members(read: &Read) -> impl Iterator<Item = &str> {
    read.texts.iter().filter(|(code, _)| *code == field::MEMBER).map(|(_, text)| text.as_str())
}

/// Every call is there by its name, and has its one answer; wherever the streams are cut.
#[test]
fn calls_of_each_release() {
    let mut draw = Draw::from_environment();
    for name in RUNCS {
        let capture = Capture::load(name).unwrap();
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for connection in 0..capture.connections() {
            let [(asked, _), (answered, _)] =
                [Side::Client, Side::Server].map(|side| read(&pieces(&capture.chunks, connection, side)));
            assert_eq!((asked.lost, answered.lost, asked.preambles), (0, 0, 1), "{name} {connection}");
            members(&asked).for_each(|member| *calls.entry(member.to_owned()).or_default() += 1);
            let of = |read: &Read, wanted: fn(&Message) -> bool| -> Vec<Message> {
                read.messages.iter().map(|(message, _)| *message).filter(wanted).collect()
            };
            let begun: Vec<u32> =
                of(&asked, Message::expects_answer).iter().map(|message| message.serial).collect();
            let is_answer = |message: &Message| matches!(message.kind, kind::RETURN | kind::ERROR);
            let mut ended: Vec<u32> = of(&answered, is_answer).iter().map(|message| message.reply).collect();
            ended.sort_unstable();
            assert_eq!(begun, ended, "{name} {connection}");
            for (side, whole) in [(Side::Client, &asked), (Side::Server, &answered)] {
                let stream = pieces(&capture.chunks, connection, side).concat();
                for _ in 0..CUTS {
                    let (read, position) = read(&cut(&stream, &mut draw));
                    assert_eq!(
                        (&read.messages, read.lost),
                        (&whole.messages, 0),
                        "{name} {connection} {draw}"
                    );
                    assert!(position.is_boundary());
                }
            }
        }
        let tally: BTreeMap<String, u64> =
            capture.tally.iter().map(|((member, _), count)| (member.clone(), *count)).collect();
        assert_eq!(calls, tally, "{name}");
        assert!(calls["StartTransientUnit"] > 0 && calls["Hello"] > 1, "{calls:?}");
    }
}
