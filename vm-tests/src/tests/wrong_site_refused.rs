//! A site that is not where the plan says is refused before anything is attached: it would kill the target.

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::machine::{self, Containerd};

/// Moves one planned site by a byte, and expects another instruction at another.
///
/// # Errors
/// When a wrong plan is accepted or the right one is not.
pub fn run() -> Result<String> {
    let inspected = Containerd::running()?.inspect()?;
    let plan = machine::plan(&inspected);
    let right = plan.binaries.first().context("no executable planned")?;
    inspected.verify(right).map_err(|why| anyhow!("the right plan is refused: {why}"))?;

    let (mut moved, mut other) = (right.clone(), right.clone());
    moved.starts.first_mut().context("no start planned")?.file_offset += 1;
    let expected = &mut other.ends.last_mut().context("no end planned")?.expected;
    *expected.first_mut().context("a site without an instruction")? ^= 1;
    let mut said = String::new();
    for (what, wrong) in [("a moved site", moved), ("another instruction", other)] {
        said = inspected.verify(&wrong).err().with_context(|| format!("{what} is accepted"))?;
    }
    ensure!(!said.is_empty(), "refused without a word");
    Ok(format!("{} sites accepted, a moved one and a changed one refused: {said}", right.sites()))
}
