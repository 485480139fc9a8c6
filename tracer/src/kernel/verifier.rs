//! A verifier log, thousands of lines long → the two or three that matter.

/// Last meaningful lines of a verifier log: the refusal and the instruction it is about, without statistics.
#[must_use]
pub fn summary(log: &str) -> String {
    let noise = |line: &&str| {
        line.is_empty()
            || line.starts_with("processed ")
            || line.starts_with("verification time ")
            || line.starts_with("stack depth ")
            || line.starts_with("peak_states")
    };
    let mut lines: Vec<&str> = log.lines().map(str::trim).filter(|l| !noise(l)).collect();
    let tail = lines.split_off(lines.len().saturating_sub(3));
    if tail.is_empty() { "the verifier left no log".to_owned() } else { tail.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refusal survives, the statistics do not.
    #[test]
    fn keeps_the_refusal() {
        let log = "func#0 @0\n0: R1=ctx() R10=fp0\n; call_in\n12: (79) r3 = *(u64 *)(r6 +0)\n\
                   dereference of modified ctx ptr R6 off=8 disallowed\nprocessed 13 insns (limit 1000000)\n";
        assert_eq!(
            summary(log),
            "; call_in | 12: (79) r3 = *(u64 *)(r6 +0) | dereference of modified ctx ptr R6 off=8 disallowed"
        );
        assert_eq!(summary(""), "the verifier left no log");
    }
}
