//! [`RecKind`]: what a record is. Numbers never change; gaps are left per family.

/// What follows a [`RecHeader`](crate::header::RecHeader).
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecKind {
    /// A Go call that ended: [`CallRec`](crate::rec::CallRec).
    Call = 0x0100,
    /// A goroutine inside a call was parked for long: [`ParkRec`](crate::rec::ParkRec).
    Park = 0x0110,
    /// A watched process was born: [`ProcessRec`](crate::rec::ProcessRec).
    Fork = 0x0200,
    /// A process became another program: [`ProcessRec`](crate::rec::ProcessRec).
    Exec = 0x0201,
    /// A watched process ended: [`ProcessRec`](crate::rec::ProcessRec).
    Exit = 0x0202,
    /// An exec with its command line: [`ExecRec`](crate::rec::ExecRec). Only from the kernel to `session`.
    ExecArgs = 0x0210,
    /// The same with its environment: [`ExecEnvRec`](crate::rec::ExecEnvRec). Only from the kernel to `session`.
    ExecArgsEnv = 0x0211,
    /// A request between runtime and shim was answered: [`MessageRec`](crate::rec::MessageRec).
    Message = 0x0300,
    /// A call over D-Bus was answered: [`BusRec`](crate::rec::BusRec).
    BusCall = 0x0310,
    /// A fragment of a header block: [`BlockRec`](crate::rec::BlockRec). Only from the kernel to `live`.
    Block = 0x0320,
    /// A gRPC request ended: [`RequestRec`](crate::rec::RequestRec).
    Request = 0x0321,
    /// A request to Docker's API was answered: [`DockerRec`](crate::rec::DockerRec).
    Docker = 0x0330,
    /// A fact of user space, as JSON: targets, hooks, in-flight snapshots, loss, clock offsets.
    Fact = 0x1000,
}

impl RecKind {
    /// Every kind there is.
    pub const ALL: [Self; 13] = [
        Self::Call,
        Self::Park,
        Self::Fork,
        Self::Exec,
        Self::Exit,
        Self::ExecArgs,
        Self::ExecArgsEnv,
        Self::Message,
        Self::BusCall,
        Self::Block,
        Self::Request,
        Self::Docker,
        Self::Fact,
    ];

    /// The kind with this number.
    #[must_use]
    pub const fn from_u16(n: u16) -> Option<Self> {
        match n {
            0x0100 => Some(Self::Call),
            0x0110 => Some(Self::Park),
            0x0200 => Some(Self::Fork),
            0x0201 => Some(Self::Exec),
            0x0202 => Some(Self::Exit),
            0x0210 => Some(Self::ExecArgs),
            0x0211 => Some(Self::ExecArgsEnv),
            0x0300 => Some(Self::Message),
            0x0310 => Some(Self::BusCall),
            0x0320 => Some(Self::Block),
            0x0321 => Some(Self::Request),
            0x0330 => Some(Self::Docker),
            0x1000 => Some(Self::Fact),
            _ => None,
        }
    }

    /// Size in bytes of a whole record of this kind, header included; `None` where it varies.
    #[must_use]
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Call => Some(size_of::<crate::rec::CallRec>()),
            Self::Park => Some(size_of::<crate::rec::ParkRec>()),
            Self::Fork | Self::Exec | Self::Exit => Some(size_of::<crate::rec::ProcessRec>()),
            Self::ExecArgs => Some(size_of::<crate::rec::ExecRec>()),
            Self::ExecArgsEnv => Some(size_of::<crate::rec::ExecEnvRec>()),
            Self::Message => Some(size_of::<crate::rec::MessageRec>()),
            Self::BusCall => Some(size_of::<crate::rec::BusRec>()),
            Self::Block => Some(size_of::<crate::rec::BlockRec>()),
            Self::Request => Some(size_of::<crate::rec::RequestRec>()),
            Self::Docker => Some(size_of::<crate::rec::DockerRec>()),
            Self::Fact => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number leads back to its kind.
    #[test]
    fn numbers_round_trip() {
        for kind in RecKind::ALL {
            assert_eq!(RecKind::from_u16(kind as u16), Some(kind));
        }
        assert_eq!(RecKind::from_u16(0), None);
    }
}
