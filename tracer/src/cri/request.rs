//! gRPC services of runtimes: which of their methods answer only when something else ends.

use super::Method;

/// Streams of other services that are open by design: events of containerd, and `Watch` of gRPC's health service.
const FOREVER: [(&str, &str); 2] = [("Events", "Subscribe"), ("Health", "Watch")];

/// Does this method last as long as what it waits for?
#[must_use]
pub fn request_lasts(service: &str, method: &str) -> bool {
    let name = service.rsplit('.').next().unwrap_or_default();
    let of_cri = matches!(name, "RuntimeService" | "ImageService");
    of_cri && Method::from_name(method).is_some_and(Method::is_long_lived)
        || FOREVER.contains(&(name, method))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of events are no fault; whatever else takes long is worth showing.
    #[test]
    fn only_streams_of_events_last() {
        assert!(request_lasts("runtime.v1.RuntimeService", "GetContainerEvents"));
        assert!(request_lasts("containerd.services.events.v1.Events", "Subscribe"));
        for method in ["ListPodSandbox", "PullImage", "unknown#3", ""] {
            assert!(!request_lasts("runtime.v1.RuntimeService", method), "{method}");
        }
        assert!(!request_lasts("", "GetContainerEvents"), "nobody knows which service that is");
    }
}
