//! Counters of the scheduler: `schedstat` of a thread, `cpu.stat` of a cgroup.

use crate::input::QuotaFact;

/// "RAN WAITED TIMESLICES": nanoseconds on a processor, and ready for one.
#[must_use]
pub fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Who has run, and for how long, in clock ticks of user space and kernel together (`/proc/PID/stat`, proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The kernel's name of it. Hostile text.
    pub comm: String,
    /// Its parent.
    pub parent: u32,
    /// Its own.
    pub own: u64,
    /// Those of its children that have ended and been waited for, and of theirs.
    pub ended: u64,
}

/// Fields 2, 4 and 14 to 17 of a stat line.
#[must_use]
pub fn ran_ticks(text: &str) -> Option<Ran> {
    let (front, back) = text.rsplit_once(')')?;
    let fields: Vec<&str> = back.split_ascii_whitespace().take(15).collect();
    let ticks = |first: usize| {
        let [user, kernel] = [first, first + 1].map(|at| fields.get(at)?.parse::<u64>().ok());
        Some(user?.saturating_add(kernel?))
    };
    let comm = front.split_once('(')?.1.to_owned();
    Some(Ran { comm, parent: fields.get(1)?.parse().ok()?, own: ticks(11)?, ended: ticks(13)? })
}

/// Throttling of a cgroup, version 1 and 2; what is not there is 0.
#[must_use]
pub fn throttling(text: &str) -> QuotaFact {
    let mut fact = QuotaFact::default();
    for line in text.lines() {
        let Some((name, Ok(value))) =
            line.split_once(' ').map(|(name, value)| (name, value.trim().parse::<u64>()))
        else {
            continue;
        };
        match name {
            "nr_periods" => fact.periods = value,
            "nr_throttled" => fact.throttled = value,
            "throttled_time" => fact.throttled_ns = value,
            "throttled_usec" => fact.throttled_ns = value.saturating_mul(1000),
            _ => {}
        }
    }
    fact
}

/// The whole of a kind of pressure since the boot, in ns.
#[must_use]
pub fn total_pressure_ns(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(kind))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel writes, and what it does not.
    #[test]
    fn counters() {
        assert_eq!(schedstat("812345 99 12\n"), Some((812_345, 99)));
        assert_eq!([schedstat(""), schedstat("1"), schedstat("a b c")], [None; 3]);
        let pressure = "some avg10=1.53 avg60=0.00 avg300=0.00 total=250\nfull avg10=0.00 total=7\n";
        assert_eq!(total_pressure_ns(pressure, "some"), Some(250_000));
        assert_eq!(total_pressure_ns(pressure, "full"), Some(7_000));
        assert_eq!(total_pressure_ns("some total=99999999999999999999\n", "some"), None);
        let v1 = throttling("nr_periods 7\nnr_throttled 5\nthrottled_time 1234\nnonsense\n");
        assert_eq!((v1.periods, v1.throttled, v1.throttled_ns), (7, 5, 1234));
        assert_eq!(throttling("throttled_usec 3\n").throttled_ns, 3000);
    }
}
