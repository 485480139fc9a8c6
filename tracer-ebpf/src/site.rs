//! Which site fired: by cookie where the kernel has them (≥ 5.15), else by executable and address.

use aya_ebpf::{EbpfContext, helpers::bpf_get_attach_cookie, programs::ProbeContext};
use plegtrace_common::{reason::Reason, site::SiteConf};

use crate::{
    go::regs,
    maps::{SITE_INDEX, SITES},
    settings::setting,
    task,
};

/// The table entry of the site that fired.
#[inline(always)]
pub(crate) fn current(ctx: &ProbeContext) -> Result<SiteConf, Reason> {
    let index = if setting!(use_cookies) == 1 {
        // SAFETY: the context is the program's own. The branch is removed where the helper does not exist.
        unsafe { bpf_get_attach_cookie(ctx.as_ptr()) as u32 }
    } else {
        let key = task::site_key(regs::ip(ctx))?;
        // SAFETY: the value is copied at once; user space never changes it while probes are attached.
        *unsafe { SITE_INDEX.get(key) }.ok_or(Reason::UnknownSite)?
    };
    let site = SITES.get(index).copied().ok_or(Reason::UnknownSite)?;
    if site.action == 0 { Err(Reason::UnknownSite) } else { Ok(site) }
}
