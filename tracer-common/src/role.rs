//! [`Role`]: what a watched process is to a node, and the one rule that tells it from a name.

/// What a process is to the node.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Not watched.
    None = 0,
    /// The kubelet.
    Kubelet = 1,
    /// containerd.
    Containerd = 2,
    /// CRI-O.
    Crio = 3,
    /// dockerd.
    Dockerd = 4,
    /// cri-dockerd.
    CriDockerd = 5,
    /// A containerd shim.
    Shim = 6,
    /// conmon, CRI-O's shim.
    Conmon = 7,
    /// runc or crun.
    Runc = 8,
    /// Another program run by a watched one: CNI plugin, OCI hook, mount helper.
    Helper = 9,
    /// First process of a container or of an exec, from the moment it stopped being `runc init`. Only its end is
    /// followed, not its children.
    Workload = 10,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 11] = [
        Self::None,
        Self::Kubelet,
        Self::Containerd,
        Self::Crio,
        Self::Dockerd,
        Self::CriDockerd,
        Self::Shim,
        Self::Conmon,
        Self::Runc,
        Self::Helper,
        Self::Workload,
    ];

    /// The role with this number; unknown numbers are [`Role::None`].
    #[must_use]
    pub const fn from_u32(n: u32) -> Self {
        match n {
            1 => Self::Kubelet,
            2 => Self::Containerd,
            3 => Self::Crio,
            4 => Self::Dockerd,
            5 => Self::CriDockerd,
            6 => Self::Shim,
            7 => Self::Conmon,
            8 => Self::Runc,
            9 => Self::Helper,
            10 => Self::Workload,
            _ => Self::None,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Crio => "crio",
            Self::Dockerd => "dockerd",
            Self::CriDockerd => "cri-dockerd",
            Self::Shim => "shim",
            Self::Conmon => "conmon",
            Self::Runc => "runc",
            Self::Helper => "helper",
            Self::Workload => "workload",
        }
    }

    /// A container runtime that answers CRI calls (or, for dockerd, stands behind one).
    #[must_use]
    pub const fn is_runtime(self) -> bool {
        matches!(self, Self::Containerd | Self::Crio | Self::Dockerd | Self::CriDockerd)
    }

    /// The role of a task by its kernel name (`comm`: 15 bytes and a zero).
    ///
    /// Names are compared as the kernel cuts them: `containerd-shim-runc-v2` is `containerd-shim`.
    #[inline(always)]
    #[must_use]
    pub fn of_comm(comm: &[u8; 16]) -> Self {
        if starts(comm, b"containerd-shim") {
            return Self::Shim;
        }
        if is(comm, b"kubelet\0") {
            return Self::Kubelet;
        }
        if is(comm, b"containerd\0") {
            return Self::Containerd;
        }
        if is(comm, b"crio\0") {
            return Self::Crio;
        }
        if is(comm, b"dockerd\0") {
            return Self::Dockerd;
        }
        if is(comm, b"cri-dockerd\0") {
            return Self::CriDockerd;
        }
        if is(comm, b"conmon\0") {
            return Self::Conmon;
        }
        if is(comm, b"runc\0") || starts(comm, b"runc:[") || is(comm, b"crun\0") {
            return Self::Runc;
        }
        Self::None
    }
}

/// Does `comm` begin with `word` (a zero in `word` must be there too)?
///
/// Compares words of eight bytes in one expression: a branch per byte makes too many paths for the verifier.
#[inline(always)]
pub(crate) fn starts<const N: usize>(comm: &[u8; 16], word: &[u8; N]) -> bool {
    let (mut want, mut mask) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < N && i < 16 {
        (want[i], mask[i]) = (word[i], 0xff);
        i += 1;
    }
    (u128::from_ne_bytes(*comm) & u128::from_ne_bytes(mask)) == u128::from_ne_bytes(want)
}

#[inline(always)]
fn is<const N: usize>(comm: &[u8; 16], word: &[u8; N]) -> bool {
    starts(comm, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> [u8; 16] {
        let mut out = [0; 16];
        for (to, from) in out.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        out
    }

    /// A name means a role only when it is the whole name.
    #[test]
    fn names_are_compared_whole() {
        assert_eq!(Role::of_comm(&comm("containerd")), Role::Containerd);
        assert_eq!(Role::of_comm(&comm("containerd-stress")), Role::None);
        assert_eq!(Role::of_comm(&comm("containerd-shim-runc-v2")), Role::Shim);
        assert_eq!(Role::of_comm(&comm("runc:[2:INIT]")), Role::Runc);
        assert_eq!(Role::of_comm(&comm("runcible")), Role::None);
        assert_eq!(Role::of_comm(&comm("kubelet")), Role::Kubelet);
    }

    /// Each number leads back to its role.
    #[test]
    fn numbers_round_trip() {
        for role in Role::ALL {
            assert_eq!(Role::from_u32(role as u32), role);
        }
    }
}
