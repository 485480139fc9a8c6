//! [`Planner`]: functions found in executables + catalogue → [`Plan`], with a reason for everything left out.

mod found;
mod function;

pub use found::{BinaryFacts, FoundFunction, FoundSite};

use super::{
    catalogue::CATALOGUE,
    cri,
    planned::{Plan, PlannedBinary},
    row::{Class, Row, Wanted, What},
};
use crate::input::{Component, Layer, RefusedFact};

/// Most sites in one executable: every probed page of its text is copied once per process.
const MAX_SITES_PER_BINARY: usize = 400;

/// How many sites are worth their price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// Every one: they cost nothing to take off (uprobe_multi).
    #[default]
    All,
    /// What a stall shows in: each site takes 0.1 s to take off (perf events).
    Few,
}

/// Makes one plan out of many executables.
#[derive(Debug, Default)]
pub struct Planner {
    plan: Plan,
    next_site: u32,
    budget: Budget,
    without: Vec<Layer>,
    follow_parks: bool,
}

impl Planner {
    /// An empty plan.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Refuses every function of these layers, as an executable that has none of them would be.
    #[must_use]
    pub fn without(mut self, layers: &[Layer]) -> Self {
        self.without = layers.to_vec();
        self
    }

    /// Plans the sites of the source `parks` too, or not.
    #[must_use]
    pub fn with_parks(self, follow_parks: bool) -> Self {
        Self { follow_parks, ..self }
    }

    /// The plan so far.
    #[must_use]
    pub fn finish(self) -> Plan {
        self.plan
    }

    /// The plan so far, with the planner still usable for executables that appear later.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Notes something that is not seen.
    pub fn refuse(&mut self, component: Component, what: &str, why: &str, matters: bool) {
        self.refuse_source("uprobes", component, what, why, matters);
    }

    /// Notes something that another source does not see.
    pub fn refuse_source(
        &mut self,
        source: &str,
        component: Component,
        what: &str,
        why: &str,
        matters: bool,
    ) {
        self.plan.refused.push(RefusedFact {
            source: source.to_owned(),
            component: Some(component),
            what: what.to_owned(),
            why: why.to_owned(),
            matters,
        });
    }

    /// Plans the sites of one executable; gives its place in the plan when it has any.
    pub fn add(&mut self, facts: &BinaryFacts) -> Option<usize> {
        let mut binary = PlannedBinary {
            component: facts.component,
            pid: facts.pid,
            path: facts.path.clone(),
            inode: facts.inode,
            kernel_dev: facts.kernel_dev,
            starts: Vec::new(),
            ends: Vec::new(),
            parks: Vec::new(),
            resumes: Vec::new(),
        };
        self.report_missing(facts);
        let parks = self.parks(facts);
        for function in facts.functions.iter().filter(|function| !is_park(function) || parks) {
            if self.without.contains(&layer(&function.wanted)) {
                self.refuse(facts.component, &function.symbol, "left out by --without", true);
            } else if self.budget == Budget::Few && !is_essential(&function.wanted) {
                let why = "left out: on this kernel each probe takes 0.1 s to take off";
                self.refuse(facts.component, &function.symbol, why, false);
            } else if binary.sites() >= MAX_SITES_PER_BINARY {
                let why = format!("more than {MAX_SITES_PER_BINARY} sites in one executable");
                self.refuse(facts.component, &function.symbol, &why, matters(facts.component));
            } else if let Err(why) = self.add_function(facts, function, &mut binary) {
                self.refuse(facts.component, &function.symbol, &why, matters(facts.component));
            }
        }
        follow_parks(&mut binary);
        let place = self.plan.binaries.len();
        let planned = binary.sites() > 0;
        self.plan.binaries.extend(planned.then_some(binary));
        planned.then_some(place)
    }

    /// The executable at a place of the plan is reached through another process now.
    pub fn reach(&mut self, place: usize, facts: &BinaryFacts) {
        if let Some(binary) = self.plan.binaries.get_mut(place) {
            (binary.pid, binary.path) = (facts.pid, facts.path.clone());
        }
    }

    /// Are the parks of this executable followed? Both sites or none: a park whose end is not seen would last for ever.
    fn parks(&mut self, facts: &BinaryFacts) -> bool {
        let wanted = |row: &&Row| row.components.contains(&facts.component) && is_park_row(row);
        if !self.follow_parks || !CATALOGUE.iter().any(|row| wanted(&row)) {
            return false;
        }
        let mut missing = None;
        for (id, name) in [("park", "runtime.gopark"), ("resume", "runtime.execute")] {
            let found = facts.functions.iter().find(|function| function.wanted.row.id == id);
            let why = match found.map(|function| &function.start) {
                Some(Ok(_)) => continue,
                Some(Err(why)) => why.clone(),
                None => "no such function in this build".to_owned(),
            };
            missing.get_or_insert((name, why));
        }
        if let Some((name, why)) = &missing {
            let why = format!("{why}; not seen: where its goroutines wait");
            self.refuse_source("parks", facts.component, name, &why, false);
        }
        missing.is_none()
    }

