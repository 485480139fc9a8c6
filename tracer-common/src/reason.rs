//! [`Reason`]: why the kernel side gave up on a hit. Each early return is counted under one of these, per CPU, and
//! each has a sentence for the report.

/// Why a hit led to nothing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The ring buffer was full; the record is lost.
    RingFull = 0,
    /// The map of open calls was full; the start is lost.
    OpenCallsFull = 1,
    /// The map of watched processes was full; the process is not seen.
    WatchedFull = 2,
    /// The site is not in the table.
    UnknownSite = 3,
    /// The process is not watched.
    NotWatched = 4,
    /// `runtime.g` could not be read.
    GoroutineUnreadable = 5,
    /// The code ran on the scheduler's own stack (goroutine id 0).
    SystemGoroutine = 6,
    /// An end came without a start.
    EndWithoutStart = 7,
    /// The stack grew in the prologue and the start fired again.
    StartRepeated = 8,
    /// A start found the entry of a call whose end was never seen.
    EndNeverSeen = 9,
    /// A field of a kernel structure could not be read.
    KernelUnreadable = 10,
    /// The command line of a new program could not be read.
    ArgumentsUnreadable = 11,
    /// The command line of a new program was longer than what is kept of it.
    ArgumentsCut = 12,
    /// The environment of a new program could not be read.
    EnvironmentUnreadable = 13,
    /// The environment of a new program was longer than what is kept of it.
    EnvironmentCut = 14,
    /// A thread ended whose process lives on.
    ThreadExit = 15,
    /// The map of goroutines whose parks are followed was full.
    ParkersFull = 16,
    /// A goroutine parked that was parked already: its return was not seen.
    ParkRepeated = 17,
    /// The map of requests without an answer was full; the request is not followed.
    MessagesFull = 18,
    /// The bytes of a write could not be read.
    MessageUnreadable = 19,
    /// A request whose service and method are not at the beginning of its write, or too long.
    MessageUnnamed = 20,
    /// A write gathered its bytes from several places.
    MessageInParts = 21,
    /// A request begun on a stream whose last one has no answer.
    MessageRepeated = 22,
    /// A write did not begin with a frame.
    OutOfStep = 23,
    /// A write had more frames than are looked at.
    FramesLeft = 24,
    /// The map of writes under way, or of connections inside a frame, was full.
    SendingFull = 25,
    /// A write was taken in part, or not at all.
    SendCut = 26,
    /// An answer came without a request.
    AnswerAlone = 27,
    /// A shim asked a process that has not been seen to be a watched runtime.
    PeerUnknown = 28,
    /// A thread began or ended another write while one of its writes had no end.
    ExitUnseen = 29,
    /// Bytes of a client that is not traced could not be followed.
    OtherOutOfStep = 30,
    /// The map of open requests of clients that are not traced was full.
    OtherRequestsFull = 31,
    /// A request to Docker on a connection whose last one has no answer: clients wait for it.
    DockerAnswerUnseen = 32,
    /// The kernel did not let go of the entry of a process that has ended.
    EndedStillWatched = 33,
    /// The kernel did not change or remove the entry of an open call or request.
    UpdateRefused = 34,
}

/// Is it a loss of something the report needs, or a normal thing?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something is missing from the report.
    Loss,
    /// Normal; shown with `-v`.
    Normal,
}

