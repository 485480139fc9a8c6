//! The name of a program without what distributions put around it.
//!
//! NixOS keeps a program under `.NAME-wrapped` and calls it by a script; Docker up to 18.06 called its own programs `docker-containerd`
//! and `docker-runc`; who keeps several versions has them in the name.

/// `kubelet` for `kubelet-1.36`, `kubelet_v1.30.2`, `.kubelet-wrapped` and `kubelet`; `containerd` for `docker-containerd`.
///
/// What follows a name without a separator belongs to it: `kubelet2` and `containerd-stress` are other programs.
pub(super) fn plain_name(name: &str) -> &str {
    let unwrapped =
        name.strip_prefix('.').and_then(|name| name.trim_end_matches('_').strip_suffix("-wrapped"));
    let name = unwrapped.unwrap_or(name);
    let name = without_version(name);
    name.strip_prefix("docker-")
        .filter(|rest| OF_DOCKER.iter().any(|of| rest.starts_with(of)))
        .unwrap_or(name)
}

/// Programs that Docker had under names of its own.
const OF_DOCKER: [&str; 2] = ["containerd", "runc"];

fn without_version(name: &str) -> &str {
    let is_version = |text: &str| {
        let number = text.strip_prefix('v').unwrap_or(text);
        let number = number.split(['-', '_']).next().unwrap_or_default();
        number.starts_with(|first: char| first.is_ascii_digit()) && number.contains('.')
    };
    let cut = name.char_indices().filter(|(_, letter)| matches!(letter, '-' | '_'));
    let cut = cut.map(|(at, _)| at).find(|at| is_version(&name[at + 1..]));
    cut.map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is around a name is taken away, and nothing else.
    #[test]
    fn plain_names() {
        for (name, plain) in [
            ("kubelet", "kubelet"),
            ("kubelet-1.36", "kubelet"),
            ("kubelet_v1.30.2", "kubelet"),
            ("kubelet-v1.29.4-eks-036c24b", "kubelet"),
            ("containerd-1.7", "containerd"),
            ("containerd-shim-runc-v2", "containerd-shim-runc-v2"),
            ("containerd-shim-runc-v2-1.7.1", "containerd-shim-runc-v2"),
            (".k3s-wrapped", "k3s"),
            (".kubelet-wrapped_", "kubelet"),
            ("docker-containerd", "containerd"),
            ("docker-containerd-shim", "containerd-shim"),
            ("docker-runc", "runc"),
            ("docker-proxy", "docker-proxy"),
            ("kubelet2", "kubelet2"),
            ("kubelet-2", "kubelet-2"),
            ("containerd-stress", "containerd-stress"),
            ("-1.0", ""),
            ("", ""),
            ("kubelet-é.1", "kubelet-é.1"),
        ] {
            assert_eq!(plain_name(name), plain, "{name}");
        }
    }
}
