//! Containers whose annotations together are larger than a message of gRPC may be (K2): every ListContainers is refused.

use anyhow::{Result, ensure};
use tonic::Code;

use super::extra;
use super::guard::{CALL_LIMIT, Facts, Fault};
use crate::cri::{Error, Pod};
use crate::node::Node;

/// The most that containerd sends in a message (`max_send_message_size`), and a kubelet takes.
const LIMIT: usize = 16 << 20;
/// Bytes of each annotation.
const BALLAST: usize = 1 << 20;

/// Makes containers in the sandbox of `pod`, never started, until the list of all is too large for one message.
///
/// # Errors
///
/// When a container cannot be made, or the list is still answered.
pub fn large_list(node: &Node, pod: &Pod) -> Result<Fault> {
    let (client, runtime) = (node.containerd().client(), node.containerd().pid());
    let facts = Facts { culprits: vec![runtime], pod: pod.name.clone(), ..Facts::default() };
    let mut fault = Fault::new(facts);
    for number in 0..=LIMIT / BALLAST {
        let wish = extra::with_ballast(node, &format!("ballast{number}"), BALLAST);
        let container = client.create_extra(&pod.sandbox, &wish, CALL_LIMIT)?;
        let client = client.clone();
        fault = fault.healed_by(move || Ok(client.remove_container(&container, CALL_LIMIT)?));
    }
    let answer = client.list_containers(CALL_LIMIT);
    let refused = matches!(&answer, Err(Error::Rpc { code: Code::ResourceExhausted, .. }));
    ensure!(refused, "ListContainers should be refused: {:?}", answer.map(|all| all.len()));
    Ok(fault)
}