    /// Rows without a function in this executable.
    fn report_missing(&mut self, facts: &BinaryFacts) {
        for row in CATALOGUE.iter().filter(|row| row.components.contains(&facts.component)) {
            let found = facts.functions.iter().any(|f| f.wanted.row.id == row.id);
            if let (false, Some(lost)) = (found, row.lost_without) {
                let why = format!("no such function in this build ({}); not seen: {lost}", row.versions);
                self.refuse(facts.component, row.id, &why, matters(facts.component));
            }
        }
        let class_seen = |class| facts.functions.iter().any(|f| f.wanted.row.class == class && is_call(f));
        let expected = match facts.component {
            Component::Kubelet => Some((Class::KubeletClient, "CRI client methods")),
            Component::Containerd | Component::Crio | Component::CriDockerd => {
                Some((Class::Handler, "CRI handlers"))
            }
            _ => None,
        };
        if let Some((_, what)) = expected.filter(|(class, _)| !class_seen(*class)) {
            self.refuse(facts.component, what, &format!("none found in {}", facts.exe), true);
        }
    }
}

fn layer(wanted: &Wanted) -> Layer {
    match wanted.row.what {
        What::Calls { layer, .. } => layer,
        What::Mark(_) => Layer::Mark,
    }
}

/// Does a stall of the node show in it?
fn is_essential(wanted: &Wanted) -> bool {
    match wanted.row.what {
        What::Mark(_) => wanted.row.class != Class::KubeletClient,
        What::Calls { layer: Layer::KubeletClient, .. } => false,
        What::Calls { layer: Layer::KubeletCall | Layer::Handler, .. } => {
            cri::is_essential(&wanted.operation)
        }
        What::Calls { layer: Layer::RuncPhase, .. } => wanted.row.class == Class::RuncWait,
        What::Calls { .. } => true,
    }
}

/// Is the report weaker without it? Without its phases, runc is still seen as a process, as every other command is.
fn matters(component: Component) -> bool {
    component != Component::Runc
}

fn is_park(function: &FoundFunction) -> bool {
    is_park_row(function.wanted.row)
}

fn is_park_row(row: &Row) -> bool {
    matches!(row.what, What::Mark(mark) if mark.is_park())
}

/// Tells the starts whether the parks of what they start are followed; half of the sites are none.
fn follow_parks(binary: &mut PlannedBinary) {
    if binary.parks.is_empty() || binary.resumes.is_empty() {
        binary.parks.clear();
        binary.resumes.clear();
        return;
    }
    binary.starts.iter_mut().for_each(|site| site.conf.parks = 1);
}

fn is_call(function: &FoundFunction) -> bool {
    matches!(function.wanted.row.what, What::Calls { .. })
}

#[cfg(test)]
mod tests {
    use plegtrace_common::site::{action, err_source, g_source, pairing};

    use super::*;
    use crate::plan::wanted;

    fn site(file_offset: u64, g: u8) -> FoundSite {
        FoundSite {
            file_offset,
            code_offset: file_offset,
            bytes: vec![0x76, 0x10],
            g_source: g,
            tls_offset: -8,
        }
    }

    fn function(
        component: Component,
        symbol: &str,
        returns: Result<Vec<FoundSite>, String>,
    ) -> FoundFunction {
        FoundFunction {
            symbol: symbol.to_owned(),
            wanted: wanted(CATALOGUE, component, symbol).expect("in the catalogue"),
            start: Ok(site(0x1000, g_source::REGISTER)),
            returns,
        }
    }

    fn facts(component: Component, functions: Vec<FoundFunction>) -> BinaryFacts {
        BinaryFacts {
            component,
            pid: 1,
            path: "/proc/1/exe".into(),
            exe: "/usr/bin/x".to_owned(),
            inode: 7,
            kernel_dev: 8,
            register_abi: true,
            goid_offset: 152,
            functions,
        }
    }

    /// A relist is ended by its own RETs, a counted call by `recordOperation`, and what is missing is said.
    #[test]
    fn kubelet_plan() {
        let functions = vec![
            function(
                Component::Kubelet,
                "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
                Ok(vec![site(0x1100, g_source::REGISTER), site(0x1200, g_source::REGISTER)]),
            ),
            function(
                Component::Kubelet,
                "k8s.io/kubernetes/pkg/kubelet/kuberuntime.recordOperation",
                Ok(vec![]),
            ),
        ];
        let mut planner = Planner::default();
        planner.add(&facts(Component::Kubelet, functions));
        let plan = planner.finish();
        assert_eq!((plan.binaries[0].starts.len(), plan.binaries[0].ends.len()), (1, 3));
        assert_eq!(plan.binaries[0].ends[0].conf.pairing, pairing::FRAME);
        assert_eq!(plan.binaries[0].ends[2].conf.pairing, pairing::GOROUTINE);
        assert!(plan.refused.iter().any(|r| r.what == "list-phase" && r.matters));
        assert!(plan.refused.iter().any(|r| r.what == "CRI client methods"));
    }

