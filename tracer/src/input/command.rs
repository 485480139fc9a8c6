//! Command lines → [`Command`]: the allow-list of what may be known of them.
//!
//! Command lines and environments are text of the node: hostile, and full of secrets. Only ids, paths of bundles, names
//! of sub-commands and of programs pass; everything else stays outside of the stream.

use super::Command;

/// Longest id or name that is taken; container ids have 64 characters.
const MAX_NAME: usize = 256;
/// Longest path that is taken (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// Global and sub-command options of runc and crun that take a value in the next word
/// (main.go, create.go, exec.go, update.go, … of runc 1.0 to 1.5).
const RUNC_VALUES: &[&str] = &[
    "log",
    "log-format",
    "root",
    "criu",
    "rootless",
    "cgroup-manager",
    "bundle",
    "b",
    "console-socket",
    "pid-file",
    "preserve-fds",
    "process",
    "p",
    "cwd",
    "env",
    "e",
    "user",
    "u",
    "additional-gids",
    "g",
    "process-label",
    "apparmor",
    "cap",
    "c",
    "cgroup",
    "resources",
    "r",
    "interval",
    "format",
    "f",
    "image-path",
    "work-path",
    "config",
];
/// Options of a shim that take a value (pkg/shim of containerd 1.4 to 2.1); Go's flag package wants one dash.
const SHIM_VALUES: &[&str] = &["namespace", "id", "address", "publish-binary", "bundle", "socket"];

/// Runtimes other than runc and crun that take the same commands.
const LIKE_RUNC: [&str; 3] = ["youki", "sysbox-runc", "runsc"];
/// Their commands for containers; what else they run is their own affair, such as the sandbox of runsc.
const SUBS: [&str; 15] = [
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "kill",
    "list",
    "pause",
    "ps",
    "restore",
    "resume",
    "run",
    "start",
    "state",
    "update",
];

impl Command {
    /// Is this the name of a runtime that is called as runc is, and is neither runc nor crun?
    #[must_use]
    pub fn is_like_runc(program: &str) -> bool {
        LIKE_RUNC.contains(&program)
    }

    /// What a process with this program name was told to do. `arguments` are those behind the program's own name,
    /// `environment` looks a variable up; it is asked for `CNI_COMMAND` and `CNI_CONTAINERID` only.
    #[must_use]
    pub fn parse(program: &str, arguments: &[String], environment: impl Fn(&str) -> Option<String>) -> Self {
        let program = program.rsplit('/').next().unwrap_or_default();
        if matches!(program, "runc" | "crun") || arguments.first().is_some_and(|word| word == "init") {
            return runc(arguments);
        }
        if program.starts_with("containerd-shim") {
            return shim(arguments);
        }
        if let Some(command) = Self::is_like_runc(program).then(|| oci(program, arguments)).flatten() {
            return command;
        }
        let program = cut(program);
        match environment("CNI_COMMAND") {
            Some(action) => Self::Cni {
                plugin: program,
                action: word(&action),
                container: environment("CNI_CONTAINERID").and_then(|id| word(&id)),
            },
            None => Self::Other { program },
        }
    }

    /// Are its texts no longer than those that [`Self::parse`] takes? They are copied to whoever is started by it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let (names, path) = match self {
            Self::Runc { sub, container, bundle } => ([Some(sub), container.as_ref(), None], bundle.as_ref()),
            Self::Oci { program, sub, container, bundle } => {
                ([Some(program), Some(sub), container.as_ref()], bundle.as_ref())
            }
            Self::Shim { action, namespace, id } => {
                ([action.as_ref(), namespace.as_ref(), id.as_ref()], None)
            }
            Self::Cni { plugin, action, container } => {
                ([Some(plugin), action.as_ref(), container.as_ref()], None)
            }
            Self::Other { program } => ([Some(program), None, None], None),
        };
        // A name that was cut has so many characters, not bytes.
        names.into_iter().flatten().all(|name| name.len() <= 4 * MAX_NAME)
            && path.is_none_or(|path| path.len() <= MAX_PATH)
    }

    /// Id of the container it works for.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::Runc { container: id, .. }
            | Self::Oci { container: id, .. }
            | Self::Shim { id, .. }
            | Self::Cni { container: id, .. } => id.as_deref(),
            Self::Other { .. } => None,
        }
    }

    /// "create", "start", …, of runc and of whatever is called as it is.
    #[must_use]
    pub fn sub(&self) -> Option<&str> {
        match self {
            Self::Runc { sub, .. } | Self::Oci { sub, .. } => Some(sub),
            Self::Shim { .. } | Self::Cni { .. } | Self::Other { .. } => None,
        }
    }

    /// Directory of the bundle that it was given.
    #[must_use]
    pub fn bundle(&self) -> Option<&str> {
        match self {
            Self::Runc { bundle, .. } | Self::Oci { bundle, .. } => bundle.as_deref(),
            Self::Shim { .. } | Self::Cni { .. } | Self::Other { .. } => None,
        }
    }
}

