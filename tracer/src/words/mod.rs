//! How facts are called in English: figures, processes, containers, system calls, requests, what does not move.
//!
//! Used by diagnosis, whose evidence are sentences, and by `render`. Texts of the node inside of these sentences are cut
//! to a length, but **raw**: whoever shows a sentence escapes it ([`crate::render::escape`]).

mod bus;
mod cpu;
pub mod human;
mod kubelet_loop;
mod owner;
mod park;
mod party;
mod phase;
mod request;
mod stuck;

pub use bus::{
    bus_caller, bus_fault, bus_method, bus_names, bus_party, bus_peer, bus_stall, bus_waits_for, systemd_work,
};
pub use cpu::{cpu_share, quota, runner_name, runners, throttled};
pub use kubelet_loop::{busy_loop, loop_stall, loop_wait};
pub use owner::{command_words, container_line, of_pod, short_id};
pub use park::{
    go_stack, holders, is_entry, park_line, pipe_words, short_function, socket_line, syscall_words,
};
pub use party::{fault, holding, party, process_name, waiting, waits_for_child};
pub use phase::{phase, phase_briefly, phase_meaning, phase_path};
pub use request::{lock, requests, waits_for};
pub use stuck::{age, sentence, waiter_line, what};

/// Longest text of the node inside of a sentence, characters.
pub const LONG: usize = 120;

/// At most this many characters of a text; a longer one ends in "…".
#[must_use]
pub fn cut(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters are counted, not bytes; nothing is added to what fits.
    #[test]
    fn cuts() {
        assert_eq!(cut("日本語", 2), "日本…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
