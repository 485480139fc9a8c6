//! What plegtrace said of a node, as JSON and as text, and whether it is right.

use plegtrace_lab::{Node, process, scratch};
use serde_json::Value;

use super::kind::{Kind, POD};

/// What it said.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) verdict: String,
    /// The first finding that accuses, else what is slow first.
    pub(super) first: Value,
    pub(super) report: Value,
    /// The same, as a person reads it.
    pub(super) text: String,
}

impl Said {
    pub(super) fn new(json: &str, text: &str) -> Said {
        let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        let diagnosis = &report["diagnosis"];
        let verdict = diagnosis["verdict"].as_str().unwrap().to_owned();
        let accuses = |finding: &&Value| finding["severity"] != "notice";
        let finding = diagnosis["findings"].as_array().unwrap().iter().find(accuses);
        let first = finding.or(diagnosis["slow"].get(0)).cloned().unwrap_or_default();
        Said { verdict, first, text: text.to_owned(), report }
    }

    /// Does it accuse anybody?
    pub(super) fn accuses(&self) -> bool {
        matches!(self.verdict.as_str(), "slow" | "stall" | "failing")
    }

    /// Is all that does not move outside of this node? Another lab on the machine holds its own processes up meanwhile.
    pub(super) fn is_about_another_lab(&self, node: &Node) -> bool {
        let dir = node.containerd().scratch().path();
        let (marked, containers) = (process::marked(dir), scratch::container_ids(dir));
        let is_inside = |pid: u32| {
            let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            containers.iter().any(|id| cgroups.contains(id.as_str()))
        };
        let stuck = self.report["stuck"].as_array().unwrap();
        // Of one that has ended meanwhile it is not known.
        let is_there = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        let pids = stuck.iter().filter_map(|stuck| u32::try_from(stuck["pid"].as_u64()?).ok());
        let there: Vec<u32> = pids.filter(is_there).collect();
        let ours = |pid: &u32| marked.contains(pid) || is_inside(*pid);
        self.verdict == "stall" && !there.is_empty() && !there.iter().any(ours)
    }

    /// The component that it names, in a few words.
    pub(super) fn named(&self) -> String {
        let word = |name: &str| self.first[name].as_str().unwrap_or_default();
        match (self.first["id"].as_str(), self.first["culprit"]["component"].as_str()) {
            (Some(id), component) => format!("{id} {}", component.unwrap_or("nobody")),
            (None, _) if self.first.is_null() => {
                let doubt = self.report["diagnosis"]["doubts"][0]["sentence"].as_str();
                doubt.map_or("nobody".to_owned(), |doubt| format!("nobody: {doubt}"))
            }
            (None, _) => format!("{} {}", word("kind"), word("operation")).trim().to_owned(),
        }
    }

    /// Is the component that it names the one that was slowed down, in both outputs?
    pub(super) fn names(&self, kind: Kind, node: &Node) -> bool {
        let first = &self.first;
        let of_finding = |ids: &[&str]| first["id"].as_str().is_some_and(|id| ids.contains(&id));
        let of_slow = |kind: &str| first["kind"] == kind && first["operation"] == plegtrace_lab::gate::NAME;
        let is_culprit = |pid: u32| first["culprit"]["pid"] == pid;
        let right = match kind {
            Kind::Containerd => of_finding(&["O1"]) && is_culprit(node.containerd().pid()),
            Kind::Kubelet => of_finding(&["O1"]) && is_culprit(node.kubelet().pid()),
            Kind::Plugin => of_finding(&["N1"]) || of_slow("cni"),
            Kind::Hook => of_finding(&["U10"]) || of_slow("hook"),
            Kind::Disk => of_finding(&["R2"]) && is_culprit(node.containerd().pid()),
            Kind::Shim => {
                let shim = node.containerd().shim_of(&node.pod(POD).unwrap().sandbox).unwrap();
                of_finding(&["S10"]) && is_culprit(shim) || first["kind"] == "shim" && first["pid"] == shim
            }
        };
        right && self.is_in_the_text()
    }

    /// The first line of the text says the same.
    fn is_in_the_text(&self) -> bool {
        let begin = match self.first["id"].as_str() {
            Some(id) => format!("\n{} {id}  ", self.verdict.to_uppercase()),
            None => format!("\n{}  ", self.verdict.to_uppercase()),
        };
        self.text.contains(&begin)
    }
}