fn runc(arguments: &[String]) -> Command {
    let words = Words::split(arguments, RUNC_VALUES);
    Command::Runc {
        sub: words.plain.first().copied().and_then(word).unwrap_or_default(),
        container: words.plain.get(1).copied().and_then(word),
        bundle: bundle(&words),
    }
}

/// Each has options of its own before the command, which may have values; `None` when there is no command.
fn oci(program: &str, arguments: &[String]) -> Option<Command> {
    let words = Words::split(arguments, RUNC_VALUES);
    let at = words.plain.iter().position(|word| SUBS.contains(word))?;
    Some(Command::Oci {
        program: program.to_owned(),
        sub: words.plain[at].to_owned(),
        container: words.plain.get(at + 1).copied().and_then(word),
        bundle: bundle(&words),
    })
}

fn bundle(words: &Words<'_>) -> Option<String> {
    // containerd keeps the log of runc in the bundle.
    let log = || words.value(&["log"])?.strip_suffix("/log.json");
    let bundle = words.value(&["bundle", "b"]).or_else(log);
    bundle.filter(|path| path.starts_with('/') && path.len() <= MAX_PATH).map(str::to_owned)
}

fn shim(arguments: &[String]) -> Command {
    let words = Words::split(arguments, SHIM_VALUES);
    Command::Shim {
        action: words.plain.first().copied().and_then(word),
        namespace: words.value(&["namespace"]).and_then(word),
        id: words.value(&["id"]).and_then(word),
    }
}

/// An id or a name as runc, CNI and Kubernetes allow them; anything else is not passed on.
fn word(text: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    let good = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed);
    good.then(|| text.to_owned())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_NAME).collect()
}

