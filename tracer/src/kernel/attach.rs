//! Executes a plan, one executable at a time: resumes and parks, all of its ends, then all of its starts, so that no
//! call is seen to begin whose end or whose parks could be missed. Taken off in the opposite order.

use std::{collections::BTreeSet, io, os::fd::OwnedFd};

use aya::{
    maps::{MapError, PerCpuValues},
    programs::{
        UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use plegtrace_common::{
    key::HookStats,
    site::{SiteConf, SiteKey},
};
use zerocopy::FromZeros as _;

use super::{
    error::KernelError,
    load::{Kernel, Plain, program},
};
use crate::{
    plan::{PlannedBinary, PlannedSite},
    preflight::AttachMode,
};

/// The probes of one executable. Fields are dropped in order: starts first.
pub(super) struct BinaryLinks {
    _starts: LinkSet,
    _ends: LinkSet,
    pub(super) parks: Option<ParkLinks>,
}

/// The probes on the Go scheduler of one executable, parks first.
pub(super) struct ParkLinks {
    _links: [LinkSet; 2],
    /// The sites that begin to follow a goroutine, as the programs know them.
    pub(super) starts: Vec<(u32, SiteConf)>,
    /// The hooks on `runtime.gopark`.
    pub(super) hooks: Vec<u32>,
}

/// A program, and so what its sites mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Start,
    End,
    Park,
    Resume,
}

impl Probe {
    /// Name of its program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Start => "call_in",
            Self::End => "call_out",
            Self::Park => "park_in",
            Self::Resume => "park_out",
        }
    }

    fn sites(self, binary: &PlannedBinary) -> &[PlannedSite] {
        match self {
            Self::Start => &binary.starts,
            Self::End => &binary.ends,
            Self::Park => &binary.parks,
            Self::Resume => &binary.resumes,
        }
    }
}

enum LinkSet {
    Multi { _link: Option<OwnedFd> },
    Perf { _links: Vec<UProbeLink> },
}

impl Kernel {
    /// Attaches every site of one executable, or none; those of parks may fail alone, which is what is handed back.
    /// `id` is the caller's name for it.
    ///
    /// # Errors
    ///
    /// The kernel refuses a site; what was attached before it is taken off again.
    pub fn attach(&mut self, id: u64, binary: &PlannedBinary) -> Result<Option<KernelError>, KernelError> {
        let (mut parks, refused) = match self.attach_parks(binary) {
            Ok(parks) => (parks, None),
            Err(why) => (None, Some(why)),
        };
        for site in binary.ends.iter().chain(&binary.starts) {
            let mut site = site.clone();
            site.conf.parks &= u16::from(parks.is_some());
            if let Some(parks) = parks.as_mut().filter(|_| site.conf.parks != 0) {
                parks.starts.push((site.index, site.conf));
            }
            self.describe(binary, &site)?;
        }
        let ends = self.attach_set(binary, Probe::End)?;
        let starts = self.attach_set(binary, Probe::Start)?;
        self.links.insert(id, BinaryLinks { _starts: starts, _ends: ends, parks });
        Ok(refused)
    }

    /// Takes the probes of an executable off again.
    pub fn detach(&mut self, id: u64) {
        self.links.remove(&id);
    }

    /// Forgets what the sites and hooks of an executable stood for. Its probes are off.
    ///
    /// # Errors
    ///
    /// The counters of a hook cannot be set to zero.
    pub fn forget(&mut self, binary: &PlannedBinary) -> Result<(), KernelError> {
        let failed = |source| KernelError::Map { map: "HOOKS", source };
        for site in binary.every_site() {
            let key = SiteKey { inode: binary.inode, offset: site.code_offset, dev: binary.kernel_dev };
            // There is an entry only where sites are found by address.
            let _ = self.site_index.remove(&Plain(key));
        }
        let hooks: BTreeSet<u32> = binary.every_site().map(|site| site.conf.hook).collect();
        for hook in hooks {
            let cpus = self.hooks.get(&hook, 0).map_err(failed)?.len();
            let zero = PerCpuValues::try_from(vec![Plain(HookStats::new_zeroed()); cpus]);
            let zero = zero.map_err(|e| failed(MapError::IoError(e)))?;
            self.hooks.set(hook, zero, 0).map_err(failed)?;
        }
        Ok(())
    }

    /// Attaches where goroutines park and run again: both or none.
    fn attach_parks(&mut self, binary: &PlannedBinary) -> Result<Option<ParkLinks>, KernelError> {
        if binary.parks.is_empty() {
            return Ok(None);
        }
        if let Some(summary) = &self.parks_refused {
            return Err(KernelError::Program { program: "park_in", summary: summary.clone() });
        }
        for site in binary.resumes.iter().chain(&binary.parks) {
            self.describe(binary, site)?;
        }
        let resumes = self.attach_set(binary, Probe::Resume)?;
        let parks = self.attach_set(binary, Probe::Park)?;
        let hooks = binary.parks.iter().map(|site| site.conf.hook).collect();
        Ok(Some(ParkLinks { _links: [parks, resumes], starts: Vec::new(), hooks }))
    }

    /// Tells the programs what a hit of this site means.
    fn describe(&mut self, binary: &PlannedBinary, site: &PlannedSite) -> Result<(), KernelError> {
        self.sites
            .set(site.index, Plain(site.conf), 0)
            .map_err(|source| KernelError::Map { map: "SITES", source })?;
        if self.mode == AttachMode::PerfAddress {
            let key = SiteKey { inode: binary.inode, offset: site.code_offset, dev: binary.kernel_dev };
            self.site_index
                .insert(Plain(key), site.index, 0)
                .map_err(|source| KernelError::Map { map: "SITE_INDEX", source })?;
        }
        Ok(())
    }

    fn attach_set(&mut self, binary: &PlannedBinary, probe: Probe) -> Result<LinkSet, KernelError> {
        let sites = probe.sites(binary);
        let failed = |source| KernelError::Attach { path: binary.path.clone(), count: sites.len(), source };
        if self.mode != AttachMode::Multi {
            return self.attach_perf(binary, sites, probe);
        }
        if sites.is_empty() {
            return Ok(LinkSet::Multi { _link: None });
        }
        let multi = self.multi.as_ref().ok_or(KernelError::Missing(probe.program()))?;
        let offsets: Vec<u64> = sites.iter().map(|s| s.file_offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|s| u64::from(s.index)).collect();
        let link = multi
            .link(probe, &binary.path, &offsets, &cookies)
            .map_err(|e: io::Error| failed(Box::new(e)))?;
        Ok(LinkSet::Multi { _link: Some(link) })
    }

    fn attach_perf(
        &mut self,
        binary: &PlannedBinary,
        sites: &[PlannedSite],
        probe: Probe,
    ) -> Result<LinkSet, KernelError> {
        let cookies = self.mode == AttachMode::PerfCookie;
        let program: &mut UProbe = program(&mut self.ebpf, probe.program())?;
        let mut links = Vec::with_capacity(sites.len());
        for site in sites {
            let point = UProbeAttachPoint {
                location: UProbeAttachLocation::AbsoluteOffset(site.file_offset),
                cookie: cookies.then(|| u64::from(site.index)),
            };
            let link = program
                .attach(point, &binary.path, UProbeScope::AllProcesses)
                .and_then(|id| program.take_link(id))
                .map_err(|e| KernelError::Attach {
                    path: binary.path.clone(),
                    count: sites.len(),
                    source: Box::new(e),
                })?;
            links.push(link);
        }
        Ok(LinkSet::Perf { _links: links })
    }
}
