//! What plegtrace itself keeps of root's power: programs that it starts have no more.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::target;

/// Needed as long as we observe, because targets that are replaced are attached to anew.
///
/// `SYS_ADMIN`: perf events for uprobes, `/proc/PID/stack`, and bpf(2) before Linux 5.8. `BPF`, `PERFMON`: bpf(2) since.
/// `SYS_PTRACE`: links, namespaces, system calls and memory of other users' processes. `DAC_READ_SEARCH`: files in
/// directories of other users. `LEASE`: leases on files of other users. `SYSLOG`: addresses of kernel functions, for the
/// reader of the census.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::SYSLOG);
/// Before 5.11 the memory of maps counts against the limit of locked memory, which only this raises.
const OLD_KERNELS: CapabilitySet = CapabilitySet::SYS_RESOURCE;
/// To create a recording, and to remove one that came to nothing, in the directory of whoever typed `sudo`.
const RECORDING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);
/// To read the node's files from inside of a container, in its mounts (setns(2)).
const CONTAINED: CapabilitySet = CapabilitySet::SYS_CHROOT;
/// The highest capability of Linux 7.0 is 40.
const ALL: u32 = 64;

/// Gives up, for good, whatever observing does not need; `records`: a recording is made. Capabilities belong to threads, so
/// this comes before there is a second one.
pub(crate) fn confine(records: bool) {
    let kept = kept(&release(), records, target::is_apart(1) != Some(false));
    // What could not be given up is no reason not to run: without any capability nothing is left to give up.
    if let Err(error) = give_up(kept) {
        tracing::info!("capabilities that are not needed could not be given up: {error}");
    }
    if let Err(error) = set_no_new_privs(true) {
        tracing::info!("programs that plegtrace starts may gain privileges: {error}");
    }
}

/// Of the running kernel.
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn kept(release: &str, records: bool, contained: bool) -> CapabilitySet {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse::<u32>().ok());
    let old = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (5, 11),
        _ => true,
    };
    let mut kept = KEPT;
    kept.set(OLD_KERNELS, old);
    kept.set(RECORDING, records);
    kept.set(CONTAINED, contained);
    kept
}

fn give_up(kept: CapabilitySet) -> rustix::io::Result<()> {
    let now = capabilities(None)?;
    // The bounding set first: changing it is a capability itself.
    let bounding = if now.effective.contains(CapabilitySet::SETPCAP) { leave_bounds(kept) } else { Ok(()) };
    let left = now.permitted & kept;
    set_capabilities(
        None,
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() },
    )?;
    bounding
}

fn leave_bounds(kept: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..ALL {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Above the last one that this kernel has.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of a thread.
    fn sets() -> [u64; 5] {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let set = |name: &str| u64::from_str_radix(line(name), 16).unwrap();
        [set("CapPrm:"), set("CapEff:"), set("CapInh:"), set("CapBnd:"), line("NoNewPrivs:").parse().unwrap()]
    }

    /// Whatever we had: no more than what is kept, in any set, and nothing that was kept is gone.
    #[test]
    fn no_more_is_left() {
        let left = std::thread::spawn(|| {
            let before = sets();
            confine(false);
            (before, sets())
        });
        let (before, left) = left.join().unwrap();
        let kept = kept(&release(), false, target::is_apart(1) != Some(false)).bits();
        assert_eq!(left[..3], [before[0] & kept, before[0] & kept, 0]);
        let may_change_bounds = before[1] & CapabilitySet::SETPCAP.bits() != 0;
        assert_eq!(left[3], if may_change_bounds { before[3] & kept } else { before[3] });
        assert_eq!(left[4], 1);
    }

    /// Old kernels want one more, a container as well, and a recording two.
    #[test]
    fn more_is_kept_where_needed() {
        assert_eq!(kept("6.1.0-35-amd64\n", false, false), KEPT);
        assert_eq!(kept("5.10.0-28-amd64\n", false, false), KEPT | OLD_KERNELS);
        assert_eq!(kept("next", false, false), KEPT | OLD_KERNELS, "when in doubt");
        assert_eq!(kept("7.0-rc3", true, false), KEPT | RECORDING);
        assert_eq!(kept("6.12", false, true), KEPT | CONTAINED);
    }
}
