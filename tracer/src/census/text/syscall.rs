//! `/proc/PID/task/TID/syscall` → where a thread is (`proc_pid_syscall` in `fs/proc/base.c`).

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// It runs, or is about to.
    Running,
    /// It waits, but not in a system call: in a page fault, in a signal stop on its way out, …
    Outside {
        /// Stack pointer of user space.
        sp: u64,
        /// Next instruction of user space.
        pc: u64,
    },
    /// It waits in a system call.
    Inside {
        /// Number of the call on this machine.
        nr: i64,
        /// Its arguments.
        args: [u64; 6],
        /// Stack pointer of user space.
        sp: u64,
        /// Next instruction of user space.
        pc: u64,
    },
}

/// Reads the line; `None` when it is none of the three forms.
#[must_use]
pub fn position(text: &str) -> Option<Position> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Position::Running);
    }
    let nr: i64 = first.parse().ok()?;
    let values: Vec<u64> = words.map_while(hex).take(9).collect();
    match (nr, values.as_slice()) {
        (-1, &[sp, pc]) => Some(Position::Outside { sp, pc }),
        (0.., &[a, b, c, d, e, f, sp, pc]) => Some(Position::Inside { nr, args: [a, b, c, d, e, f], sp, pc }),
        _ => None,
    }
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three forms, and what is none.
    #[test]
    fn forms() {
        assert_eq!(position("running\n"), Some(Position::Running));
        assert_eq!(
            position("-1 0x7ffd10 0x401000\n"),
            Some(Position::Outside { sp: 0x7f_fd10, pc: 0x40_1000 })
        );
        let line =
            "0 0x3 0x7f026ea06000 0x20000 0x7f026ea98b60 0xffffffff 0x0 0x7ffffeaaac58 0x7f026eb812ad\n";
        let Some(Position::Inside { nr: 0, args, sp, pc }) = position(line) else { panic!() };
        assert_eq!((args[0], args[2], sp, pc), (3, 0x2_0000, 0x7fff_feaa_ac58, 0x7f02_6eb8_12ad));
        for bad in ["", "0", "0 0x1", "-2 0x1 0x2", "x 0x1", "0 1 2 3 4 5 6 7 8", &format!("{line} 0x1")] {
            assert_eq!(position(bad), None, "{bad}");
        }
    }
}
