//! Which targets no test has proved yet.

use crate::input::Component;

/// Why this kind of target is unproved, if it is: plegtrace tries, and says so.
///
/// `exe` is the path of the executable, `arch` the processor as Rust names it.
#[must_use]
pub fn unproved(component: Component, exe: &str, arch: &str) -> Option<&'static str> {
    let program = exe.rsplit('/').next().unwrap_or(exe);
    if arch == "aarch64" {
        return Some("no test has run on arm64 yet");
    }
    match component {
        Component::Crio | Component::Conmon => Some("no test has run with CRI-O yet"),
        Component::CriDockerd => Some("no test has run with cri-dockerd yet"),
        Component::Runc if program.trim_end_matches(" (deleted)") == "crun" => {
            Some("no test has run with crun yet")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is proved is not called unproved, and the other way round.
    #[test]
    fn by_component_and_processor() {
        assert_eq!(unproved(Component::Containerd, "/usr/bin/containerd", "x86_64"), None);
        assert_eq!(unproved(Component::Runc, "/usr/sbin/runc", "x86_64"), None);
        assert!(unproved(Component::Runc, "/usr/bin/crun (deleted)", "x86_64").is_some());
        assert!(unproved(Component::Crio, "/usr/bin/crio", "x86_64").is_some());
        assert!(unproved(Component::CriDockerd, "/usr/bin/cri-dockerd", "x86_64").is_some());
        assert!(unproved(Component::Containerd, "/usr/bin/containerd", "aarch64").is_some());
    }
}
