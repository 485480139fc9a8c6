//! The program alone as a container image: an OCI image layout in a tar file, with the manifest that older versions of
//! Docker want beside it, so that `ctr images import`, `podman load` and `docker load` all take it.
//!
//! Formats: <https://github.com/opencontainers/image-spec> (image-layout.md, manifest.md, config.md), and
//! <https://github.com/moby/docker-image-spec> (v1.2, "Combined Image JSON + Filesystem Changeset Format").

use anyhow::Result;
use serde_json::{Value, json};

use super::release::Release;
use super::sums::sha256;
use super::tarball::{self, Member};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The image as a tar file.
///
/// # Errors
/// When memory runs out.
pub(crate) fn archive(release: &Release, program: &[u8]) -> Result<Vec<u8>> {
    let file = Member { path: "plegtrace".to_owned(), mode: 0o755, contents: program.to_vec() };
    let plain = tarball::tar(&[file], release.time)?;
    let layer = Blob::new(LAYER, tarball::gzip(&plain)?);
    let config = Blob::json(CONFIG, &config(release, &sha256(&plain))?);
    let manifest = Blob::json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        }),
    );
    let tag = format!("plegtrace:{}", release.version);
    let for_docker = json!([{ "Config": config.path(), "RepoTags": [tag], "Layers": [layer.path()] }]);
    let mut members = vec![
        text("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" })),
        text("index.json", &index(release, &manifest)),
        text("manifest.json", &for_docker),
    ];
    members.extend([layer, config, manifest].map(|blob| Member {
        path: blob.path(),
        mode: 0o644,
        contents: blob.contents,
    }));
    tarball::tar(&members, release.time)
}

/// Which image this is; the annotations are the names that containerd and others give it.
fn index(release: &Release, manifest: &Blob) -> Value {
    let mut descriptor = manifest.descriptor();
    descriptor["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    descriptor["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/plegtrace:{}", release.version),
        "org.opencontainers.image.ref.name": release.version,
    });
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] })
}

/// How the image is run; `layer` is the sum of the layer before it was packed.
fn config(release: &Release, layer: &str) -> Result<Value> {
    let date = release.date()?;
    Ok(json!({
        "created": date,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": ["/plegtrace"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "plegtrace",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": date, "created_by": "cargo xtask dist" }],
    }))
}

fn text(path: &str, json: &Value) -> Member {
    Member { path: path.to_owned(), mode: 0o644, contents: json.to_string().into_bytes() }
}

/// Contents that are found by their sum.
struct Blob {
    media_type: &'static str,
    sum: String,
    contents: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, contents: Vec<u8>) -> Self {
        Self { media_type, sum: sha256(&contents), contents }
    }

    fn json(media_type: &'static str, value: &Value) -> Self {
        Self::new(media_type, value.to_string().into_bytes())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.sum)
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": self.media_type,
            "digest": format!("sha256:{}", self.sum),
            "size": self.contents.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tarball::tests::{files, gunzip};
    use super::*;

    fn read(image: &[Member], path: &str) -> Vec<u8> {
        image
            .iter()
            .find(|member| member.path == path)
            .unwrap_or_else(|| panic!("no {path}"))
            .contents
            .clone()
    }

    fn json_of(image: &[Member], path: &str) -> Value {
        serde_json::from_slice(&read(image, path)).unwrap()
    }

    /// Follows a descriptor as a runtime does: size and sum must be right.
    fn follow(image: &[Member], descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap();
        let contents = read(image, &format!("blobs/{}", digest.replace(':', "/")));
        assert_eq!(descriptor["size"], contents.len());
        assert_eq!(digest, format!("sha256:{}", sha256(&contents)));
        contents
    }

    /// From the index down to the program, which is all that the layer holds.
    #[test]
    fn an_oci_runtime_finds_the_program() {
        let release = Release::sample();
        let image = files(&archive(&release, b"program").unwrap(), release.time);
        assert_eq!(json_of(&image, "oci-layout")["imageLayoutVersion"], "1.0.0");
        let index = json_of(&image, "index.json");
        let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
        assert_eq!(name, "docker.io/library/plegtrace:1.2.3");
        let manifest: Value = serde_json::from_slice(&follow(&image, &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&follow(&image, &manifest["config"])).unwrap();
        let layer = gunzip(&follow(&image, &manifest["layers"][0]));
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", sha256(&layer))]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/plegtrace"]));
        let program = Member { path: "plegtrace".to_owned(), mode: 0o755, contents: b"program".to_vec() };
        assert_eq!(files(&layer, release.time), [program]);
    }

    /// A Docker that knows no OCI layout reads its own manifest, which names the same blobs.
    #[test]
    fn docker_finds_the_same() {
        let release = Release::sample();
        let image = files(&archive(&release, b"program").unwrap(), release.time);
        let index = json_of(&image, "index.json");
        let manifest: Value = serde_json::from_slice(&follow(&image, &index["manifests"][0])).unwrap();
        let docker = &json_of(&image, "manifest.json")[0];
        let path = |descriptor: &Value| {
            format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"))
        };
        assert_eq!(docker["Config"], path(&manifest["config"]));
        assert_eq!(docker["Layers"], json!([path(&manifest["layers"][0])]));
        assert_eq!(docker["RepoTags"], json!(["plegtrace:1.2.3"]));
    }
}
