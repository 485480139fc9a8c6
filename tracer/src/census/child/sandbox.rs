//! What the child may do, once it reads what others control: ELF files, memory and texts of any process of the node.
//!
//! It gives up every capability but four, and every system call but those for reading. What is not on the list fails with
//! `EPERM`: a reader that is taken over cannot write a file, start a program, signal, trace or connect to anybody. What runs
//! programs (versions) or speaks to the runtime is a child of its own, which reads nothing hostile and ends with its order.

use std::collections::BTreeMap;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// What is kept of root's power. Each was tried without the others (`tests/tests/lab/capabilities.rs`), on processes of other
/// users:
///
/// * `SYS_PTRACE`: the links `exe`, `cwd` and `ns`, `fdinfo`, `wchan`, `maps`, memory.
/// * `DAC_READ_SEARCH`: what only its owner may open, which are the directory of descriptors, `environ`, `syscall`, `stack`
///   and `mem` of a process, and bundles.
/// * `SYS_ADMIN`: `stack`, since Linux 4.19 for nobody else (`proc_pid_stack` in fs/proc/base.c); what else it allows needs
///   system calls that the filter refuses.
/// * `SYSLOG`: addresses of kernel functions in `/proc/kallsyms`, by which stacks that the kernel did not name are named.
const KEPT: [CapabilitySet; 4] = [
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::SYSLOG,
    CapabilitySet::SYS_ADMIN,
];

/// Calls with any arguments.
const READING: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    // Answers, and questions to the netlink socket that is open already: nothing else is open to be written to.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_process_vm_readv,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_uname,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sigaltstack,
    libc::SYS_ppoll,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    // The C library asks its clock by these where the vDSO does not answer.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    libc::SYS_gettimeofday,
];

/// What `kcmp(2)` compares: open files.
pub(super) const KCMP_FILE: i32 = 0;

/// Gives up what is not needed; says what could not be given up.
pub(super) fn confine() -> Vec<String> {
    let mut kept = Vec::new();
    let mut note = |what: &str, done: Result<(), String>| {
        kept.extend(done.err().map(|why| format!("{what}: {why}")));
    };
    note("capabilities", drop_capabilities().map_err(|error| error.to_string()));
    note("new privileges", set_no_new_privs(true).map_err(|error| error.to_string()));
    note("system calls", filter());
    kept
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let wanted = KEPT.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union);
    let now = capabilities(None)?;
    let kept = now.permitted & wanted;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )
}

