//! `/proc/PID/task/TID/stack` → kernel functions, innermost first.

/// Functions that are kept.
const MAX_FUNCTIONS: usize = 32;
/// Longest name that is kept; `KSYM_NAME_LEN` is 512 since Linux 6.1.
const MAX_NAME: usize = 512;

/// The functions of a stack, in all forms that kernels print: `[<0>] pipe_write+0x1/0x2`, with a module
/// (`… [sunrpc]`), with addresses (before 4.16), and with the end mark `[<ffffffffffffffff>] 0xffffffffffffffff`
/// (before 4.19). An address that the kernel could not name stays a number.
#[must_use]
pub fn functions(text: &str) -> Vec<String> {
    text.lines().filter_map(line).take(MAX_FUNCTIONS).map(str::to_owned).collect()
}

/// The function of "wchan", or of one entry of a stack: without offset, and without what compilers add to the names
/// of copies they made (`.isra.0`, `.constprop.3`, `.cold`).
#[must_use]
pub fn function(entry: &str) -> Option<&str> {
    let name = entry.split(['+', ' ', '\t', '\n']).next()?;
    let name = match name.find('.') {
        Some(0) | None => name,
        Some(dot) => &name[..dot],
    };
    let end_mark = name.bytes().skip(2).all(|byte| byte == b'f') && name.starts_with("0xffff");
    (!name.is_empty() && name.len() <= MAX_NAME && !end_mark).then_some(name)
}

fn line(line: &str) -> Option<&str> {
    let (address, entry) = line.trim_start().strip_prefix("[<")?.split_once(">] ")?;
    let printed = address.bytes().all(|byte| byte.is_ascii_hexdigit());
    function(entry.trim_start()).filter(|_| printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1 prints it.
    #[test]
    fn today() {
        let text = "[<0>] rpc_wait_bit_killable+0x1f/0x80 [sunrpc]\n[<0>] anon_pipe_write+0x3d0/0x6a0\n\
                    [<0>] shrink.isra.0+0x1/0x2\n[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n";
        let want = ["rpc_wait_bit_killable", "anon_pipe_write", "shrink", "entry_SYSCALL_64_after_hwframe"];
        assert_eq!(functions(text), want);
    }

    /// As Linux 3.10 prints it.
    #[test]
    fn ten_years_ago() {
        let text = "[<ffffffff8119b1fb>] pipe_wait+0x6b/0xa0\n[<ffffffff8119bae0>] pipe_write+0x350/0x6c0\n\
                    [<ffffffffffffffff>] 0xffffffffffffffff\n";
        assert_eq!(functions(text), ["pipe_wait", "pipe_write"]);
        assert_eq!(functions("[<ffffffff8119b1fb>] 0xffffffff8119b1fb\n"), ["0xffffffff8119b1fb"]);
    }

    /// Length and number are bounded; what has another form is nothing.
    #[test]
    fn bounds() {
        assert_eq!(functions(&"[<0>] a+0x1/0x2\n".repeat(100)).len(), MAX_FUNCTIONS);
        assert_eq!(functions(&format!("[<0>] {}\n", "a".repeat(600))).len(), 0);
        assert_eq!(functions("[<zz>] a\npipe_write\n").len(), 0);
        assert_eq!(function("futex_wait_queue\n"), Some("futex_wait_queue"));
        assert_eq!(function(""), None);
    }
}
