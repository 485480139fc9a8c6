//! `cargo xtask bless --record --wire`: records what clients and runtimes of the lab say to each other into
//! `tests/golden/wire`, all or those named.

use anyhow::{Result, bail};
use plegtrace_tests::wire::record::{all, make};

fn main() -> Result<()> {
    let (all, mut chosen) = (all(), Vec::new());
    for name in std::env::args().skip(1) {
        match all.iter().find(|pair| pair.name == name) {
            Some(pair) => chosen.push(*pair),
            None => bail!("{name} is none of {:?}", all.iter().map(|pair| pair.name).collect::<Vec<_>>()),
        }
    }
    make(if chosen.is_empty() { &all } else { &chosen })
}
