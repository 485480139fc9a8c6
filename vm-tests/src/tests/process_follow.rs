//! Birth, change of program and end of a watched process's children are recorded with role, command line and wait
//! status; no environment but that of a CNI plugin leaves the kernel; the stream gets only what is on the allow-list; the
//! map of watched processes is as small as before.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use plegtrace::decode::{Event, Process, Step, decode};
use plegtrace::input::{self, Fact, admit, next_frame};
use plegtrace::kernel::{AttachMode, Kernel};
use plegtrace_common::key::Watched;
use plegtrace_common::rec::{PROCESS_EXECED, PROCESS_FOR_CONTAINER, PROCESS_INIT};
use plegtrace_common::role::Role;

use crate::machine;

/// Longer than what is kept of an environment.
const PADDING: usize = 6000;
/// In the environments of a CNI plugin, and of another program.
const OF_PLUGIN: &str = "0e5d1c9a-of-a-plugin";
const OF_ANOTHER: &str = "6b1f77c2-of-another";

/// Plays a containerd that starts a CNI plugin, which fails, a runc, which is killed, and a runc whose init becomes a
/// workload.
///
/// # Errors
/// When a step is missing, doubled or wrong.
pub fn run() -> Result<String> {
    let runc = copy_as_runc()?;
    let mut kernel = Kernel::load(&machine::load_options(AttachMode::PerfAddress)?)?;
    kernel.watch(id(), Watched::found(Role::Containerd))?;
    let mut plugin = Command::new("/bin/sh");
    plugin.args(["-c", "exit 7"]).env("PADDING", "x".repeat(PADDING)).env("CNI_COMMAND", "ADD");
    let mut plugin =
        plugin.env("ZZ", OF_PLUGIN).env("CNI_CONTAINERID", "c1").spawn().context("cannot start sh")?;
    plugin.wait()?;
    let mut another = Command::new("/bin/sh");
    another.args(["-c", "exit 0"]).env("CNI_CONTAINERID", OF_ANOTHER).env("XCNI_COMMAND", "ADD");
    another.env("PADDING", format!("{}CNI_COMMAND=ADD", "x".repeat(PADDING))).status()?;
    let mut killed = Command::new(&runc);
    let mut killed = killed.args(["-c", "read never", "kill", "c2"]).stdin(Stdio::piped()).spawn()?;
    killed.kill()?;
    killed.wait()?;
    // A shell that is told `init` runs the script of that name: here it forks the workload, as runc init does.
    let work = runc.parent().context("no folder")?;
    fs::write(work.join("init"), "(exec /bin/true) & wait\n")?;
    let script = format!("/bin/false; (exec {} init) & wait; exit 3", runc.display());
    let mut create = Command::new(&runc);
    let mut create = create.current_dir(work).args(["-c", &script, "create", "c3"]).spawn()?;
    create.wait()?;
    fs::remove_file(work.join("init"))?;
    fs::remove_file(&runc)?;

    let left: Vec<u32> = kernel.processes()?.entries.iter().map(|(pid, _)| *pid).collect();
    ensure!(left == [id()], "processes {left:?} are still watched, not only {}", id());
    let seen = Seen::take(&mut kernel)?;
    ensure!(seen.contains(OF_PLUGIN), "the environment of the plugin did not arrive");
    ensure!(!seen.contains(OF_ANOTHER), "an environment left the kernel that is not of a CNI plugin");
    check_plugin(&seen, &plugin)?;
    check_killed(&seen, &killed)?;
    check_workload(&seen, &create)?;
    Ok("a CNI plugin (exit 7), runc kill (signal 9), runc create whose init became the workload".to_owned())
}

