//! Open calls: the only place that starts, marks and ends them, and that subtracts timestamps.

use plegtrace_common::{
    key::{CallKey, OpenCall},
    kind::RecKind,
    reason::Reason,
    rec::{
        CALL_BY_REPLY, CALL_FAILED, CALL_OK, CALL_PARKS, CALL_REPLIED, CALL_RESTARTED, CALL_UNWOUND, CallRec,
    },
    site::{SiteConf, err_source},
};

use crate::{
    count, emit, entry,
    go::Goroutine,
    maps::OPEN_CALLS,
    parks::{self, Sums},
    streams,
};

/// A start in the stack check that fires again this soon at the same depth is the prologue running again: the stack
/// grew, or the check gave way to another goroutine (Go preempts there), which on a starved machine takes many scheduling
/// rounds. Later it is another call, and the first one ended unseen; a relist that panicked is tried again after a second.
const REPEAT_NS: u64 = 500_000_000;

/// Where and when a hit happened.
pub(crate) struct Hit {
    pub(crate) now_ns: u64,
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) goroutine: Goroutine,
}

/// Opens a call.
#[inline(always)]
pub(crate) fn start(key: &CallKey, site: &SiteConf, hit: &Hit) -> Result<(), Reason> {
    let mut flags = if site.err_source == err_source::REPLY { CALL_BY_REPLY } else { 0 };
    let mut stream = streams::take(key, site);
    // SAFETY: the value is copied at once; only this goroutine writes this key.
    if let Some(old) = unsafe { OPEN_CALLS.get(key) }.copied() {
        let again = site.repeats != 0
            && old.hook == site.hook
            && old.depth == hit.goroutine.depth
            && hit.now_ns.wrapping_sub(old.start_ns) < REPEAT_NS;
        if again {
            count::reason(Reason::StartRepeated);
            flags |= CALL_RESTARTED;
            if stream == 0 {
                stream = old.stream;
            }
        } else {
            count::reason(Reason::EndNeverSeen);
            let _ = parks::leave(key, &old);
            emit_call(key, &old, (old.flags | CALL_UNWOUND) & !CALL_PARKS, hit);
        }
    }
    let parks = parks::enter(key, site, hit);
    if parks.measured != 0 {
        flags |= CALL_PARKS;
    }
    let call = OpenCall {
        start_ns: hit.now_ns,
        mark_ns: 0,
        g_addr: hit.goroutine.address,
        hook: site.hook,
        flags,
        depth: hit.goroutine.depth,
        tid: hit.tid,
        parked_ns: parks.parked_ns,
        short_ns: parks.short_ns,
        parks: parks.parks,
        stream,
    };
    if OPEN_CALLS.insert(key, call, 0).is_err() {
        let _ = parks::leave(key, &call);
        return Err(Reason::OpenCallsFull);
    }
    Ok(())
}

/// Notes on an open call that its reply was handed over.
#[inline(always)]
pub(crate) fn reply(key: &CallKey, site: &SiteConf, hit: &Hit) {
    match OPEN_CALLS.get_ptr_mut(key) {
        // SAFETY: a map value stays valid until the program returns; only this goroutine writes this key.
        Some(call) => unsafe {
            // What was parked until now is settled here; a second reply would make that wrong.
            let parks =
                if (*call).flags & CALL_REPLIED == 0 { parks::since(key, &*call) } else { Sums::NONE };
            if parks.measured != 0 {
                (*call).parked_ns = parks.parked_ns;
                (*call).short_ns = parks.short_ns;
                (*call).parks = parks.parks;
            } else {
                (*call).flags &= !CALL_PARKS;
            }
            (*call).mark_ns = hit.now_ns;
            (*call).flags |= CALL_REPLIED;
        },
        None => count::unmatched(site.hook),
    }
}

/// Notes on an open call how it went.
#[inline(always)]
pub(crate) fn result(key: &CallKey, site: &SiteConf, outcome: u32) {
    match OPEN_CALLS.get_ptr_mut(key) {
        // SAFETY: as above.
        Some(call) => unsafe { (*call).flags |= outcome },
        None => count::unmatched(site.hook),
    }
}

/// Ends a call.
#[inline(always)]
pub(crate) fn end(key: &CallKey, site: &SiteConf, hit: &Hit, outcome: u32) {
    // SAFETY: the value is copied at once; only this goroutine writes this key.
    let Some(mut call) = unsafe { OPEN_CALLS.get(key) }.copied() else {
        count::unmatched(site.hook);
        return;
    };
    entry::change(Reason::UpdateRefused, || OPEN_CALLS.remove(key));
    let mut flags = call.flags | outcome;
    let parks = parks::leave(key, &call);
    if flags & CALL_REPLIED == 0 {
        call.parked_ns = parks.parked_ns;
        call.short_ns = parks.short_ns;
        call.parks = parks.parks;
        if parks.measured == 0 {
            flags &= !CALL_PARKS;
        }
    }
    if flags & CALL_BY_REPLY != 0 {
        flags |= if flags & CALL_REPLIED == 0 { CALL_FAILED } else { CALL_OK };
    }
    count::call(call.hook, hit.now_ns.wrapping_sub(call.start_ns), flags & CALL_FAILED != 0);
    emit_call(key, &call, flags, hit);
}

#[inline(always)]
fn emit_call(key: &CallKey, call: &OpenCall, flags: u32, hit: &Hit) {
    emit::emit(CallRec {
        header: emit::header::<CallRec>(RecKind::Call, hit.now_ns, hit.tgid, hit.tid),
        start_ns: call.start_ns,
        mark_ns: call.mark_ns,
        goid: key.goid,
        g_addr: call.g_addr,
        hook: call.hook,
        flags,
        depth: call.depth,
        start_tid: call.tid,
        parked_ns: call.parked_ns,
        short_ns: call.short_ns,
        parks: call.parks,
        stream: call.stream,
    });
}
