//! `/proc/PID/cgroup`: version 1, version 2, and both at once (cgroups(7)).

/// Hierarchies that are looked at; version 1 has at most one per controller, plus named ones.
const MAX_LINES: usize = 64;
/// Longest id of a container.
const ID_LENGTH: usize = 64;

/// One line: a hierarchy and the place of the process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// "freezer", "cpu,cpuacct", "name=systemd"; empty for version 2.
    pub controllers: &'a str,
    /// Path as our own cgroup namespace sees it.
    pub path: &'a str,
}

impl Membership<'_> {
    /// The hierarchy of version 2.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    /// A hierarchy of version 1 that has this controller.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|one| one == controller)
    }
}

/// All lines.
#[must_use]
pub fn memberships(text: &str) -> Vec<Membership<'_>> {
    let line = |line| {
        let mut fields = str::splitn(line, 3, ':');
        let (_number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        path.starts_with('/').then_some(Membership { controllers, path })
    };
    text.lines().filter_map(line).take(MAX_LINES).collect()
}

/// The id of the container that a cgroup is named after: the last part of the path that has one, as
/// `…/ID`, `…/cri-containerd-ID.scope`, `…/crio-ID.scope`, `…/docker-ID.scope`, `…:cri-containerd:ID`.
#[must_use]
pub fn container_id(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let id = part.rsplit(['-', ':']).next()?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (id.len() == ID_LENGTH && id.bytes().all(hex)).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "51f2e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b8310aa51f2e49b";

    /// Version 1 beside an unused version 2, with joined and named hierarchies.
    #[test]
    fn hybrid() {
        let text = "5:freezer:/kubepods/a:b\n4:cpu,cpuacct:/x\n1:name=systemd:/y\n0::/\n";
        let lines = memberships(text);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines.iter().find(|line| line.has("freezer")).unwrap().path, "/kubepods/a:b");
        assert!(lines[1].has("cpuacct") && !lines[1].has("cpu,cpuacct"));
        assert_eq!(lines.iter().find(|line| line.is_v2()).unwrap().path, "/");
        assert_eq!(memberships("0::relative\n1:x\n"), []);
    }

    /// Every way to name a container's cgroup; a pod's is none.
    #[test]
    fn container_ids() {
        for path in [
            format!("/kubepods/burstable/pod1-2/{ID}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("/machine.slice/crio-{ID}.scope/container"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(container_id(&path), Some(ID), "{path}");
        }
        assert_eq!(container_id("/kubepods/pod4c5f8d4e-0a2d-4f7c-8a54-6b6f3a0f4d1e"), None);
        assert_eq!(container_id(""), None);
    }
}
