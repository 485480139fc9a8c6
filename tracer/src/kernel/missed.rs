//! Runs of our programs that the kernel left out, because the same program was running on that CPU already.

use std::os::fd::{AsFd, BorrowedFd};

use aya_obj::generated::bpf_prog_info;

use super::{error::KernelError, load::Kernel, multi::MultiPrograms, sys};
use crate::input::LossCount;

impl Kernel {
    /// The runs that were left out since the programs are loaded, as a loss; `None` when there are none, which older
    /// kernels than 5.12 always say. What a missed run would have counted, not even our own counters know.
    ///
    /// # Errors
    ///
    /// A program cannot be asked about.
    pub(super) fn missed_runs(&self) -> Result<Option<LossCount>, KernelError> {
        let loaded = self.ebpf.programs().filter_map(|(_, program)| program.fd().ok()).map(AsFd::as_fd);
        let multi = self.multi.iter().flat_map(MultiPrograms::fds);
        let missed: Vec<u64> =
            loaded.chain(multi).chain(self.wire.fds()).map(missed_by).collect::<Result<_, _>>()?;
        Ok(loss(&missed))
    }
}

/// All that each program missed, as one loss.
fn loss(missed: &[u64]) -> Option<LossCount> {
    let count = missed.iter().copied().fold(0, u64::saturating_add);
    (count > 0).then(|| LossCount {
        stage: "kernel".to_owned(),
        reason: "recursion".to_owned(),
        sentence: "probes fired while another probe ran: what they would have recorded is missing".to_owned(),
        count,
        is_loss: true,
    })
}

fn missed_by(program: BorrowedFd<'_>) -> Result<u64, KernelError> {
    let mut info = [0; size_of::<bpf_prog_info>()];
    let len = sys::object_info(program, &mut info)
        .map_err(|source| KernelError::Syscall { command: "BPF_OBJ_GET_INFO_BY_FD", source })?;
    Ok(recursion_misses(&info[..len.min(info.len())]))
}

/// `recursion_misses` of a `bpf_prog_info` (include/uapi/linux/bpf.h, 5.12), as far as the kernel filled it in.
fn recursion_misses(info: &[u8]) -> u64 {
    let field = info.get(std::mem::offset_of!(bpf_prog_info, recursion_misses)..);
    field.and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        correlate::Correlator,
        decode::{Event, MonoNs},
        diagnose::{Doubt, diagnose},
        input::Fact,
    };

    /// What one program missed is a loss, is in the report, and forbids to call the node healthy.
    #[test]
    fn what_is_missed_is_a_loss() {
        assert_eq!(loss(&[0, 0]), None);
        assert_eq!(loss(&[u64::MAX, 1]).map(|loss| loss.count), Some(u64::MAX));
        let missed = loss(&[0, 3, 4]).unwrap();
        assert_eq!((missed.count, missed.is_loss), (7, true));
        let mut correlator = Correlator::default();
        let fact = Box::new(Fact::Loss { counts: vec![missed.clone()] });
        correlator.push(Event::Fact { at: MonoNs(5), fact });
        let snapshot = correlator.snapshot(MonoNs(6));
        assert_eq!(snapshot.real_losses().collect::<Vec<_>>(), [&missed]);
        assert!(diagnose(&snapshot).doubts.iter().any(|doubt| matches!(doubt, Doubt::Lost { .. })));
    }

    /// The field lies where the kernel has it, behind `run_cnt`; what an older kernel does not fill in is 0.
    #[test]
    fn the_field_is_found() {
        let mut info = vec![0; size_of::<bpf_prog_info>()];
        info[208..216].copy_from_slice(&7_u64.to_ne_bytes());
        info[200..208].fill(0xff);
        assert_eq!(recursion_misses(&info), 7);
        assert_eq!(recursion_misses(&info[..216]), 7);
        for len in 0..216 {
            assert_eq!(recursion_misses(&info[..len]), 0, "{len} bytes");
        }
    }
}
