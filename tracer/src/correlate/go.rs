//! Names of Go's own functions that tell what a goroutine waits for.

/// Is this a function of a lock of Go's? Callers inline the fast halves (`Lock`, `RLock`), and an inlined function is on no stack. What
/// stays is the slow half of a mutex, and the semaphore below it, which nothing but locks asks for: `sync.runtime_SemacquireMutex`, from Go
/// 1.20 `sync.runtime_SemacquireRWMutex` and `…RWMutexR` for an RWMutex (sync/runtime.go); since Go 1.24 a mutex is one of `internal/sync`.
#[must_use]
pub(crate) fn is_lock(function: &str) -> bool {
    const OF_LOCKS: [&str; 4] =
        ["(*Mutex).", "(*RWMutex).", "runtime_SemacquireMutex", "runtime_SemacquireRWMutex"];
    let function = function.strip_prefix("internal/").unwrap_or(function);
    function.strip_prefix("sync.").is_some_and(|rest| OF_LOCKS.iter().any(|begin| rest.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Go 1.19 and 1.27; whoever waits for a group or a condition waits for no lock.
    #[test]
    fn locks_and_others() {
        for function in [
            "sync.runtime_SemacquireMutex",
            "internal/sync.runtime_SemacquireMutex",
            "sync.runtime_SemacquireRWMutexR",
            "sync.(*RWMutex).Lock",
            "internal/sync.(*Mutex).lockSlow",
        ] {
            assert!(is_lock(function), "{function}");
        }
        for function in [
            "sync.runtime_Semacquire",
            "sync.runtime_SemacquireWaitGroup",
            "sync.(*WaitGroup).Wait",
            "sync.(*Cond).Wait",
            "my/sync.(*Mutex).Lock",
        ] {
            assert!(!is_lock(function), "{function}");
        }
    }
}
