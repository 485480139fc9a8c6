//! Turns a pod's name and the knobs into the manifest of a static pod.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::image;
use crate::knobs::{Knobs, Network};

/// Name of the first container of each pod; the others have a number behind it.
const CONTAINER: &str = "c";

/// What a pod may keep to itself, each a word that occurs nowhere else: the value of a variable of its container, an
/// argument of its exec probe, and the value of an annotation, which is in the payload of CRI calls.
pub const SECRETS: [&str; 3] =
    ["plegtrace-lab-env-5ac3e1", "plegtrace-lab-argument-5ac3e2", "plegtrace-lab-payload-5ac3e3"];

/// The manifest; JSON is YAML enough for the kubelet.
pub(super) fn pod(name: &str, knobs: &Knobs) -> Value {
    let containers: Vec<Value> = (1..=knobs.containers).map(|number| container(number, knobs)).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "annotations": { "plegtrace-lab": SECRETS[2] } },
        "spec": {
            "hostNetwork": knobs.network == Network::Host,
            "terminationGracePeriodSeconds": 1,
            "containers": containers,
        },
    })
}

fn container(number: usize, knobs: &Knobs) -> Value {
    let name = if number == 1 { CONTAINER.to_owned() } else { format!("{CONTAINER}{number}") };
    let mut container = json!({
        "name": name,
        "image": image::REFERENCE,
        "imagePullPolicy": "Never",
        "command": ["/pause"],
        "env": [{ "name": "PLEGTRACE_LAB_SECRET", "value": SECRETS[0] }],
    });
    if knobs.exec_probes {
        container["livenessProbe"] = json!({
            "exec": { "command": ["/bin/true", SECRETS[1]] },
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            // A probe that times out because the machine is busy must not restart the container.
            "failureThreshold": 1000,
        });
    }
    container
}

/// The same with a FlexVolume of this driver in each container.
pub(super) fn with_volume(mut manifest: Value, driver: &str) -> Value {
    const NAME: &str = "flex";
    let spec = &mut manifest["spec"];
    spec["volumes"] = json!([{ "name": NAME, "flexVolume": { "driver": driver } }]);
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        container["volumeMounts"] = json!([{ "name": NAME, "mountPath": "/data" }]);
    }
    manifest
}

/// The same, whose containers want a device each.
pub(super) fn with_device(mut manifest: Value, resource: &str) -> Value {
    for container in manifest["spec"]["containers"].as_array_mut().into_iter().flatten() {
        container["resources"] = json!({ "limits": { resource: "1" } });
    }
    manifest
}

/// The same of another image, which is pulled when it is not there.
pub(super) fn with_image(mut manifest: Value, image: &str) -> Value {
    for container in manifest["spec"]["containers"].as_array_mut().into_iter().flatten() {
        container["image"] = json!(image);
        container["imagePullPolicy"] = json!("IfNotPresent");
    }
    manifest
}

/// Where a pod to debug the node from finds the directory of tools.
pub const TOOLS: &str = "/tools";

/// A privileged pod in the node's pid namespace and network, with a root file system that is read-only, and with a directory of the node.
fn privileged(name: &str, grace_s: u32, mut container: Value, directory: &Path) -> Value {
    const VOLUME: &str = "directory";
    container["name"] = json!(CONTAINER);
    container["imagePullPolicy"] = json!("Never");
    container["securityContext"] = json!({ "privileged": true, "readOnlyRootFilesystem": true });
    container["volumeMounts"][0]["name"] = json!(VOLUME);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "hostNetwork": true,
            "hostPID": true,
            "terminationGracePeriodSeconds": grace_s,
            "containers": [container],
            "volumes": [{ "name": VOLUME, "hostPath": { "path": directory, "type": "Directory" } }],
        },
    })
}

/// The manifest of a pod as operators debug a node from: privileged, with the directory `tools` of the node at [`TOOLS`].
pub(super) fn debugger(name: &str, tools: &Path) -> Value {
    let mount = json!({ "mountPath": TOOLS, "readOnly": true });
    let container = json!({ "image": image::REFERENCE, "command": ["/pause"], "volumeMounts": [mount] });
    privileged(name, 1, container, tools)
}

/// The manifest of a pod of the DaemonSet that is shipped: privileged, this image with its arguments, and with the directory `windows`
/// of the node where it writes them.
pub(super) fn daemon(name: &str, image: &str, args: &[&str], windows: &Path) -> Value {
    let mount = json!({ "mountPath": "/var/lib/plegtrace" });
    privileged(name, 60, json!({ "image": image, "args": args, "volumeMounts": [mount] }), windows)
}

/// Puts a manifest where the kubelet looks, in one step: it must never see half a file.
pub(super) fn publish(dir: &Path, name: &str, manifest: &Value) -> Result<()> {
    // Names that begin with a dot are not read.
    let hidden = dir.join(format!(".{name}"));
    fs::write(&hidden, manifest.to_string())
        .with_context(|| format!("cannot write the manifest of {name}"))?;
    fs::rename(&hidden, path(dir, name)).with_context(|| format!("cannot publish the manifest of {name}"))
}

/// Takes a manifest away; the kubelet then ends the pod.
pub(super) fn remove(dir: &Path, name: &str) -> Result<()> {
    fs::remove_file(path(dir, name)).with_context(|| format!("cannot remove the manifest of {name}"))
}

pub(crate) fn path(dir: &Path, name: &str) -> std::path::PathBuf {
    dir.join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_network_follow_the_knobs() {
        let idle = pod("p1", &Knobs::default());
        assert_eq!(idle["spec"]["hostNetwork"], true);
        assert!(idle["spec"]["containers"][0]["livenessProbe"].is_null());
        let knobs = Knobs { exec_probes: true, network: Network::Bridge, ..Knobs::default() };
        let probed = pod("p1", &knobs);
        assert_eq!(probed["spec"]["hostNetwork"], false);
        assert_eq!(probed["spec"]["containers"][0]["livenessProbe"]["periodSeconds"], 1);
        let many = pod("p1", &Knobs { containers: 3, ..Knobs::default() });
        assert_eq!(many["spec"]["containers"].as_array().unwrap().len(), 3);
        assert_eq!(many["spec"]["containers"][2]["name"], "c3");
    }

    #[test]
    fn a_volume_is_in_each_container() {
        let knobs = Knobs { containers: 2, ..Knobs::default() };
        let pod = with_volume(pod("p1", &knobs), "lab/slow");
        assert_eq!(pod["spec"]["volumes"][0]["flexVolume"]["driver"], "lab/slow");
        for container in 0..2 {
            let mount = &pod["spec"]["containers"][container]["volumeMounts"][0];
            assert_eq!(mount["name"], pod["spec"]["volumes"][0]["name"]);
        }
    }

    #[test]
    fn a_device_is_in_each_container() {
        let pod = with_device(pod("p1", &Knobs::default()), "lab/device");
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["lab/device"], "1");
    }

    #[test]
    fn an_image_of_a_registry_may_be_pulled() {
        let pod = with_image(pod("p1", &Knobs::default()), "127.0.0.1:5000/x:1");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(
            (&container["image"], &container["imagePullPolicy"]),
            (&json!("127.0.0.1:5000/x:1"), &json!("IfNotPresent"))
        );
    }

    #[test]
    fn a_manifest_appears_whole_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), "p1", &pod("p1", &Knobs::default())).unwrap();
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["p1.json"]);
        remove(dir.path(), "p1").unwrap();
        assert!(remove(dir.path(), "p1").is_err());
    }
}