/// The kernel side knows runc by the name of its file. Not in `/run`, where some guests allow no programs. A shell,
/// because it takes any words behind its script.
pub(crate) fn copy_as_runc() -> Result<PathBuf> {
    let path = Path::new("/var/tmp").join("runc");
    fs::copy("/bin/sh", &path).context("cannot copy sh")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// What the kernel side handed over.
pub(crate) struct Seen {
    pub(crate) steps: Vec<Process>,
    commands: Vec<(u32, input::Command)>,
    /// What came out of the ring buffer.
    raw: Vec<Bytes>,
}

impl Seen {
    pub(crate) fn take(kernel: &mut Kernel) -> Result<Self> {
        let mut frames = Vec::new();
        kernel.drain(&mut |bytes: Bytes| frames.push(bytes));
        let mut seen = Self { steps: Vec::new(), commands: Vec::new(), raw: frames.clone() };
        for mut bytes in frames {
            let (frame, fact) = admit(next_frame(&mut bytes)?)?;
            for frame in [Some(frame), fact].into_iter().flatten() {
                seen.add(decode(&frame)?)?;
            }
        }
        Ok(seen)
    }

    fn add(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Process(process) => self.steps.push(process),
            Event::Fact { fact, .. } => match *fact {
                Fact::Command(command) => {
                    ensure!(!command.unread, "the command line of {} was not read", command.pid);
                    self.commands.push((command.pid, command.command));
                }
                other => bail!("an unexpected fact {other:?}"),
            },
            Event::Call(call) => bail!("an unexpected call {call:?}"),
            Event::Park(park) => bail!("an unexpected park {park:?}"),
            Event::Message(message) => bail!("an unexpected message {message:?}"),
            Event::Request(request) => bail!("an unexpected request {request:?}"),
            Event::Docker(request) => bail!("an unexpected request to Docker {request:?}"),
            Event::BusCall(call) => bail!("an unexpected call over D-Bus {call:?}"),
        }
        Ok(())
    }

    /// Is this text anywhere in what came out of the ring buffer?
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.raw.iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    }

    fn steps_of(&self, pid: u32) -> Vec<(Step, Role, Role)> {
        let mine = self.steps.iter().filter(|step| step.meta.tgid == pid);
        mine.map(|step| (step.step, step.role, step.old_role)).collect()
    }

    fn expect(&self, child: &Child, steps: &[(Step, Role, Role)], command: &input::Command) -> Result<()> {
        let pid = child.id();
        ensure!(
            self.steps_of(pid) == steps,
            "of process {pid} we saw {:?}, not {steps:?}",
            self.steps_of(pid)
        );
        let told: Vec<_> = self.commands.iter().filter(|(of, _)| *of == pid).map(|(_, told)| told).collect();
        ensure!(told == [command], "process {pid} was told {told:?}, not {command:?}");
        let born = self.steps.iter().find(|step| step.meta.tgid == pid).context("no birth")?;
        ensure!(born.parent == Some(id()), "its parent is {:?}, not {}", born.parent, id());
        Ok(())
    }
}

/// What every child of ours begins with.
const BORN: (Step, Role, Role) = (Step::Fork, Role::Helper, Role::Containerd);

fn check_plugin(seen: &Seen, child: &Child) -> Result<()> {
    let plugin = "sh".to_owned();
    let (action, container) = (Some("ADD".to_owned()), Some("c1".to_owned()));
    let exec = (Step::Exec, Role::Helper, Role::Helper);
    let end = (Step::Exit(7 << 8), Role::Helper, Role::Helper);
    seen.expect(child, &[BORN, exec, end], &input::Command::Cni { plugin, action, container })
}

fn runc(sub: &str, container: &str) -> input::Command {
    input::Command::Runc { sub: sub.to_owned(), container: Some(container.to_owned()), bundle: None }
}

const RUNC: (Step, Role, Role) = (Step::Exec, Role::Runc, Role::Helper);

fn check_killed(seen: &Seen, child: &Child) -> Result<()> {
    let end = (Step::Exit(9), Role::Runc, Role::Runc);
    seen.expect(child, &[BORN, RUNC, end], &runc("kill", "c2"))
}

/// runc create runs a hook, and an init that makes the workload.
fn check_workload(seen: &Seen, create: &Child) -> Result<()> {
    let end = (Step::Exit(3 << 8), Role::Runc, Role::Runc);
    seen.expect(create, &[BORN, RUNC, end], &runc("create", "c3"))?;
    let children = |of: u32| -> Vec<u32> {
        let forks = seen.steps.iter().filter(|step| step.step == Step::Fork && step.creator == Some(of));
        forks.map(|step| step.meta.tgid).collect()
    };
    let [hook, init] = children(create.id())[..] else { bail!("not two children: {:?}", seen.steps) };
    let born = (Step::Fork, Role::Runc, Role::Runc);
    let helper = (Step::Exec, Role::Helper, Role::Runc);
    let want = [born, helper, (Step::Exit(1 << 8), Role::Helper, Role::Helper)];
    ensure!(seen.steps_of(hook) == want, "the hook did {:?}", seen.steps_of(hook));
    let want = [born, (Step::Exec, Role::Runc, Role::Runc), (Step::Exit(0), Role::Runc, Role::Runc)];
    ensure!(seen.steps_of(init) == want, "runc init did {:?}", seen.steps_of(init));
    let flags = seen.steps.iter().filter(|step| step.meta.tgid == init).map(|step| step.flags).max();
    // What runc starts works for a container.
    let wanted = PROCESS_EXECED | PROCESS_INIT | PROCESS_FOR_CONTAINER;
    ensure!(flags == Some(wanted), "flags of runc init: {flags:?}");
    let [workload] = children(init)[..] else { bail!("runc init has not one child: {:?}", seen.steps) };
    let end = (Step::Exit(0), Role::Workload, Role::Workload);
    let want = [born, (Step::Exec, Role::Workload, Role::Runc), end];
    ensure!(seen.steps_of(workload) == want, "the workload did {:?}", seen.steps_of(workload));
    let told: Vec<&input::Command> = seen
        .commands
        .iter()
        .filter(|(pid, _)| [hook, init, workload].contains(pid))
        .map(|(_, c)| c)
        .collect();
    let hook = input::Command::Other { program: "false".to_owned() };
    let init = input::Command::Runc { sub: "init".to_owned(), container: None, bundle: None };
    ensure!(told == [&hook, &init], "they were told {told:?}");
    Ok(())
}
