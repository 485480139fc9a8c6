//! What kubelet and runtime got of the processors.

use serde::Serialize;

use super::facts::component;
use crate::{
    correlate::{Cpu, CpuShare},
    input::{QuotaFact, RunnerFact},
};

#[derive(Debug, Serialize)]
pub(super) struct CpuDoc<'a> {
    pressure_ns: Option<u64>,
    pressure_over_ns: Option<u64>,
    daemons: Vec<DaemonDoc<'a>>,
    runners: Vec<RunnerDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct RunnerDoc<'a> {
    pid: u32,
    comm: &'a str,
    ran_ns: u64,
    started_ns: u64,
}

#[derive(Debug, Serialize)]
struct DaemonDoc<'a> {
    component: &'static str,
    pid: u32,
    over_ns: u64,
    ran_ns: u64,
    waited_ns: u64,
    quotas: Vec<QuotaDoc<'a>>,
}

#[derive(Debug, Serialize)]
struct QuotaDoc<'a> {
    path: &'a str,
    quota_ns: u64,
    period_ns: u64,
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
}

impl<'a> CpuDoc<'a> {
    pub(super) fn new(cpu: &'a Cpu) -> Self {
        Self {
            pressure_ns: cpu.pressure.map(|(ns, _)| ns),
            pressure_over_ns: cpu.pressure.map(|(_, over)| over),
            daemons: cpu.daemons.iter().map(daemon).collect(),
            runners: cpu.runners.iter().map(runner).collect(),
        }
    }
}

fn runner(fact: &RunnerFact) -> RunnerDoc<'_> {
    RunnerDoc { pid: fact.pid, comm: &fact.comm, ran_ns: fact.ran_ns, started_ns: fact.started_ns }
}

fn daemon(share: &CpuShare) -> DaemonDoc<'_> {
    let CpuShare { pid, component: of, over_ns, ran_ns, waited_ns, quotas } = share;
    DaemonDoc {
        component: component(*of),
        pid: *pid,
        over_ns: *over_ns,
        ran_ns: *ran_ns,
        waited_ns: *waited_ns,
        quotas: quotas.iter().map(quota).collect(),
    }
}

fn quota(quota: &QuotaFact) -> QuotaDoc<'_> {
    let QuotaFact { path, quota_ns, period_ns, periods, throttled, throttled_ns } = quota;
    QuotaDoc {
        path,
        quota_ns: *quota_ns,
        period_ns: *period_ns,
        periods: *periods,
        throttled: *throttled,
        throttled_ns: *throttled_ns,
    }
}
