//! After `cargo xtask vm --test bus_streams`: `cargo run -p plegtrace-tests --bin record-bus` writes what runc and
//! systemd of each release said to each other, from the logs of the guests into `tests/golden/wire`.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use plegtrace::wire::Side;
use plegtrace_tests::wire::record::RUNCS;
use plegtrace_tests::wire::{Capture, Chunk, capture::Tally};

fn main() -> Result<()> {
    for name in RUNCS {
        let release = name.strip_prefix("runc-").context("named by its release")?;
        let log =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../target/vm-logs/{release}.output.log"));
        let text = std::fs::read_to_string(&log).with_context(|| format!("no {}", log.display()))?;
        read(&text).and_then(|capture| capture.save_whole(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// The lines `VM-STREAM chunk connection side hex`, with connections numbered anew, and `VM-CALLS method count`.
fn read(log: &str) -> Result<Capture> {
    let (mut chunks, mut tally): (Vec<Chunk>, Tally) = (Vec::new(), Tally::new());
    let (mut numbers, mut last) = (Vec::new(), None);
    for line in log.lines().map(str::trim_end) {
        let at = line.find("VM-STREAM ").or_else(|| line.find("VM-CALLS "));
        let Some(line) = at.map(|at| &line[at..]) else { continue };
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["VM-CALLS", method, count] => drop(tally.insert((method.to_owned(), 0), count.parse()?)),
            ["VM-STREAM", number, connection, side, hex] => {
                let connection = numbers.iter().position(|known| *known == connection).unwrap_or_else(|| {
                    numbers.push(connection);
                    numbers.len() - 1
                });
                let side = if side == "client" { Side::Client } else { Side::Server };
                let bytes = bytes(hex)?;
                if last == Some(number) {
                    chunks.last_mut().context("no chunk")?.bytes.extend(bytes);
                } else {
                    chunks.push(Chunk { connection, side, bytes });
                }
                last = Some(number);
            }
            _ => bail!("not understood: {line}"),
        }
    }
    ensure!(!chunks.is_empty() && !tally.is_empty(), "nothing was recorded");
    Ok(Capture { chunks, tally })
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2).context("half a byte"));
    digits.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}