/// Arguments as options with values and plain words.
struct Words<'a> {
    values: Vec<(&'a str, &'a str)>,
    plain: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn split(arguments: &'a [String], with_value: &[&str]) -> Self {
        let mut words = Self { values: Vec::new(), plain: Vec::new() };
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            let option = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            match option.map(|option| option.split_once('=').ok_or(option)) {
                // A lone dash is a word: "read from stdin".
                None | Some(Err("")) => words.plain.push(argument),
                Some(Ok(pair)) => words.values.push(pair),
                Some(Err(option)) if with_value.contains(&option) => {
                    words.values.extend(rest.next().map(|value| (option, value)));
                }
                Some(Err(_)) => {}
            }
        }
        words
    }

    fn value(&self, names: &[&str]) -> Option<&'a str> {
        self.values.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Command {
        let mut words = line.split(' ').map(str::to_owned);
        let program = words.next().unwrap();
        Command::parse(&program, &words.collect::<Vec<_>>(), |_| None)
    }

    fn runc(sub: &str, container: Option<&str>, bundle: Option<&str>) -> Command {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Command::Runc { sub: sub.into(), container: own(container), bundle: own(bundle) }
    }

    /// Other runtimes are known by their names and their commands; what they run themselves is something else.
    #[test]
    fn runtimes_like_runc() {
        let oci = |program: &str, sub: &str, container: Option<&str>, bundle: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            let (program, sub) = (program.to_owned(), sub.to_owned());
            Command::Oci { program, sub, container: own(container), bundle: own(bundle) }
        };
        let shim = "--root /r --log /b/c1/log.json --log-format json create --bundle /b/c1 --pid-file /p c1";
        for program in ["youki", "sysbox-runc", "runsc"] {
            let line = format!("/usr/bin/{program} {shim}");
            assert_eq!(parsed(&line), oci(program, "create", Some("c1"), Some("/b/c1")));
        }
        let own_option = parsed("runsc --platform kvm -debug delete --force c1");
        assert_eq!(own_option, oci("runsc", "delete", Some("c1"), None));
        assert_eq!(own_option.sub(), Some("delete"));
        for other in ["runsc --root=/r boot --bundle=/b c1", "youki", "youki --version", "other create c1"] {
            assert!(matches!(parsed(other), Command::Other { .. }), "{other}");
        }
    }

    /// What is longer than what passes was told by somebody else.
    #[test]
    fn long_texts_are_not_ours() {
        let long = |bytes: usize| "x".repeat(bytes);
        assert!(parsed(&format!("/{} a", long(9000))).is_short());
        assert!(!Command::Other { program: long(4 * MAX_NAME + 1) }.is_short());
        assert!(runc("create", Some("c1"), Some(&long(MAX_PATH))).is_short());
        assert!(!runc("create", Some("c1"), Some(&long(MAX_PATH + 1))).is_short());
        assert!(!runc("create", Some(&long(9000)), None).is_short());
    }

    /// As containerd's shims call it: the id is behind the options, the bundle in one of them.
    #[test]
    fn runc_as_shims_call_it() {
        let global =
            "/usr/sbin/runc --root /run/containerd/runc/k8s.io --log /b/c1/log.json --log-format json";
        let exec = parsed(&format!("{global} exec --process /tmp/p --detach --pid-file /b/c1/e.pid c1"));
        assert_eq!(exec, runc("exec", Some("c1"), Some("/b/c1")));
        let create = parsed(&format!("{global} create --bundle /b/c2 --pid-file /b/c2/init.pid c2"));
        assert_eq!(create, runc("create", Some("c2"), Some("/b/c2")));
        assert_eq!(parsed(&format!("{global} kill --all c1 9")), runc("kill", Some("c1"), Some("/b/c1")));
        let update = parsed("runc --systemd-cgroup update --resources - c3");
        assert_eq!(update, runc("update", Some("c3"), None));
        assert_eq!(parsed("runc init"), runc("init", None, None));
        assert_eq!(parsed("/proc/self/exe init"), runc("init", None, None));
    }

    /// Nothing that is not an id passes for one.
    #[test]
    fn only_names_pass() {
        assert_eq!(parsed("runc delete ../../etc"), runc("delete", None, None));
        assert_eq!(parsed("runc exec -e PASSWORD=x c1 sh"), runc("exec", Some("c1"), None));
        assert_eq!(parsed(&format!("runc state {}", "a".repeat(300))), runc("state", None, None));
        assert_eq!(parsed("runc --root"), runc("", None, None));
    }

    /// The server has no action; `start` and `delete` are short-lived helpers.
    #[test]
    fn shims() {
        let want = |action: Option<&str>| Command::Shim {
            action: action.map(str::to_owned),
            namespace: Some("k8s.io".into()),
            id: Some("s1".into()),
        };
        let server = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id s1 -address /run/c.sock";
        assert_eq!(parsed(server), want(None));
        assert_eq!(parsed(&format!("{server} -debug delete")), want(Some("delete")));
    }

    /// A plugin is known by its environment, of which nothing else is looked at.
    #[test]
    fn cni_plugins() {
        let environment = |name: &str| {
            let pairs = [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c9")];
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let plugin = Command::parse("/opt/cni/bin/bridge", &[], environment);
        assert_eq!(plugin.container(), Some("c9"));
        let want = Command::Cni {
            plugin: "bridge".into(),
            action: Some("ADD".into()),
            container: Some("c9".into()),
        };
        assert_eq!(plugin, want);
        assert_eq!(parsed("/bin/hook --token=secret"), Command::Other { program: "hook".into() });
    }
}
