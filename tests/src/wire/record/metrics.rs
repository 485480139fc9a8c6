//! How often a containerd has served each method with each code, by its own count.

use anyhow::Result;
use plegtrace_lab::{
    Containerd, process,
    promtext::{Page, Sample},
};

use super::LIMIT;
use crate::wire::capture::Tally;

/// What gRPC calls its codes, from 0 on.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Methods of services that begin so, as `/package.Service/Method`, once everything that was begun has ended.
pub(super) fn all_handled(containerd: &Containerd, services: &str) -> Result<Tally> {
    process::wait_for("the end of all handlers", LIMIT, || {
        let page = containerd.metrics(LIMIT)?;
        let of = |sample: &&Sample| service(sample).starts_with(services);
        let started = page.find("grpc_server_started_total", &[]).filter(of);
        let started = started.map(|sample| sample.value as u64).sum::<u64>();
        let tally = handled(&page, services);
        Ok((tally.values().sum::<u64>() == started).then_some(tally))
    })
}

/// The same, as it is now.
pub(super) fn handled(page: &Page, services: &str) -> Tally {
    let mut tally = Tally::new();
    for sample in page.find("grpc_server_handled_total", &[]).filter(|sample| sample.value > 0.0) {
        let (service, label) = (service(sample), |name| sample.label(name).unwrap_or_default());
        let code = CODES.iter().position(|name| *name == label("grpc_code"));
        let code = code.and_then(|code| u32::try_from(code).ok()).filter(|_| service.starts_with(services));
        if let Some(code) = code {
            let method = format!("/{service}/{}", label("grpc_method"));
            *tally.entry((method, code)).or_default() += sample.value as u64;
        }
    }
    tally
}

fn service(sample: &Sample) -> &str {
    sample.label("grpc_service").unwrap_or_default()
}
