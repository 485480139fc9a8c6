//! The service of a shim (`containerd.task.v2.Task`, `v3`; `containerd.runtime.sandbox.v1.Sandbox`; `api/runtime` of
//! containerd): which of its methods answer only when something else ends.

/// Methods that are open by design: `Wait` until a process ends, `WaitSandbox` until a sandbox does, `Stream` until one
/// side closes it.
const FOREVER: [(&str, &str); 3] = [("Task", "Wait"), ("Sandbox", "WaitSandbox"), ("Streaming", "Stream")];

/// Does this method last as long as what it waits for? Every other one answers soon on a sound node.
#[must_use]
pub fn shim_call_lasts(service: &str, method: &str) -> bool {
    let service = service.rsplit('.').next().unwrap_or_default();
    FOREVER.contains(&(service, method))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting is no fault, in any version of the service; everything else is, unknown methods too.
    #[test]
    fn only_waits_last() {
        assert!(shim_call_lasts("containerd.task.v2.Task", "Wait"));
        assert!(shim_call_lasts("containerd.task.v3.Task", "Wait"));
        assert!(shim_call_lasts("containerd.runtime.sandbox.v1.Sandbox", "WaitSandbox"));
        for method in ["State", "Create", "Kill", "Waits", ""] {
            assert!(!shim_call_lasts("containerd.task.v2.Task", method), "{method}");
        }
        assert!(!shim_call_lasts("containerd.services.events.ttrpc.v1.Events", "Wait"));
    }
}
