//! The streams of HTTP/2 as which calls go from their clients to their servers.
//!
//! A client writes its request on the goroutine of the call, and its stream has a number by then. A server takes a stream on
//! on a goroutine of its own, on which the call begins a moment later.

use aya_ebpf::programs::ProbeContext;
use plegtrace_common::{
    key::CallKey,
    site::{NO_FIELD, SiteConf, action},
};

use crate::{
    go::regs,
    maps::{OPEN_CALLS, STREAMS},
    task,
};

/// Notes the stream of a call that is open, or will be.
#[inline(always)]
pub(crate) fn note(ctx: &ProbeContext, key: &CallKey, site: &SiteConf) {
    let Some(stream) = number(ctx, site) else { return };
    if site.action == action::CAME {
        let _ = STREAMS.insert(key, stream, 0);
        return;
    }
    // Other clients of the program send streams, too.
    if let Some(call) = OPEN_CALLS.get_ptr_mut(key) {
        // SAFETY: a map value stays valid until the program returns; only this goroutine writes this key.
        unsafe { (*call).stream = stream }
    }
}

/// The stream as which the call that begins came in; 0 when not known.
#[inline(always)]
pub(crate) fn take(key: &CallKey, site: &SiteConf) -> u32 {
    if site.comes == 0 {
        return 0;
    }
    // SAFETY: the value is copied at once; only this goroutine writes this key.
    let Some(stream) = unsafe { STREAMS.get(key) }.copied() else { return 0 };
    let _ = STREAMS.remove(key);
    stream
}

/// The number of the stream that the site is given. Those of clients are odd (RFC 9113, 5.1.1): anything else is none.
#[inline(always)]
fn number(ctx: &ProbeContext, site: &SiteConf) -> Option<u32> {
    let mut at = regs::value(ctx, site)?.wrapping_add(u64::from(site.stream_off));
    if site.stream_then != NO_FIELD {
        at = task::user_word(at)?.wrapping_add(u64::from(site.stream_then));
    }
    task::user_half(at).filter(|stream| stream & 1 == 1)
}
