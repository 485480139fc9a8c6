//! [`programs`]: processes found + plan → rows of the view. Pure.

use std::collections::BTreeSet;

use super::view::{HookRow, Prices, ProgramRow};
use crate::{
    input::{Component, TargetFact},
    plan::{Plan, PlannedBinary, PlannedSite},
};

/// What is not seen of runc all the same.
const COPIES: &str =
    "a runc init that is started from a sealed copy of this file is followed as a process only";

/// One row per process, with the probes of its executable. Processes that share an executable share its probes, which
/// are shown at the one they were planned for. `unproved` says why a target is unproved.
#[must_use]
pub fn programs(
    targets: &[TargetFact],
    plan: &Plan,
    unproved: impl Fn(&TargetFact) -> Option<String>,
) -> Vec<ProgramRow> {
    targets.iter().map(|target| row(target, plan, unproved(target))).collect()
}

/// One row per executable that no process runs all the time. `facts`: its path, version and Go version.
#[must_use]
pub fn files(
    plan: &Plan,
    facts: impl Fn(&PlannedBinary) -> Option<(String, Option<String>, String)>,
) -> Vec<ProgramRow> {
    let row = |binary: &PlannedBinary| {
        let (exe, version, go_version) = facts(binary)?;
        Some(ProgramRow {
            component: binary.component,
            pid: 0,
            exe,
            version,
            go_version: Some(go_version),
            socket: None,
            unproved: None,
            note: (binary.component == Component::Runc).then(|| COPIES.to_owned()),
            hooks: hooks(binary, plan),
        })
    };
    plan.binaries.iter().filter(|binary| binary.pid == 0).filter_map(row).collect()
}

fn row(target: &TargetFact, plan: &Plan, unproved: Option<String>) -> ProgramRow {
    let of_target = |b: &&PlannedBinary| b.component == target.component && b.pid == target.pid;
    ProgramRow {
        component: target.component,
        pid: target.pid,
        exe: target.exe.clone(),
        version: target.version.clone(),
        go_version: target.go_version.clone(),
        socket: target.socket.clone(),
        unproved,
        note: None,
        hooks: plan.binaries.iter().filter(of_target).flat_map(|binary| hooks(binary, plan)).collect(),
    }
}

fn hooks(binary: &PlannedBinary, plan: &Plan) -> Vec<HookRow> {
    let sites = || binary.starts.iter().chain(&binary.ends);
    let indices: BTreeSet<u32> = sites().map(|site| site.conf.hook).collect();
    let row = |index: u32| {
        let fact = plan.hooks.get(index as usize)?;
        Some(HookRow {
            operation: fact.operation.clone(),
            service: fact.service.clone(),
            layer: fact.layer,
            symbol: fact.symbol.clone(),
            sites: fact.sites,
            prices: prices(sites().filter(|site| site.conf.hook == index)),
        })
    };
    indices.into_iter().filter_map(row).collect()
}

fn prices<'a>(sites: impl Iterator<Item = &'a PlannedSite>) -> Option<Prices> {
    let mut prices = Prices::default();
    for site in sites {
        if is_emulated(&site.expected)? {
            prices.emulated += 1;
        } else {
            prices.single_stepped += 1;
        }
    }
    Some(prices)
}

/// Does the kernel emulate this instruction under a uprobe? Known for x86-64: jumps, calls, nop and pushes
/// (Linux arch/x86/kernel/uprobes.c, `branch_setup_xol_ops` and `push_setup_xol_ops`, v6.12).
fn is_emulated(instruction: &[u8]) -> Option<bool> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    Some(matches!(
        instruction,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..]
            | [0x0f, 0x80..=0x8f, ..]
            | [0x41, 0x50..=0x57, ..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        input::Component,
        plan::{BinaryFacts, CATALOGUE, FoundFunction, FoundSite, Planner, wanted},
    };

    fn site(bytes: &[u8]) -> FoundSite {
        FoundSite {
            file_offset: 1,
            code_offset: 1,
            bytes: bytes.to_vec(),
            g_source: 0,
            tls_offset: 0,
            repeats: false,
            ns_per_hit: 650,
        }
    }

    fn target(component: Component, pid: u32) -> TargetFact {
        TargetFact {
            component,
            pid,
            started_ns: None,
            exe: "/usr/bin/kubelet".to_owned(),
            version: None,
            go_version: None,
            socket: None,
            unproved: false,
        }
    }

    /// A relist begins at an emulated jump and ends at single-stepped RETs; a process without a plan has no hooks.
    #[test]
    fn plan_becomes_rows() {
        let symbol = "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist";
        let mut planner = Planner::default();
        planner.add(&BinaryFacts {
            component: Component::Kubelet,
            pid: 7,
            path: "/proc/7/exe".into(),
            exe: "/usr/bin/kubelet".to_owned(),
            inode: 1,
            kernel_dev: 1,
            register_abi: true,
            goid_offset: 152,
            functions: vec![FoundFunction {
                symbol: symbol.to_owned(),
                wanted: wanted(CATALOGUE, Component::Kubelet, symbol).unwrap(),
                start: Ok(site(&[0x76, 0x10])),
                stream: None,
                returns: Ok(vec![site(&[0xc3]), site(&[0xc3])]),
            }],
        });
        let targets = [target(Component::Kubelet, 7), target(Component::Shim, 8)];
        let rows = programs(&targets, planner.plan(), |t| (t.pid == 8).then(|| "new".to_owned()));
        assert_eq!(rows[0].hooks.len(), 1);
        assert_eq!((rows[0].hooks[0].symbol.as_str(), rows[0].hooks[0].sites), (symbol, 3));
        if cfg!(target_arch = "x86_64") {
            assert_eq!(rows[0].hooks[0].prices, Some(Prices { emulated: 1, single_stepped: 2 }));
        }
        assert_eq!((rows[1].hooks.len(), rows[1].unproved.as_deref()), (0, Some("new")));
    }

    /// The stack check's jumps and pushes are cheap; its compare and a RET are not.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn price_classes() {
        for cheap in
            [&[0x76, 0x20][..], &[0x0f, 0x86, 1, 0, 0, 0], &[0x55], &[0x41, 0x54], &[0xe8, 0, 0, 0, 0]]
        {
            assert_eq!(is_emulated(cheap), Some(true), "{cheap:x?}");
        }
        for dear in [&[0xc3][..], &[0x49, 0x3b, 0x66, 0x10], &[0x48, 0x83, 0xec, 0x18], &[]] {
            assert_eq!(is_emulated(dear), Some(false), "{dear:x?}");
        }
    }
}