fn filter() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = READING.iter().map(|call| (*call, Vec::new())).collect();
    let mut only = |call: libc::c_long, conditions: &[(u8, Op, i32)]| {
        let condition = |(argument, op, value): &(u8, Op, i32)| {
            SeccompCondition::new(*argument, Len::Dword, op.clone(), u64::from(value.cast_unsigned()))
        };
        let conditions = conditions.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok::<(), seccompiler::BackendError>(())
    };
    // Without a bit that changes something: everything is opened to be read.
    let changes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    only(libc::SYS_openat, &[(2, Op::MaskedEq(u64::from(changes.cast_unsigned())), libc::O_RDONLY)])?;
    #[cfg(target_arch = "x86_64")]
    only(libc::SYS_open, &[(1, Op::MaskedEq(u64::from(changes.cast_unsigned())), libc::O_RDONLY)])?;
    let code = u64::from(libc::PROT_EXEC.cast_unsigned());
    only(libc::SYS_mmap, &[(2, Op::MaskedEq(code), 0)])?;
    only(libc::SYS_mprotect, &[(2, Op::MaskedEq(code), 0)])?;
    // Which of two descriptors is first, or whether they are one open file: nothing else of two processes.
    only(libc::SYS_kcmp, &[(2, Op::Eq, KCMP_FILE)])?;
    for command in [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC] {
        only(libc::SYS_fcntl, &[(1, Op::Eq, command)])?;
    }
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, machine)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::fd::AsRawFd as _, thread};

    use super::*;

    /// A call by its number, in the thread of a test.
    fn call(number: libc::c_long, arguments: [usize; 4]) -> Result<i64, i32> {
        let [a, b, c, d] = arguments;
        // SAFETY: each caller passes what its call takes; those that would do harm must be refused.
        let done = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
        if done < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(done) }
    }

    fn number(value: i32) -> usize {
        value as usize
    }

    /// What a reader that was taken over would try. Both parts are of a thread, so a thread is confined here.
    #[test]
    fn only_reading_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (there, new) = (dir.path().join("there"), dir.path().join("new"));
        fs::write(&there, "x").unwrap();
        let own = std::process::id() as usize;
        let tried = thread::spawn(move || {
            let path = |path: &std::path::Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            let (old_path, new_path) = (path(&there), path(&new));
            let open = |path: &std::ffi::CString, flags: i32| {
                call(libc::SYS_openat, [number(libc::AT_FDCWD), path.as_ptr() as usize, number(flags), 0o600])
            };
            let file = fs::File::open(&there).unwrap();
            let mut word = 7u64;
            let piece = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
            let piece = &raw const piece as usize;
            assert_eq!(confine(), [""; 0]);
            assert_eq!(fs::read_to_string(&there).unwrap(), "x");
            assert!(fs::read_dir(there.parent().unwrap()).unwrap().count() == 1);
            assert!(fs::read_link("/proc/self/exe").is_ok());
            let shell = c"/bin/true".as_ptr() as usize;
            let tried = [
                ("to write", open(&old_path, libc::O_WRONLY)),
                ("to read and write", open(&old_path, libc::O_RDWR)),
                ("to empty", open(&old_path, libc::O_TRUNC)),
                ("to make a file", open(&new_path, libc::O_CREAT)),
                (
                    "openat2",
                    call(libc::SYS_openat2, [number(libc::AT_FDCWD), old_path.as_ptr() as usize, 0, 24]),
                ),
                (
                    "unlinkat",
                    call(libc::SYS_unlinkat, [number(libc::AT_FDCWD), old_path.as_ptr() as usize, 0, 0]),
                ),
                ("fchmod", call(libc::SYS_fchmod, [number(file.as_raw_fd()), 0o777, 0, 0])),
                ("execve", call(libc::SYS_execve, [shell, 0, 0, 0])),
                ("clone", call(libc::SYS_clone, [0; 4])),
                ("kill", call(libc::SYS_kill, [own, 0, 0, 0])),
                ("tgkill", call(libc::SYS_tgkill, [own, own, 0, 0])),
                ("ptrace", call(libc::SYS_ptrace, [number(libc::PTRACE_ATTACH.cast_signed()), own, 0, 0])),
                ("process_vm_writev", call(libc::SYS_process_vm_writev, [own, piece, 1, piece])),
                (
                    "a socket",
                    call(libc::SYS_socket, [number(libc::AF_INET), number(libc::SOCK_STREAM), 0, 0]),
                ),
                (
                    "a unix socket",
                    call(libc::SYS_socket, [number(libc::AF_UNIX), number(libc::SOCK_STREAM), 0, 0]),
                ),
                ("kcmp of memory", call(libc::SYS_kcmp, [own, own, 1, 0])),
                ("bpf", call(libc::SYS_bpf, [0; 4])),
                ("mount", call(libc::SYS_mount, [0; 4])),
                ("setns", call(libc::SYS_setns, [0; 4])),
                ("code", call(libc::SYS_mmap, [0, 4096, number(libc::PROT_EXEC), number(libc::MAP_PRIVATE)])),
            ];
            (tried.to_vec(), fs::read_to_string("/proc/thread-self/status").unwrap(), word)
        });
        let (tried, left, word) = tried.join().unwrap();
        for (what, done) in tried {
            assert_eq!(done, Err(libc::EPERM), "{what}");
        }
        assert_eq!(word, 7);
        let line = |name: &str| left.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let wanted = KEPT.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union).bits();
        for set in ["CapPrm:", "CapEff:", "CapInh:"] {
            assert_eq!(u64::from_str_radix(line(set), 16).unwrap() & !wanted, 0, "{set}");
        }
        assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1", "2"));
    }
}
