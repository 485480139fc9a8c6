//! `cargo xtask bless --record`: records the faults of the lab into `tests/golden/recordings`, all or those named.

use anyhow::{Result, bail};
use clap::ValueEnum;
use plegtrace_lab::fault::Kind;
use plegtrace_tests::recordings;

fn main() -> Result<()> {
    let mut kinds = Vec::new();
    for name in std::env::args().skip(1) {
        match Kind::from_str(&name, false) {
            Ok(kind) if recordings::FAULTS.contains(&kind) => kinds.push(kind),
            _ => bail!("{name} is none of {:?}", recordings::FAULTS.map(recordings::name)),
        }
    }
    recordings::make(if kinds.is_empty() { &recordings::FAULTS } else { &kinds })
}
