//! What a runc is doing.

use super::{cut, human::duration};
use crate::correlate::Phase;

/// Longest name of a function, characters.
const NAME: usize = 60;

/// `systemd.startUnit (waits for systemd to start a unit), 30.9 s`: the innermost phase, where it stands; `None` when
/// none is seen.
#[must_use]
pub fn phase(phases: &[Phase]) -> Option<String> {
    let phase = phases.last()?;
    let meaning = meaning(&phase.operation).map_or_else(String::new, |meaning| format!(" ({meaning})"));
    Some(format!("{}{meaning}, {}", short(&phase.operation), duration(phase.age_ns)))
}

/// The same without its meaning, for tables: `systemd.startUnit 30.9 s`, `parseSync 2.0 s`.
#[must_use]
pub fn phase_briefly(phases: &[Phase]) -> Option<String> {
    let phase = phases.last()?;
    let name = short(&phase.operation);
    let name = name.strip_prefix("libcontainer.").unwrap_or(&name);
    Some(format!("{name} {}", duration(phase.age_ns)))
}

/// What it does there: `waits for systemd to start a unit`; the name of the function where that is not known.
#[must_use]
pub fn phase_meaning(phases: &[Phase]) -> Option<String> {
    let phase = phases.last()?;
    Some(meaning(&phase.operation).map_or_else(|| format!("in {}", short(&phase.operation)), str::to_owned))
}

/// All of them, outermost first: `libcontainer.(*Container).start > libcontainer.parseSync > configs.Hooks.Run`.
#[must_use]
pub fn phase_path(phases: &[Phase]) -> String {
    phases.iter().map(|phase| short(&phase.operation)).collect::<Vec<_>>().join(" > ")
}

fn short(operation: &str) -> String {
    cut(operation.rsplit('/').next().unwrap_or(operation), NAME)
}

/// What a function of runc does, for who does not know its source; see the rows of the catalogue.
fn meaning(operation: &str) -> Option<&'static str> {
    let (owner, name) = operation.rsplit_once('.')?;
    let of = |end: &str| owner.ends_with(end);
    Some(match name {
        "RunHooks" | "Run" => "waits for a hook",
        "startUnit" => "waits for systemd to start a unit",
        "stopUnit" => "waits for systemd to stop a unit",
        "Call" | "CallWithContext" => "waits for a D-Bus reply",
        "parseSync" => "waits for its runc init",
        "exec" => "waits for the init of the container",
        "start" => "creates the container's process",
        "Init" if of("SetnsInit)") => "joins the container",
        "Init" => "sets the container up from inside",
        "PatchAndLoad" => "loads the seccomp filter",
        "destroy" => "removes the container",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::MonoNs;

    fn open_phase(operation: &str) -> Phase {
        Phase { operation: operation.to_owned(), start: MonoNs(0), age_ns: 30_900_000_000 }
    }

    /// The innermost is told, with what it means; what is not known has its name at least.
    #[test]
    fn innermost() {
        let phases = [open_phase("libcontainer.(*Container).start"), open_phase("cgroups/systemd.startUnit")];
        let expected = "systemd.startUnit (waits for systemd to start a unit), 30.9 s";
        assert_eq!(phase(&phases).as_deref(), Some(expected));
        assert_eq!(phase_path(&phases), "libcontainer.(*Container).start > systemd.startUnit");
        assert_eq!(phase(&[open_phase("a.b")]).as_deref(), Some("a.b, 30.9 s"));
        assert_eq!(phase_briefly(&phases).as_deref(), Some("systemd.startUnit 30.9 s"));
        assert_eq!(phase_briefly(&phases[..1]).as_deref(), Some("(*Container).start 30.9 s"));
        assert_eq!(phase(&[]), None);
    }

    /// Every function of the catalogue has a meaning.
    #[test]
    fn all_functions() {
        use crate::{
            input::Component,
            plan::{CATALOGUE, Select},
        };
        for row in CATALOGUE.iter().filter(|row| row.components == [Component::Runc]) {
            let Select::Functions(functions) = row.select else { panic!("{}", row.id) };
            for (owner, names) in functions {
                for name in *names {
                    assert!(meaning(&format!("{owner}.{name}")).is_some(), "{owner}.{name}");
                }
            }
        }
    }
}
