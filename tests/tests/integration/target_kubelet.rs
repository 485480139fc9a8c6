//! The real kubelets of the lab, 139,000 functions each: what must be found in them, and what finding it may cost.
//!
//! `go119` needs the kubelet that bookworm's Go has built, `others::go115` that of bullseye's.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::target_kit::{available, check_against_objdump, resolve_all};
use plegtrace::target::{Convention, GoBinary, Match, Pattern, is_go};
use plegtrace_lab::kubelet::{self, KubeletBuild};

const WANTED: &[&str] = &[
    "pleg.(*GenericPLEG).relist|pleg.(*GenericPLEG).Relist",
    "pleg.(*GenericPLEG).updateCache",
    "kuberuntime.(*kubeGenericRuntimeManager).GetPods",
    "kuberuntime.recordOperation",
    "kuberuntime.instrumentedRuntimeService.ListPodSandbox",
    "kuberuntime.instrumentedRuntimeService.ListContainers",
    "kuberuntime.instrumentedRuntimeService.PodSandboxStatus",
    "kuberuntime.instrumentedImageManagerService.ListImages",
    "remote.(*remoteRuntimeService).ListContainers",
    "google.golang.org/grpc.(*ClientConn).Invoke",
];

/// Patterns as the catalogue has them: many, with wildcards.
const MANY: &[&str] = &[
    "kuberuntime.instrumentedRuntimeService.*",
    "kuberuntime.instrumentedImageManagerService.*",
    "remote.(*remoteRuntimeService).*",
    "remote.(*remoteImageService).*",
    "runtime/v1._RuntimeService_*_Handler",
    "runtime/v1alpha2._RuntimeService_*_Handler",
    "pleg.(*GenericPLEG).*",
];

/// The most memory this process ever had resident, in KiB; `reset` starts counting anew.
fn peak_kib(reset: bool) -> u64 {
    if reset {
        fs::write("/proc/self/clear_refs", "5").expect("own peak can be reset");
    }
    let status = fs::read_to_string("/proc/self/status").expect("own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A kubelet has what the relist report needs, where objdump sees it, in little memory. How long it takes is told only.
fn check(build: KubeletBuild, convention: Convention) {
    // The memory is that of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());
    let Some(path) = available(&format!("kubelet {build:?}"), kubelet::program(build)) else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = peak_kib(true);
    let started = Instant::now();
    let binary = GoBinary::open(&path).expect("a Go binary");
    let patterns: Vec<Pattern> = MANY.iter().map(|text| Pattern::new(text)).collect();
    let found: Vec<Match> = binary.resolve(&patterns);
    let took = started.elapsed();
    let grown = peak_kib(false) - before;
    eprintln!("{build:?}: {} of {} functions in {took:?}, {grown} KiB", found.len(), binary.function_count());
    assert!(binary.function_count() > 100_000 && found.len() > 60, "{}", found.len());
    assert_eq!((binary.abi().convention, is_go(&path)), (convention, Some(true)));
    assert!(grown < 80 * 1024, "{grown} KiB");
    for function in resolve_all(&binary, WANTED) {
        check_against_objdump(&path, &binary, &function);
    }
}

/// Register ABI.
#[test]
fn go119() {
    check(KubeletBuild::Go119, Convention::Registers);
}

/// What other suites have.
mod others {
    use super::{Convention, KubeletBuild, check};

    /// Stack ABI.
    #[test]
    fn go115() {
        check(KubeletBuild::Go115, Convention::Stack);
    }
}
