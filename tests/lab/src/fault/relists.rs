//! Whether the relists of a kubelet go on.

use std::time::Duration;

use anyhow::Result;

use super::guard::EFFECT_LIMIT;
use crate::node::Node;
use crate::process;

/// A kubelet that has finished no second relist by then has one that hangs: one is due each second.
const NO_RELIST: Duration = Duration::from_secs(4);

/// Waits until a relist hangs.
pub(super) fn wait_until_they_hang(node: &Node) -> Result<()> {
    process::wait_for("a relist that hangs", EFFECT_LIMIT, || {
        let before = node.relists()?;
        if node.wait_for_relists(2, NO_RELIST).is_ok() {
            return Ok(None);
        }
        // A page that did not answer would prove nothing.
        Ok((node.relists()? < before + 2.0).then_some(()))
    })
}
