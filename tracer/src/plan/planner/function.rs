//! One function → its sites: what the kernel side does there, how it pairs begin and end, and where the error is.

use plegtrace_common::site::{ARG_REGS, NO_FIELD, SiteConf, action, err_source, pairing};

use super::{BinaryFacts, FoundFunction, FoundSite, Planner, has_mark};
use crate::{
    cri::Method,
    input::{HookFact, Layer},
    plan::{
        planned::{PlannedBinary, PlannedSite},
        row::{Class, End, HookRole, Mark, Wanted, WordPlace},
    },
};

/// What the sites of one function share.
struct Base<'a> {
    facts: &'a BinaryFacts,
    hook: u32,
    class: Class,
}

/// Why a function is not in the plan.
pub(super) enum Unplanned {
    /// It cannot be.
    Refused(String),
    /// A table of the kernel side is full.
    NoRoom(String),
}

impl From<String> for Unplanned {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

impl Planner {
    /// Plans the sites of one function.
    pub(super) fn add_function(
        &mut self,
        facts: &BinaryFacts,
        function: &FoundFunction,
        binary: &mut PlannedBinary,
    ) -> Result<(), Unplanned> {
        let wanted = &function.wanted;
        let start = function.start.clone()?;
        let wants = 1 + match wanted.row.what {
            HookRole::Calls { end: End::Returns(_), .. } => function.returns.clone()?.len(),
            _ => 0,
        };
        if self.sites.room() < wants {
            return Err(Unplanned::NoRoom(format!("more than {} sites", self.sites.most())));
        }
        let Some(hook) = self.hooks.take() else {
            return Err(Unplanned::NoRoom(format!("more than {} hooks", self.hooks.most())));
        };
        let base = Base { facts, hook, class: wanted.row.class };
        let (layer, starts, ends) = match wanted.row.what {
            HookRole::Mark(mark) => {
                let mut site =
                    self.site(&base, &start, mark_action(mark), pairing::GOROUTINE, mark_word(mark));
                if let Some((offset, then)) = function.stream {
                    (site.conf.stream_off, site.conf.stream_then) = (offset, then.unwrap_or(NO_FIELD));
                }
                match mark {
                    Mark::Park(_) => binary.parks.push(site),
                    Mark::Resume(_) => binary.resumes.push(site),
                    _ => binary.ends.push(site),
                }
                self.announce(hook_fact(facts, function, hook, Layer::Mark, 1));
                return Ok(());
            }
            HookRole::Calls { layer, end: End::Marks } => {
                let starts = vec![self.site(&base, &start, action::START, pairing::GOROUTINE, None)];
                (layer, starts, Vec::new())
            }
            HookRole::Calls { layer, end: End::WithProgram } => {
                let starts = vec![self.site(&base, &start, action::START, pairing::FRAME, None)];
                (layer, starts, Vec::new())
            }
            HookRole::Calls { layer, end: End::Returns(error) } => {
                let returns = function.returns.clone()?;
                let starts = vec![self.site(&base, &start, action::START, pairing::FRAME, None)];
                let ends = returns
                    .iter()
                    .map(|site| self.site(&base, site, action::END, pairing::FRAME, error))
                    .collect();
                (layer, starts, ends)
            }
        };
        self.announce(hook_fact(facts, function, hook, layer, starts.len() + ends.len()));
        let replies = has_mark(binary, Class::Handler, action::REPLY);
        let comes = has_mark(binary, wanted.row.class, action::CAME);
        let declare = |mut site: PlannedSite| {
            site.conf.comes = u16::from(comes);
            if replies { declare_reply(site, layer, wanted) } else { site }
        };
        binary.starts.extend(starts.into_iter().map(declare));
        binary.ends.extend(ends);
        Ok(())
    }

    /// Puts a hook into its place of the table.
    fn announce(&mut self, hook: HookFact) {
        self.fresh_hooks.push(hook.index);
        let place = hook.index as usize;
        match self.plan.hooks.get_mut(place) {
            Some(old) => *old = hook,
            None => self.plan.hooks.push(hook),
        }
    }

    /// One site; that there is room for it was asked before.
    fn site(
        &mut self,
        base: &Base<'_>,
        found: &FoundSite,
        action: u8,
        pairing: u8,
        error: Option<WordPlace>,
    ) -> PlannedSite {
        let index = self.sites.take().expect("there is room");
        let (err_source, err_stack_off) = error_source(base.facts.register_abi, error);
        PlannedSite {
            index,
            conf: SiteConf {
                hook: base.hook,
                class: base.class as u32,
                goid_off: base.facts.goid_offset,
                tls_off: found.tls_offset,
                err_stack_off,
                action,
                pairing,
                g_source: found.g_source,
                err_source,
                parks: 0,
                repeats: u16::from(found.repeats),
                stream_off: 0,
                stream_then: NO_FIELD,
                comes: 0,
                reserved: 0,
            },
            file_offset: found.file_offset,
            code_offset: found.code_offset,
            expected: found.bytes.clone(),
            ns_per_hit: found.ns_per_hit,
        }
    }
}

fn mark_action(mark: Mark) -> u8 {
    match mark {
        Mark::End(_) => action::END,
        Mark::Reply => action::REPLY,
        Mark::Result(_) => action::RESULT,
        Mark::Park(_) => action::PARK,
        Mark::Resume(_) => action::RESUME,
        Mark::Sent(..) => action::SENT,
        Mark::Came(..) => action::CAME,
    }
}

fn mark_word(mark: Mark) -> Option<WordPlace> {
    match mark {
        Mark::End(error) => error,
        Mark::Reply => None,
        Mark::Result(word)
        | Mark::Park(word)
        | Mark::Resume(word)
        | Mark::Sent(word, _)
        | Mark::Came(word, _) => Some(word),
    }
}

fn error_source(register_abi: bool, error: Option<WordPlace>) -> (u8, u32) {
    match error {
        None => (err_source::NONE, 0),
        Some(e) if register_abi && e.register < ARG_REGS => (err_source::REG0 + e.register, 0),
        Some(_) if register_abi => (err_source::NONE, 0),
        Some(e) => (err_source::STACK, e.stack),
    }
}

/// Unary handlers go well exactly when they reply, which must be seen; streams send many messages and no reply.
fn declare_reply(mut site: PlannedSite, layer: Layer, wanted: &Wanted) -> PlannedSite {
    if layer == Layer::Handler
        && !Method::from_name(&wanted.operation).is_some_and(|method| method.facts().streams)
    {
        site.conf.err_source = err_source::REPLY;
    }
    site
}

fn hook_fact(
    facts: &BinaryFacts,
    function: &FoundFunction,
    index: u32,
    layer: Layer,
    sites: usize,
) -> HookFact {
    HookFact {
        index,
        layer,
        component: facts.component,
        exe: facts.exe.clone(),
        operation: function.wanted.operation.clone(),
        service: function.wanted.service.clone(),
        symbol: function.symbol.clone(),
        long_lived: Method::from_name(&function.wanted.operation).is_some_and(Method::is_long_lived),
        sites: u32::try_from(sites).unwrap_or(u32::MAX),
    }
}
