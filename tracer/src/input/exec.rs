//! A record of the kernel → what of it may enter the stream ([`admit`]): the border that raw command lines and
//! environments do not pass.

use bytes::Bytes;
use plegtrace_common::{
    ABI_VERSION,
    header::RecHeader,
    kind::RecKind,
    rec::{Copied, EXEC_ARGV_UNREADABLE, ExecEnvRec, ExecRec, ProcessRec},
    role::Role,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Command, CommandFact, Fact, Frame, FrameError, frame_fact};

/// Most words of a command line, and most variables of an environment, that are looked at.
const MAX_WORDS: usize = 4096;
/// Length of the ids that CRI runtimes give to containers: hexadecimal digits.
const CRI_ID: usize = 64;

/// The record as it may enter the stream, and the fact that goes with it when it has one.
///
/// # Errors
///
/// A record with a command line that has not the size of its kind.
pub fn admit(frame: Frame) -> Result<(Frame, Option<Frame>), FrameError> {
    let cut = |want| FrameError::Cut { want, have: frame.bytes.len() };
    match frame.kind {
        RecKind::ExecArgs => {
            let rec = ExecRec::ref_from_bytes(&frame.bytes).map_err(|_| cut(size_of::<ExecRec>()))?;
            Ok(disclose(rec, &Strings::default()))
        }
        RecKind::ExecArgsEnv => {
            let rec = ExecEnvRec::ref_from_bytes(&frame.bytes).map_err(|_| cut(size_of::<ExecEnvRec>()))?;
            Ok(disclose(&rec.exec, &Strings::split_block(rec.env, &rec.env_head, &rec.env_tail)))
        }
        RecKind::Call
        | RecKind::Park
        | RecKind::Fork
        | RecKind::Exec
        | RecKind::Exit
        | RecKind::Message
        | RecKind::BusCall
        | RecKind::Block
        | RecKind::Request
        | RecKind::Docker
        | RecKind::Fact => Ok((frame, None)),
    }
}

fn disclose(rec: &ExecRec, environment: &Strings) -> (Frame, Option<Frame>) {
    let mut step = rec.process;
    let len = u32::try_from(size_of::<ProcessRec>()).expect("records are short");
    step.header = RecHeader { len, kind: RecKind::Exec as u16, abi: ABI_VERSION, ..step.header };
    let bytes = Bytes::copy_from_slice(step.as_bytes());
    let fact = command(rec, environment).map(|command| {
        let fact = CommandFact {
            pid: step.header.tgid,
            since_ns: step.since_ns,
            unread: rec.flags & EXEC_ARGV_UNREADABLE != 0,
            command,
        };
        frame_fact(step.header.ts_ns, &Fact::Command(fact))
    });
    (Frame { header: step.header, kind: RecKind::Exec, bytes }, fact)
}

/// What a process was told to do, for the roles of which that is asked.
fn command(rec: &ExecRec, environment: &Strings) -> Option<Command> {
    let arguments = Strings::split_block(rec.argv, &rec.argv_head, &rec.argv_tail);
    let comm = until_zero(&rec.process.comm);
    match Role::from_u32(rec.process.role) {
        Role::Runc => {
            let mut command = Command::parse("runc", arguments.without_program(), |_| None);
            arguments.behind_gap(&mut command);
            Some(command)
        }
        Role::Shim => Some(Command::parse("containerd-shim", arguments.without_program(), |_| None)),
        Role::Helper | Role::Conmon => {
            let program = program(&comm, arguments.words.first());
            let like_runc = Command::is_like_runc(&program);
            let words = if like_runc { arguments.without_program() } else { &[] };
            let mut command = Command::parse(&program, words, |name| environment.value(name));
            arguments.behind_gap(&mut command);
            Some(command)
        }
        Role::None
        | Role::Kubelet
        | Role::Containerd
        | Role::Crio
        | Role::Dockerd
        | Role::CriDockerd
        | Role::Workload => None,
    }
}

