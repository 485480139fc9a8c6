//! Stacks as kernels print them, and what they mean.

use super::*;
use crate::census::text::functions;

fn thread(state: char, stack: Option<&str>, at: Option<Position>) -> Thread {
    let stack = stack.map(|text| {
        let lines: Vec<String> =
            text.split_whitespace().map(|name| format!("[<0>] {name}+0x1a/0x2b0")).collect();
        functions(&lines.join("\n"))
    });
    Thread { pid: 10, tid: 11, comm: "containerd".to_owned(), state, stack, at, sleeps: 5 }
}

fn inside(state: char, stack: &str) -> Option<Inside> {
    holder(&thread(state, Some(stack), None)).map(|holder| holder.inside)
}

/// Page faults that wait for a disk, a frozen file system, NFS, FUSE, swap or the lock itself.
#[test]
fn faults_hold() {
    let all = [
        // Linux 5.10: a page of a frozen ext4 is written to.
        "percpu_rwsem_wait __percpu_down_read ext4_page_mkwrite do_page_mkwrite do_wp_page handle_mm_fault \
         exc_page_fault asm_exc_page_fault",
        // Linux 6.1: the same.
        "percpu_rwsem_wait __percpu_down_read ext4_page_mkwrite do_page_mkwrite do_fault __handle_mm_fault \
         handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault",
        // Linux 6.1: code is read from a disk that does not answer.
        "folio_wait_bit_common filemap_fault __do_fault do_read_fault do_fault __handle_mm_fault handle_mm_fault \
         do_user_addr_fault exc_page_fault asm_exc_page_fault",
        // arm64.
        "folio_wait_bit_common filemap_fault __do_fault __handle_mm_fault handle_mm_fault do_page_fault do_mem_abort \
         el0_da el0t_64_sync_handler el0t_64_sync",
        // In the middle of a write(2): its buffer is swapped out.
        "io_schedule swap_readpage do_swap_page __handle_mm_fault handle_mm_fault do_user_addr_fault exc_page_fault \
         asm_exc_page_fault copy_page_from_iter_atomic generic_perform_write ext4_file_write_iter vfs_write \
         ksys_write do_syscall_64 entry_SYSCALL_64_after_hwframe",
        // Waits for somebody who holds the lock.
        "rwsem_down_read_slowpath do_user_addr_fault exc_page_fault asm_exc_page_fault",
    ];
    for stack in all {
        assert_eq!(inside('D', stack), Some(Inside::Fault), "{stack}");
    }
    let fuse = "request_wait_answer fuse_simple_request fuse_readpage filemap_fault __do_fault handle_mm_fault \
                exc_page_fault asm_exc_page_fault";
    assert_eq!(inside('S', fuse), Some(Inside::Fault), "FUSE waits in state S");
}

/// Changes of the memory map, and the moment of an `execve` in which the memory is exchanged.
#[test]
fn changes_hold() {
    let call = "do_syscall_64 entry_SYSCALL_64_after_hwframe";
    for stack in [
        "nfs4_proc_getattr nfs_revalidate_mapping nfs_file_mmap mmap_region do_mmap vm_mmap_pgoff ksys_mmap_pgoff",
        "fuse_wait_aborted tlb_finish_mmu unmap_region __do_munmap __vm_munmap __x64_sys_munmap",
        "rwsem_down_write_slowpath down_write_killable do_mprotect_pkey __x64_sys_mprotect",
        "rwsem_down_write_slowpath __do_sys_brk __x64_sys_brk",
        "synchronize_rcu dup_mmap dup_mm copy_process kernel_clone __do_sys_clone",
    ] {
        assert_eq!(inside('D', &format!("{stack} {call}")), Some(Inside::Mapping), "{stack}");
    }
    let exec = "rwsem_down_read_slowpath exec_mmap begin_new_exec load_elf_binary bprm_execve";
    assert_eq!(inside('D', &format!("{exec} {call}")), Some(Inside::Exec));
}

/// Waiting without the lock is no reason not to attach: for a disk in a read, for a program to be opened, for events, or
/// where a thread stops on its way out of a page fault.
#[test]
fn others_do_not_hold() {
    for (state, stack) in [
        ('D', "folio_wait_bit_common filemap_read ext4_file_read_iter vfs_read ksys_read do_syscall_64"),
        (
            'D',
            "rpc_wait_bit_killable nfs4_do_open path_openat do_filp_open do_open_execat bprm_execve do_execveat_common",
        ),
        ('S', "ep_poll do_epoll_wait __x64_sys_epoll_pwait do_syscall_64"),
        (
            'T',
            "do_signal_stop get_signal arch_do_signal_or_restart exit_to_user_mode_prepare irqentry_exit_to_user_mode \
               exc_page_fault asm_exc_page_fault",
        ),
        (
            'S',
            "handle_userfault do_anonymous_page __handle_mm_fault handle_mm_fault do_user_addr_fault exc_page_fault",
        ),
        (
            'D',
            "fuse_flush filp_close exit_files do_exit do_group_exit get_signal exc_page_fault asm_exc_page_fault",
        ),
        ('R', "exc_page_fault asm_exc_page_fault"),
        ('S', ""),
    ] {
        assert_eq!(inside(state, stack), None, "{stack}");
    }
}

/// Without stacks, where the thread is must do; what cannot be known is a hazard.
#[test]
fn without_stacks() {
    let inside = |state, at| holder(&thread(state, None, at)).map(|holder| holder.inside);
    let call = |nr: libc::c_long| Some(Position::Inside { nr, args: [0; 6], sp: 0, pc: 0 });
    assert_eq!(inside('D', Some(Position::Outside { sp: 0, pc: 0 })), Some(Inside::Fault));
    assert_eq!(inside('D', call(libc::SYS_mmap)), Some(Inside::Mapping));
    assert_eq!(inside('D', call(libc::SYS_execve)), Some(Inside::Exec));
    assert_eq!(inside('D', call(libc::SYS_read)), Some(Inside::Unknown));
    assert_eq!(inside('D', None), Some(Inside::Unknown));
    assert_eq!(inside('S', None), None);
}

/// Whoever slept in between has moved, even when it is in a fault again.
#[test]
fn only_who_does_not_move_is_stuck() {
    let stack = "folio_wait_bit_common filemap_fault handle_mm_fault exc_page_fault";
    let at = |tid, sleeps| holder(&Thread { tid, sleeps, ..thread('D', Some(stack), None) }).unwrap();
    let before = [at(1, 7), at(2, 7), at(3, 7)];
    assert_eq!(unmoved(&before, &[at(1, 7), at(2, 8), at(4, 7)]), [at(1, 7)]);
    assert_eq!(unmoved(&before, &[]), []);
}
