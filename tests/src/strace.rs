//! The ttrpc requests that a process writes, by the word of strace(1): it shares no code with us, and sees every system
//! call of the process by ptrace(2).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::{host, process};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);

/// A strace that is attached; detaches when it is dropped.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    dir: TempDir,
}

impl Strace {
    /// Attaches to every thread of a process, and waits until it has.
    ///
    /// # Errors
    ///
    /// There is no strace, or it cannot attach.
    pub fn attach(pid: u32) -> Result<Strace> {
        host::ensure(&["strace"])?;
        let dir = tempfile::tempdir()?;
        let mut command = Command::new("strace");
        command.args(["-f", "-q", "-xx", "-s", "96", "-e", "signal=none"]);
        command.args(["-e", "trace=write,writev,sendto,sendmsg,sendmmsg", "-p", &pid.to_string()]);
        let child = command.arg("-o").arg(dir.path().join("calls")).stdin(Stdio::null()).spawn()?;
        let strace = Strace { child, dir };
        process::wait_for("an attached strace", LIMIT, || Ok(is_traced(pid).then_some(())))?;
        Ok(strace)
    }

    /// Detaches; how many requests were written, by service and method.
    ///
    /// # Errors
    ///
    /// strace does not end, or what it wrote cannot be read.
    pub fn finish(mut self) -> Result<BTreeMap<(String, String), u64>> {
        process::signal(self.child.id(), libc::SIGINT)?;
        process::wait(&mut self.child, LIMIT)?;
        let text = fs::read_to_string(self.dir.path().join("calls")).context("no output of strace")?;
        let mut requests = BTreeMap::new();
        for line in text.lines() {
            if let Some(name) = request(line)? {
                *requests.entry(name).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Are all threads under ptrace?
fn is_traced(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().all(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    })
}

/// The service and method of a line `PID write(FD, "\x00…", …`, when it is a request.
fn request(line: &str) -> Result<Option<(String, String)>> {
    let Some(text) = line.split('"').nth(1) else { return Ok(None) };
    let bytes: Vec<u8> =
        text.split("\\x").skip(1).map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    if bytes.get(8..12).is_none_or(|part| part[0] != 1 || part[2] != b'\n') || bytes[0] != 0 {
        return Ok(None);
    }
    let words: Vec<String> = bytes[12..]
        .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'.' && *byte != b'_')
        .filter(|word| !word.is_empty())
        .take(2)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let [service, method] = <[String; 2]>::try_from(words).ok().context("a request without names")?;
    ensure!(!line.contains("EAGAIN"), "a write that is made again: {line}");
    Ok(service.starts_with("containerd.").then_some((service, method)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(call: &str, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("4711 {call}(12, \"{hex}\"..., {}) = {}", bytes.len(), bytes.len())
    }

    /// Requests are counted; answers, and what is written elsewhere, are not.
    #[test]
    fn only_requests() {
        let state = b"\0\0\0\x90\0\0\x01W\x01\0\n\x17containerd.task.v2.Task\x12\x05State\x1aB\n@";
        let names = ("containerd.task.v2.Task".to_owned(), "State".to_owned());
        assert_eq!(request(&line("write", state)).unwrap(), Some(names));
        let mut answer = *state;
        answer[8] = 2;
        assert_eq!(request(&line("write", &answer)).unwrap(), None);
        assert_eq!(request(&line("write", b"level=info msg=something")).unwrap(), None);
        assert_eq!(request("4711 <... write resumed>) = 12").unwrap(), None);
    }
}