/// The kernel's name of a program is cut at 15 bytes; the command line has the whole, or something else.
fn program(comm: &str, first: Option<&String>) -> String {
    let name = first.and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if comm.len() >= 15 && name.starts_with(comm) { name.to_owned() } else { comm.to_owned() }
}

fn is_cri_id(word: &str) -> bool {
    word.len() == CRI_ID && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Zero-terminated strings with a possible gap.
#[derive(Default)]
struct Strings {
    /// The whole strings before the gap; all when there is none.
    words: Vec<String>,
    /// The whole strings behind the gap.
    rest: Vec<String>,
    gap: bool,
}

impl Strings {
    /// The strings of a block, with lengths that are not trusted. What the gap has cut in two is left out.
    fn split_block(copied: Copied, head: &[u8], tail: &[u8]) -> Self {
        let head = &head[..head.len().min(copied.head as usize)];
        let tail = &tail[..tail.len().min(copied.tail as usize)];
        let gap = u64::from(copied.head) + u64::from(copied.tail) < u64::from(copied.len);
        if !gap {
            return Self { words: split(&[head, tail].concat()), rest: Vec::new(), gap };
        }
        let whole = head.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1);
        let next = tail.iter().position(|&byte| byte == 0).map_or(tail.len(), |first| first + 1);
        Self { words: split(&head[..whole]), rest: split(&tail[next..]), gap }
    }

    /// The container of a command of which not all was copied: a word behind the gap may be the value of an option inside of it.
    fn behind_gap(&self, command: &mut Command) {
        if let (Command::Runc { container, .. } | Command::Oci { container, .. }, true) = (command, self.gap)
        {
            *container = self.rest.iter().rev().find(|word| is_cri_id(word)).cloned();
        }
    }

    fn without_program(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Value of a variable.
    fn value(&self, name: &str) -> Option<String> {
        let mut all = self.words.iter().chain(&self.rest);
        all.find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    }
}

fn split(block: &[u8]) -> Vec<String> {
    let block = block.strip_suffix(b"\0").unwrap_or(block);
    if block.is_empty() {
        return Vec::new();
    }
    let words = block.split(|&byte| byte == 0).take(MAX_WORDS);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use plegtrace_common::rec::{ARGV_HEAD, ARGV_TAIL, ENV_PART};
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::input::next_frame;

    /// Fills head and tail as the kernel side does.
    fn copied(block: &[u8], head: &mut [u8], tail: &mut [u8]) -> Copied {
        let first = block.len().min(head.len() - 1);
        let last = (block.len() - first).min(tail.len() - 1);
        head[..first].copy_from_slice(&block[..first]);
        tail[..last].copy_from_slice(&block[block.len() - last..]);
        Copied { len: block.len() as u32, head: first as u32, tail: last as u32 }
    }

    fn record(role: Role, comm: &str, argv: &[u8], env: &[u8]) -> Frame {
        let mut rec = ExecEnvRec::new_zeroed();
        let len = size_of::<ExecEnvRec>() as u32;
        let kind = RecKind::ExecArgsEnv as u16;
        rec.exec.process.header = RecHeader { ts_ns: 7, len, kind, abi: ABI_VERSION, tgid: 10, tid: 10 };
        rec.exec.process.role = role as u32;
        rec.exec.process.comm[..comm.len()].copy_from_slice(comm.as_bytes());
        rec.exec.argv = copied(argv, &mut rec.exec.argv_head, &mut rec.exec.argv_tail);
        rec.env = copied(env, &mut rec.env_head, &mut rec.env_tail);
        next_frame(&mut Bytes::copy_from_slice(rec.as_bytes())).unwrap()
    }

    /// The command in the stream, after a check that nothing else is.
    fn told(role: Role, comm: &str, argv: &[u8], env: &[u8]) -> Option<Command> {
        let (step, fact) = admit(record(role, comm, argv, env)).unwrap();
        assert_eq!((step.kind, step.bytes.len()), (RecKind::Exec, size_of::<ProcessRec>()));
        let fact = fact?;
        let text = String::from_utf8_lossy(fact.payload()).into_owned();
        assert!(!text.contains("secret"), "{text}");
        match serde_json::from_slice(fact.payload()).unwrap() {
            Fact::Command(fact) => Some(fact.command),
            other => panic!("{other:?}"),
        }
    }

    fn runc(sub: &str, container: Option<&str>) -> Option<Command> {
        Some(Command::Runc { sub: sub.into(), container: container.map(str::to_owned), bundle: None })
    }

    /// Sub-command and container pass, secrets around them do not.
    #[test]
    fn runc_commands() {
        let argv = b"runc\0--root\0/run/secret\0exec\0-e\0TOKEN=secret\0c1\0secret\0";
        assert_eq!(told(Role::Runc, "runc", argv, b"SECRET=secret\0"), runc("exec", Some("c1")));
        assert_eq!(told(Role::Runc, "6", b"/proc/self/exe\0init\0", b""), runc("init", None));
        assert_eq!(told(Role::Runc, "runc", b"", b""), runc("", None));
        assert_eq!(told(Role::Workload, "sh", b"sh\0-c\0secret\0", b""), None);
    }

    /// Of a command line with a gap only an id that no option can be mistaken for passes.
    #[test]
    fn long_command_lines() {
        let (long, id) = ("x".repeat(ARGV_HEAD + ARGV_TAIL), "0123456789abcdef".repeat(4));
        let argv = |end: &str| format!("runc\0exec\0--process\0/{long}\0--pid-file\0/p\0{end}\0");
        assert_eq!(told(Role::Runc, "runc", argv(&id).as_bytes(), b""), runc("exec", Some(&id)));
        assert_eq!(told(Role::Runc, "runc", argv("c1").as_bytes(), b""), runc("exec", None));
        // Longer than the head, but whole.
        let argv = format!("runc\0--log\0{}\0kill\0c2\0KILL\0", "l".repeat(ARGV_HEAD));
        assert_eq!(told(Role::Runc, "runc", argv.as_bytes(), b""), runc("kill", Some("c2")));
    }

    /// Plugins are found at either end of a long environment; other helpers tell only their name.
    #[test]
    fn helpers() {
        let long = format!("A=secret{}\0", "y".repeat(3 * ENV_PART));
        let cni = "CNI_COMMAND=ADD\0CNI_ARGS=secret\0CNI_CONTAINERID=c9\0";
        for env in [format!("{cni}{long}"), format!("{long}{cni}")] {
            let command =
                told(Role::Helper, "azure-ipam-long", b"/opt/azure-ipam-long-name\0", env.as_bytes());
            let want = Command::Cni {
                plugin: "azure-ipam-long-name".into(),
                action: Some("ADD".into()),
                container: Some("c9".into()),
            };
            assert_eq!(command, Some(want));
        }
        let hook = Some(Command::Other { program: "hook.sh".into() });
        assert_eq!(told(Role::Helper, "hook.sh", b"/bin/sh\0init\0secret\0", b"X=secret\0"), hook);
    }

    /// Lengths that lie, bytes that are no text and strings without an end neither panic nor read beyond.
    #[test]
    fn hostile_records() {
        let mut state = 1u64;
        for round in 0..500u32 {
            let mut rec = ExecEnvRec::new_zeroed();
            for byte in rec.as_mut_bytes() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = if round % 3 == 0 { (state >> 60) as u8 } else { (state >> 56) as u8 };
            }
            rec.exec.process.role = round % 12;
            let header = &mut rec.exec.process.header;
            header.len = size_of::<ExecEnvRec>() as u32;
            (header.kind, header.abi) = (RecKind::ExecArgsEnv as u16, ABI_VERSION);
            let frame = next_frame(&mut Bytes::copy_from_slice(rec.as_bytes())).unwrap();
            let (step, fact) = admit(frame).unwrap();
            let mut again = [step.bytes, fact.map(|fact| fact.bytes).unwrap_or_default()].concat().into();
            assert_eq!(next_frame(&mut again).unwrap().kind, RecKind::Exec);
        }
    }
}