impl Reason {
    /// Every reason there is, in the order of their numbers.
    pub const ALL: [Self; 35] = [
        Self::RingFull,
        Self::OpenCallsFull,
        Self::WatchedFull,
        Self::UnknownSite,
        Self::NotWatched,
        Self::GoroutineUnreadable,
        Self::SystemGoroutine,
        Self::EndWithoutStart,
        Self::StartRepeated,
        Self::EndNeverSeen,
        Self::KernelUnreadable,
        Self::ArgumentsUnreadable,
        Self::ArgumentsCut,
        Self::EnvironmentUnreadable,
        Self::EnvironmentCut,
        Self::ThreadExit,
        Self::ParkersFull,
        Self::ParkRepeated,
        Self::MessagesFull,
        Self::MessageUnreadable,
        Self::MessageUnnamed,
        Self::MessageInParts,
        Self::MessageRepeated,
        Self::OutOfStep,
        Self::FramesLeft,
        Self::SendingFull,
        Self::SendCut,
        Self::AnswerAlone,
        Self::PeerUnknown,
        Self::ExitUnseen,
        Self::OtherOutOfStep,
        Self::OtherRequestsFull,
        Self::DockerAnswerUnseen,
        Self::EndedStillWatched,
        Self::UpdateRefused,
    ];
    /// Number of reasons: entries of the map `REASONS`.
    pub const COUNT: u32 = Self::ALL.len() as u32;

