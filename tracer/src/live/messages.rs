//! Requests between runtime and shims without an answer: who is to answer, and which of them nobody answers any more.

use plegtrace_common::wire::state::{MESSAGE_UNSENT, MessageKey, OpenMessage};

use super::Live;
use crate::{
    census,
    decode::message_names,
    input::{MessagesFact, OpenMessageFact},
    kernel::OpenMessages,
};

impl Live {
    /// What the map had at `at_ns`. A request that is over is reported once, then forgotten.
    pub(super) fn open_messages(&mut self, at_ns: u64, read: &OpenMessages) -> MessagesFact {
        let mut open = Vec::with_capacity(read.entries.len());
        for (key, message) in &read.entries {
            let known = Some(message.peer).filter(|peer| *peer != 0);
            let answerer = known.or_else(|| self.kernel.answerer_of(key)).unwrap_or(0);
            let fact = fact(key, message, answerer, census::exists);
            if fact.over {
                self.kernel.forget_message(key);
            }
            open.push(fact);
        }
        MessagesFact { at_ns, open, complete: read.complete }
    }
}

fn fact(
    key: &MessageKey,
    message: &OpenMessage,
    answerer: u32,
    exists: impl Fn(u32) -> bool,
) -> OpenMessageFact {
    let names = message_names(message.service, message.method, &message.head);
    let (service, method) = names.unwrap_or_default();
    OpenMessageFact {
        socket: key.socket,
        stream: key.stream,
        start_ns: message.start_ns,
        asker: message.tgid,
        answerer,
        service,
        method,
        container: String::new(),
        unsent: message.flags & MESSAGE_UNSENT != 0,
        over: !exists(message.tgid) || answerer != 0 && !exists(answerer),
        unread: None,
        unread_by_answerer: None,
    }
}

#[cfg(test)]
mod tests {
    use plegtrace_common::wire::ttrpc::HEAD;

    use super::*;

    /// A request is over with either process; one whose answerer is not known yet is not.
    #[test]
    fn over_with_either_process() {
        let key = MessageKey { asker: 1, answerer: 2, socket: 3, stream: 5, reserved: 0 };
        let message = OpenMessage {
            start_ns: 9,
            peer_socket: 4,
            tgid: 10,
            tid: 11,
            peer: 0,
            bytes: 0,
            flags: MESSAGE_UNSENT,
            service: 0,
            method: 0,
            reserved: 0,
            head: [0; HEAD],
        };
        let over = |answerer, alive: &[u32]| fact(&key, &message, answerer, |pid| alive.contains(&pid)).over;
        assert!(!over(20, &[10, 20]) && !over(0, &[10]));
        assert!(over(20, &[10]) && over(20, &[20]) && over(0, &[20]));
        let told = fact(&key, &message, 20, |_| true);
        assert_eq!((told.socket, told.stream, told.unsent, told.method.as_str()), (3, 5, true, ""));
    }
}