    /// A function whose RETs could not be decoded is refused with the reason, and nothing of it is planned.
    #[test]
    fn refusal_carries_the_reason() {
        let relist = function(
            Component::Kubelet,
            "k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).relist",
            Err("byte 0x06 is no instruction".to_owned()),
        );
        let mut planner = Planner::default();
        planner.add(&facts(Component::Kubelet, vec![relist]));
        let plan = planner.finish();
        assert!(plan.binaries.is_empty());
        assert!(plan.refused.iter().any(|r| r.why.contains("0x06")));
    }

    /// Parks are followed where both sites are found and wanted, never with one of them alone.
    #[test]
    fn parks_need_both_sites() {
        let handler = "k8s.io/cri-api/pkg/apis/runtime/v1._RuntimeService_ListContainers_Handler";
        let plan = |symbols: &[&str], follow: bool| {
            let functions = symbols.iter().map(|s| function(Component::Containerd, s, Ok(vec![]))).collect();
            let mut planner = Planner::default().with_parks(follow);
            planner.add(&facts(Component::Containerd, functions));
            planner.finish()
        };
        let both = plan(&[handler, "runtime.gopark", "runtime.execute"], true);
        let binary = &both.binaries[0];
        assert_eq!((binary.parks.len(), binary.resumes.len(), binary.starts[0].conf.parks), (1, 1, 1));
        let (park, resume) = (binary.parks[0].conf, binary.resumes[0].conf);
        assert_eq!((park.action, park.err_source), (action::PARK, err_source::REG0 + 2));
        assert_eq!((resume.action, resume.err_source), (action::RESUME, err_source::REG0));
        let one = plan(&[handler, "runtime.gopark"], true);
        let binary = &one.binaries[0];
        assert_eq!((binary.parks.len(), binary.resumes.len(), binary.starts[0].conf.parks), (0, 0, 0));
        assert!(one.refused.iter().any(|r| r.source == "parks" && r.what == "runtime.execute" && !r.matters));
        let left_out = plan(&[handler, "runtime.gopark", "runtime.execute"], false);
        assert_eq!((left_out.binaries[0].parks.len(), left_out.binaries[0].starts[0].conf.parks), (0, 0));
    }

    /// Phases of runc pair by frame; one that ends in an `execve` has no end; what is missing is no reason for doubt; and
    /// where sites are dear only those remain in which runc waits for others.
    #[test]
    fn phases_of_runc() {
        let runc = "github.com/opencontainers/runc/libcontainer";
        let functions = || {
            let returns = || Ok(vec![site(0x1100, g_source::REGISTER)]);
            let symbols = [".(*linuxStandardInit).Init", ".destroy", "/configs.HookList.RunHooks"];
            symbols.map(|name| function(Component::Runc, &format!("{runc}{name}"), returns())).to_vec()
        };
        let plan = |budget| {
            let mut planner = Planner::new(budget).with_parks(true);
            planner.add(&facts(Component::Runc, functions()));
            planner.finish()
        };
        let all = plan(Budget::All);
        let binary = &all.binaries[0];
        assert_eq!((binary.starts.len(), binary.ends.len(), binary.parks.len()), (3, 2, 0));
        assert!(binary.every_site().all(|site| site.conf.pairing == pairing::FRAME && site.conf.parks == 0));
        assert!(all.refused.iter().any(|r| r.what == "runc-seccomp"), "{:?}", all.refused);
        assert!(all.refused.iter().all(|r| !r.matters && r.source == "uprobes"), "{:?}", all.refused);
        let few = plan(Budget::Few);
        assert_eq!((few.hooks.len(), few.hooks[0].operation.as_str()), (1, "RunHooks"));
    }

    /// Old binaries give the error on the stack, and their RETs find the goroutine in thread-local storage.
    #[test]
    fn stack_abi() {
        let mut old = facts(
            Component::Kubelet,
            vec![function(
                Component::Kubelet,
                "k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).GetPods",
                Ok(vec![site(0x1100, g_source::TLS)]),
            )],
        );
        old.register_abi = false;
        let mut planner = Planner::default();
        planner.add(&old);
        let conf = planner.plan().binaries[0].ends[0].conf;
        assert_eq!((conf.err_source, conf.err_stack_off, conf.tls_off), (err_source::STACK, 48, -8));
    }
}
