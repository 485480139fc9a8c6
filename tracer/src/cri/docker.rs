//! Docker's API, which stands behind dockershim and cri-dockerd: what a request is about, and which ones may last. Source:
//! `moby/api/swagger.yaml`.

/// Collections of which the API names single ones: `/containers/{id}/…`.
const COLLECTIONS: [&str; 10] = [
    "containers",
    "exec",
    "networks",
    "volumes",
    "plugins",
    "secrets",
    "configs",
    "services",
    "nodes",
    "tasks",
];
/// What is asked of a whole collection, so it is no name: `/containers/json`.
const OF_ALL: [&str; 10] =
    ["json", "create", "prune", "search", "load", "get", "init", "join", "leave", "update"];
/// Last parts of paths about one image, whose name may have slashes.
const OF_IMAGE: [&str; 5] = ["json", "history", "push", "tag", "get"];
/// Most parts of a path that are kept.
const MAX_PARTS: usize = 4;
/// Shortest prefix of an id that is taken for one.
const SHORT_ID: usize = 12;
/// Answered when something else ends: a container, a build, a time of grace, whatever is streamed.
const LASTING: [&str; 10] = [
    "GET /events",
    "GET /containers/{id}/logs",
    "GET /containers/{id}/stats",
    "GET /containers/{id}/attach/ws",
    "POST /containers/{id}/wait",
    "POST /containers/{id}/stop",
    "POST /containers/{id}/restart",
    "POST /images/create",
    "POST /images/load",
    "POST /build",
];

/// What a request to Docker is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerCall {
    /// HTTP method and path, with `{id}` and `{name}` in place of ids and names: `GET /containers/{id}/json`.
    pub method: String,
    /// The container it is about; empty when it is about none, or names it otherwise than by its id.
    pub container: String,
}

impl DockerCall {
    /// Of a request line without its version; `None` when it is none.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let (verb, path) = line.split_once(' ')?;
        let is_verb = !verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_uppercase());
        let path = path.strip_prefix('/').filter(|_| is_verb)?;
        let path = path.split(['?', ' ']).next().unwrap_or_default();
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.first().is_some_and(|first| is_version(first)) {
            parts.remove(0);
        }
        let container = match parts[..] {
            ["containers", id, ..] if is_id(id) => id.to_owned(),
            _ => String::new(),
        };
        Some(Self { method: format!("{verb} /{}", template(&parts)), container })
    }
}

/// Does this request last as long as what it waits for?
#[must_use]
pub fn docker_call_lasts(method: &str) -> bool {
    LASTING.contains(&method)
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_id(part: &str) -> bool {
    (SHORT_ID..=64).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn template(parts: &[&str]) -> String {
    let shown: Vec<&str> = match parts {
        [images @ "images", all] if OF_ALL.contains(all) => vec![images, all],
        [images @ "images", .., last] if parts.len() > 2 && OF_IMAGE.contains(last) => {
            vec![images, "{name}", last]
        }
        [images @ ("images" | "distribution"), _, ..] => vec![images, "{name}"],
        [first, second, rest @ ..] if COLLECTIONS.contains(first) && !OF_ALL.contains(second) => {
            [first, "{id}"].into_iter().chain(rest.iter().map(|part| word(part))).collect()
        }
        _ => parts.iter().map(|part| word(part)).collect(),
    };
    shown[..shown.len().min(MAX_PARTS)].join("/")
}

/// A word of the API; whatever else somebody writes there is one thing.
fn word(part: &str) -> &str {
    let is_word = part.len() <= 20 && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { part } else { "{other}" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(line: &str) -> String {
        DockerCall::read(line).map_or_else(String::new, |call| call.method)
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// Ids and names are left out; what is asked stays.
    #[test]
    fn requests_of_dockershim() {
        let inspect = DockerCall::read(&format!("GET /v1.40/containers/{ID}/json")).unwrap();
        let expected =
            DockerCall { method: "GET /containers/{id}/json".to_owned(), container: ID.to_owned() };
        assert_eq!(inspect, expected);
        let seen = [
            "GET /v1.40/containers/json?all=1&filters=%7B",
            "POST /v1.40/containers/create",
            "POST /containers/web/start HTTP/1.1",
            "GET /v1.40/images/json",
            "GET /v1.40/images/registry.k8s.io/pause:3.2/json",
            "DELETE /images/a/b",
            "POST /exec/abc/start",
            "GET /_ping",
            "GET /v1.40/system/df",
            "GET /../../etc",
            "GET /",
        ];
        let expected = [
            "GET /containers/json",
            "POST /containers/create",
            "POST /containers/{id}/start",
            "GET /images/json",
            "GET /images/{name}/json",
            "DELETE /images/{name}",
            "POST /exec/{id}/start",
            "GET /_ping",
            "GET /system/df",
            "GET /{other}/{other}/etc",
            "GET /",
        ];
        assert_eq!(seen.map(method), expected);
        assert_eq!(DockerCall::read("POST /containers/web/start").unwrap().container, "", "not by its id");
        for none in ["", "GET", "get /x", "GET x", " /x"] {
            assert_eq!(DockerCall::read(none), None, "{none:?}");
        }
    }

    /// What waits for something else is no fault; what inspects is.
    #[test]
    fn some_last() {
        assert!(docker_call_lasts("GET /events") && docker_call_lasts("POST /containers/{id}/wait"));
        assert!(
            !docker_call_lasts("GET /containers/{id}/json") && !docker_call_lasts("GET /containers/json")
        );
        assert!(LASTING.iter().all(|call| method(call) == *call || call.contains('{')));
    }
}
