//! plegtrace on the guest's containerd: every call that was made is seen, once, with the kernel's own sums agreeing,
//! and afterwards containerd is as it was.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use plegtrace::cli::Attach;
use plegtrace::decode::{Call, CallResult};

use crate::cri::Client;
use crate::feature::Feature;
use crate::kernel::KernelVersion;
use crate::machine::Containerd;
use crate::observation::{Observation, Seen};
use crate::wait::{self, BUDGET};

/// Requests that answer without a pod and are probed on every kernel, however dear a probe is there.
const METHODS: [&str; 2] = ["ListPodSandbox", "ListContainers"];
/// How many clients make them at the same time. Handlers that compete for a processor are preempted by each other, also
/// inside of our programs: what those keep must belong to the task (`tracer-ebpf/src/stack.rs`).
const CLIENTS: usize = 8;
/// How often each of them makes each.
const TIMES: usize = 10;
/// How often each is made.
const EACH: usize = CLIENTS * TIMES;
/// What a uprobe puts in place of an instruction (x86: int3).
const BREAKPOINT: u8 = 0xcc;

/// Perf events, found by address.
///
/// # Errors
/// When a call is missing, doubled or wrong, or containerd suffered.
pub fn address() -> Result<String> {
    fires(Attach::Address)
}

/// Perf events with cookies.
///
/// # Errors
/// As [`address`].
pub fn cookie() -> Result<String> {
    fires(Attach::Cookie)
}

/// One link.
///
/// # Errors
/// As [`address`].
pub fn multi() -> Result<String> {
    fires(Attach::Multi)
}

fn fires(attach: Attach) -> Result<String> {
    let containerd = Containerd::running()?;
    let client = Client::connect()?;
    let site = one_site(containerd)?;
    let observation = Observation::begin(attach)?;
    let patched = containerd.text_byte(site.0)?;
    ensure!(patched == BREAKPOINT, "{patched:#x} at a probe site, not a breakpoint");
    call_all(&client)?;
    let all = METHODS.len() * EACH;
    let observation = observation.until(&format!("{all} calls"), |seen| seen.handlers().count() >= all)?;
    let (snapshot, seen) = observation.end()?;
    exact(&seen, containerd)?;
    sums_agree(&seen)?;
    let losses: Vec<_> = snapshot.real_losses().map(|loss| (loss.reason.as_str(), loss.count)).collect();
    let (preempted, lost): (Vec<_>, Vec<_>) =
        losses.into_iter().partition(|(reason, _)| *reason == "recursion");
    ensure!(lost.is_empty(), "lost: {lost:?}");
    // There one of the programs that follow threads and processes may be left out, and that is told. Of the calls none was.
    let may_be = KernelVersion::running()? >= Feature::PreemptedMaps.since();
    ensure!(preempted.is_empty() || may_be, "lost: {preempted:?}");

    wait::until("the probes to be gone", BUDGET, || {
        Ok((containerd.text_byte(site.0)? == site.1).then_some(()))
    })?;
    ensure!(Containerd::running()? == containerd, "containerd was restarted");
    client.call("Version").context("containerd does not answer any more")?;
    let armed = seen.armed.context("no record says that probes are on")?;
    Ok(format!(
        "{all} of {all} calls, {} sites, {} in {} ms, {preempted:?} left out",
        armed.sites,
        armed.mode,
        armed.took_ns / 1_000_000
    ))
}

fn call_all(client: &Client) -> Result<()> {
    let calls = || {
        METHODS
            .iter()
            .cycle()
            .take(METHODS.len() * TIMES)
            .try_for_each(|method| client.call(method).map(drop))
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(calls)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })
}

/// Where the handler of `ListContainers` begins, from the start of the code, and the byte that is there without a
/// probe.
fn one_site(containerd: Containerd) -> Result<(u64, u8)> {
    let inspected = containerd.inspect()?;
    let handler = inspected.facts.functions.iter().find(|f| f.symbol.contains("ListContainers"));
    let site = handler.and_then(|f| f.start.as_ref().ok()).context("no site for ListContainers")?;
    let first = *site.bytes.first().context("a site without an instruction")?;
    let now = containerd.text_byte(site.code_offset)?;
    ensure!(now == first, "{now:#x} in memory, {first:#x} in the file: is something attached already?");
    Ok((site.code_offset, first))
}

fn exact(seen: &Seen, containerd: Containerd) -> Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (method, call) in seen.handlers() {
        *counts.entry(method).or_default() += 1;
        ensure!(call.tgid == containerd.pid, "a call in process {}", call.tgid);
        ensure!(call.result() == CallResult::Ok, "{method} is {:?}", call.result());
    }
    let expected: BTreeMap<&str, usize> = METHODS.into_iter().map(|method| (method, EACH)).collect();
    ensure!(counts == expected, "seen {counts:?}, made {expected:?}");
    Ok(())
}

/// What the kernel summed per hook is what its records say.
fn sums_agree(seen: &Seen) -> Result<()> {
    let mut records: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for (_, call) in seen.handlers() {
        records.entry(call.hook).or_default().push(call);
    }
    ensure!(records.len() == METHODS.len(), "calls of {} hooks", records.len());
    for (hook, calls) in records {
        let sum = seen.counters.iter().find(|c| c.hook == hook).context("a hook without counters")?;
        let durations: Vec<u64> = calls.iter().map(|call| call.duration_ns()).collect();
        let from_records = (
            durations.len() as u64,
            durations.iter().sum::<u64>(),
            durations.iter().max().copied().unwrap_or(0),
            durations.len() as u64,
        );
        let from_kernel = (sum.calls, sum.sum_ns, sum.max_ns, sum.buckets.iter().sum::<u64>());
        ensure!(
            from_kernel == from_records,
            "hook {hook}: calls, sum, longest and histogram are {from_kernel:?}, the records say {from_records:?}"
        );
    }
    Ok(())
}
