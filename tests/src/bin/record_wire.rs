//! `cargo xtask bless --record --wire`: records what clients and runtimes of the lab say to each other into
//! `tests/golden/wire`, all or those named.

use anyhow::{Result, bail};
use plegtrace_tests::wire::record::{CLIENTS, make};

fn main() -> Result<()> {
    let mut chosen = Vec::new();
    for name in std::env::args().skip(1) {
        match CLIENTS.iter().find(|client| client.name == name) {
            Some(client) => chosen.push(*client),
            None => bail!("{name} is none of {:?}", CLIENTS.map(|client| client.name)),
        }
    }
    make(if chosen.is_empty() { &CLIENTS } else { &chosen })
}
