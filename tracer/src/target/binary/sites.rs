//! Probe sites of a function, by decoding it.

use super::{GoBinary, MAX_CODE, Match};
use crate::target::{
    arch::{self, Code, RawSite},
    error::SiteRefusal,
    site::{GSource, Site},
    symtab::Witness,
};

impl GoBinary {
    /// The site where a call of the function begins.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn start_site(&self, function: &Match) -> Result<Site, SiteRefusal> {
        let body = self.code(function)?;
        let raw = arch::start(self.elf.machine, self.as_code(function, &body))?;
        self.site(function, &body, raw)
    }

    /// Every site where the function returns.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn ret_sites(&self, function: &Match) -> Result<Vec<Site>, SiteRefusal> {
        let body = self.code(function)?;
        let leaves_to = |to: u64| {
            self.table.function_at(to).is_some_and(|callee| callee.name.starts_with("runtime.morestack"))
        };
        let raw = arch::returns(self.elf.machine, self.as_code(function, &body), &leaves_to)?;
        raw.into_iter().map(|raw| self.site(function, &body, raw)).collect()
    }

    /// Every site where the function directly calls the function whose full name is `callee`.
    ///
    /// # Errors
    /// Why this function is not probed.
    pub fn call_sites(&self, function: &Match, callee: &str) -> Result<Vec<Site>, SiteRefusal> {
        let body = self.code(function)?;
        let to = |to: u64| self.table.function_at(to).is_some_and(|f| f.entry == to && f.name == callee);
        let raw = arch::calls(self.elf.machine, self.as_code(function, &body), &to)?;
        raw.into_iter().map(|raw| self.site(function, &body, raw)).collect()
    }

    fn code(&self, function: &Match) -> Result<Vec<u8>, SiteRefusal> {
        let refused = SiteRefusal::NoCode { vaddr: function.entry_vaddr, size: function.size };
        if let Witness::Disagrees(symbol) = function.witness {
            return Err(SiteRefusal::SymbolDisagrees { symbol, function: function.entry_vaddr });
        }
        if function.size == 0 || function.size > MAX_CODE {
            return Err(refused);
        }
        let code = self.elf.read_vaddr(function.entry_vaddr, function.size, "code");
        code.map(|block| block.to_vec()).map_err(|_| refused)
    }

    fn as_code<'b>(&self, function: &Match, bytes: &'b [u8]) -> Code<'b> {
        Code { entry: function.entry_vaddr, bytes, convention: self.abi.convention }
    }

    fn site(&self, function: &Match, body: &[u8], raw: RawSite) -> Result<Site, SiteRefusal> {
        let refused = || SiteRefusal::NoCode { vaddr: raw.vaddr, size: raw.len as u64 };
        let at = usize::try_from(raw.vaddr - function.entry_vaddr).map_err(|_| refused())?;
        let bytes = body.get(at..at + raw.len).ok_or_else(refused)?.to_vec();
        Ok(Site {
            vaddr: raw.vaddr,
            file_offset: self.elf.file_offset(raw.vaddr, raw.len as u64).ok_or_else(refused)?,
            ip_minus_start_code: raw.vaddr.wrapping_sub(self.start_code),
            bytes,
            price: raw.price,
            g_source: raw.g.unwrap_or_else(|| self.tls_g.map_or(GSource::Unknown, GSource::Tls)),
        })
    }
}