    /// Stable name for JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::OpenCallsFull => "open_calls_full",
            Self::WatchedFull => "watched_full",
            Self::UnknownSite => "unknown_site",
            Self::NotWatched => "not_watched",
            Self::GoroutineUnreadable => "goroutine_unreadable",
            Self::SystemGoroutine => "system_goroutine",
            Self::EndWithoutStart => "end_without_start",
            Self::StartRepeated => "start_repeated",
            Self::EndNeverSeen => "end_never_seen",
            Self::KernelUnreadable => "kernel_unreadable",
            Self::ArgumentsUnreadable => "arguments_unreadable",
            Self::ArgumentsCut => "arguments_cut",
            Self::EnvironmentUnreadable => "environment_unreadable",
            Self::EnvironmentCut => "environment_cut",
            Self::ThreadExit => "thread_exit",
            Self::ParkersFull => "parkers_full",
            Self::ParkRepeated => "park_repeated",
            Self::MessagesFull => "messages_full",
            Self::MessageUnreadable => "message_unreadable",
            Self::MessageUnnamed => "message_unnamed",
            Self::MessageInParts => "message_in_parts",
            Self::MessageRepeated => "message_repeated",
            Self::OutOfStep => "out_of_step",
            Self::FramesLeft => "frames_left",
            Self::SendingFull => "sending_full",
            Self::SendCut => "send_cut",
            Self::AnswerAlone => "answer_alone",
            Self::PeerUnknown => "peer_unknown",
            Self::ExitUnseen => "exit_unseen",
            Self::OtherOutOfStep => "other_out_of_step",
            Self::OtherRequestsFull => "other_requests_full",
            Self::DockerAnswerUnseen => "docker_answer_unseen",
            Self::EndedStillWatched => "ended_still_watched",
            Self::UpdateRefused => "update_refused",
        }
    }

    /// What it means, for the reader of a report.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::RingFull => "the ring buffer was full: finished calls are missing",
            Self::OpenCallsFull => "too many calls were open at once: some were not followed",
            Self::WatchedFull => "there were too many processes: some are not watched",
            Self::UnknownSite => "a probe fired at an unknown site",
            Self::NotWatched => "probes fired in processes that are not watched",
            Self::GoroutineUnreadable => "a probe fired, but its goroutine could not be read",
            Self::SystemGoroutine => "probes fired on the Go scheduler's own stack",
            Self::EndWithoutStart => {
                "calls ended whose start was not seen: they are older than the probes, or of other gRPC services"
            }
            Self::StartRepeated => "a goroutine's stack grew as a call began, so its probe fired twice",
            Self::EndNeverSeen => "calls whose end was never seen: a panic, or a path without a probe",
            Self::KernelUnreadable => "a kernel structure could not be read",
            Self::ArgumentsUnreadable => "the command line of a new process could not be read",
            Self::ArgumentsCut => "a command line was too long: only its beginning and its end were read",
            Self::EnvironmentUnreadable => {
                "the environment of a helper process could not be read: it may be a CNI plugin"
            }
            Self::EnvironmentCut => "an environment was too long: only its beginning and its end were read",
            Self::ThreadExit => "threads of watched processes exited; their processes live on",
            Self::ParkersFull => {
                "too many goroutines were in calls at once: the parks of some were not measured"
            }
            Self::ParkRepeated => "a goroutine's stack grew as it parked, so its probe fired twice",
            Self::MessagesFull => {
                "too many requests between kubelet, runtime and shims were open at once: some were not followed"
            }
            Self::MessageUnreadable => {
                "a write between runtime and shim could not be read: its requests are in no table"
            }
            Self::MessageUnnamed => {
                "requests between runtime and shims whose names could not be read: they are counted without one"
            }
            Self::MessageInParts => {
                "writes between runtime and shim that were gathered from several places: their requests are in no table"
            }
            Self::MessageRepeated => {
                "requests on streams that had one without an answer: the older one is given up"
            }
            Self::OutOfStep => {
                "a connection between kubelet, runtime and shims was out of step: requests may be missing until it was in step again"
            }
            Self::FramesLeft => {
                "writes between kubelet, runtime and shims with too many frames: some requests are in no table"
            }
            Self::SendingFull => {
                "too many writes between kubelet, runtime and shims at once: some requests are in no table"
            }
            Self::SendCut => "a buffer between kubelet, runtime and shims was full: the write was made again",
            Self::AnswerAlone => {
                "answers between kubelet, runtime, Docker and shims whose request was not seen: it is older than the probes, or of a program that is not traced"
            }
            Self::PeerUnknown => {
                "requests of shims were not followed: whom they asked is not traced, or had not read anything yet"
            }
            Self::ExitUnseen => {
                "writes whose end was not seen: answered requests may count as open, and requests never sent as sent"
            }
            Self::OtherOutOfStep => {
                "a connection of another client of the runtime was out of step: its requests may be missing until it was in step again"
            }
            Self::OtherRequestsFull => {
                "too many open requests of other clients of the runtime: some are in no table"
            }
            Self::DockerAnswerUnseen => {
                "requests to Docker whose answer was not seen: another one followed on their connection"
            }
            Self::EndedStillWatched => {
                "processes that have ended and could not be forgotten: others that get their numbers may be taken for them"
            }
            Self::UpdateRefused => {
                "calls or requests whose entry the kernel refused to update: one that has ended may still be shown as in flight, one that was sent as unsent"
            }
        }
    }

    /// How much it matters.
    #[must_use]
    pub const fn weight(self) -> Weight {
        match self {
            Self::RingFull
            | Self::OpenCallsFull
            | Self::WatchedFull
            | Self::UnknownSite
            | Self::GoroutineUnreadable
            | Self::KernelUnreadable
            | Self::ParkersFull
            | Self::MessagesFull
            | Self::MessageUnreadable
            | Self::MessageUnnamed
            | Self::MessageInParts
            | Self::MessageRepeated
            | Self::OutOfStep
            | Self::FramesLeft
            | Self::SendingFull
            | Self::ExitUnseen
            | Self::DockerAnswerUnseen
            | Self::EndedStillWatched
            | Self::UpdateRefused => Weight::Loss,
            Self::NotWatched
            | Self::SystemGoroutine
            | Self::EndWithoutStart
            | Self::StartRepeated
            | Self::EndNeverSeen
            | Self::ArgumentsUnreadable
            | Self::ArgumentsCut
            | Self::EnvironmentUnreadable
            | Self::EnvironmentCut
            | Self::ThreadExit
            | Self::ParkRepeated
            | Self::SendCut
            | Self::AnswerAlone
            | Self::PeerUnknown
            | Self::OtherOutOfStep
            | Self::OtherRequestsFull => Weight::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a reason is its place in `ALL`, which the counter map relies on.
    #[test]
    fn numbers_are_places() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place);
        }
    }
}
