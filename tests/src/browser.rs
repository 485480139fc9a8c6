//! [`Browser`]: a headless Chromium, spoken to in the DevTools protocol over a pair of pipes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use plegtrace_lab::{host, process};
use serde_json::{Value, json};

use crate::program::end_with_parent;

/// The smallest Debian package with a Chromium in it.
const PACKAGE: &str = "chromium-headless-shell";
/// The program itself; the one in `/usr/bin` is a script that would outlive a kill.
const PROGRAM: &str = "/usr/lib/chromium/chromium-headless-shell";
/// Tests run as root, which Chromium's sandbox refuses; nothing outside of this machine is ever asked for.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "about:blank",
];
/// A single answer, and the start.
const LIMIT: Duration = Duration::from_secs(60);
/// How large the window is, pixels.
const WINDOW: (u32, u32) = (1400, 900);

/// A browser with one page; ended when dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The page that is spoken to; empty for the browser itself.
    session: String,
    calls: u64,
    /// The page has loaded.
    loaded: bool,
    /// What the next dialog is answered with.
    answer: Option<String>,
    /// Errors of scripts that nothing caught.
    errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one with an empty profile, and installs it first where it is missing. `None`, with a declared skip, on
    /// distributions without such a package.
    ///
    /// # Errors
    ///
    /// It cannot be installed or started.
    pub fn start() -> Result<Option<Self>> {
        if let Err(error) = host::ensure(&[PACKAGE]) {
            let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
            ensure!(!about.lines().any(|line| line == "ID=debian"), error);
            host::declare_skip("pages in a browser", &error);
            return Ok(None);
        }
        let profile = tempfile::tempdir()?;
        // The protocol wants its pipes at 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, PROGRAM]);
        command.args(ARGUMENTS).arg(format!("--user-data-dir={}", profile.path().display()));
        end_with_parent(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take().context("stdin is a pipe")?;
        let from = messages(child.stdout.take().context("stdout is a pipe")?);
        let (session, calls, loaded, answer, errors) = <_>::default();
        let mut browser = Self { child, to, from, session, calls, loaded, answer, errors, _profile: profile };
        browser.attach().context("Chromium does not answer")?;
        Ok(Some(browser))
    }

    fn attach(&mut self) -> Result<()> {
        let targets = process::wait_for("a page", LIMIT, || {
            let targets = self.call("Target.getTargets", &json!({}))?;
            let all = targets["targetInfos"].as_array().context("no targets")?;
            Ok(all.iter().find(|target| target["type"] == "page").map(|page| page["targetId"].clone()))
        })?;
        let attached =
            self.call("Target.attachToTarget", &json!({ "targetId": targets, "flatten": true }))?;
        self.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        let (width, height) = WINDOW;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Opens a page and waits until it has loaded.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or does not load.
    pub fn open(&mut self, url: &str) -> Result<()> {
        self.loaded = false;
        let opened = self.call("Page.navigate", &json!({ "url": url }))?;
        ensure!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        while !self.loaded {
            self.receive().with_context(|| format!("{url} does not load"))?;
        }
        Ok(())
    }

    /// What an expression of JavaScript gives; a promise is waited for.
    ///
    /// # Errors
    ///
    /// It throws, or there is no answer.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let how = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &how)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression gives true.
    ///
    /// # Errors
    ///
    /// It does not, or throws.
    pub fn wait_until(&mut self, expression: &str) -> Result<()> {
        process::wait_for(expression, LIMIT, || Ok((self.evaluate(expression)? == true).then_some(())))
    }

    /// Clicks with the mouse into the middle of the element that an expression gives. A dialog that opens is answered with
    /// `answer`, or cancelled.
    ///
    /// # Errors
    ///
    /// There is no such element, or it is not on the screen.
    pub fn click(&mut self, element: &str, answer: Option<&str>) -> Result<()> {
        self.answer = answer.map(str::to_owned);
        let place = self.evaluate(&format!(
            "(it => {{ const r = it.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }})({element})"
        ))?;
        let [x, y] = [&place[0], &place[1]].map(|at| at.as_f64().unwrap_or(-1.0));
        ensure!(x >= 0.0 && y >= 0.0, "{element} is at {place}");
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event)?;
        }
        ensure!(self.answer.take().is_none(), "{element} opened no dialog");
        Ok(())
    }

    /// Keeps a picture of the window as a PNG file.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be written.
    pub fn screenshot(&mut self, file: &Path) -> Result<()> {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().context("no picture")?)?;
        fs::create_dir_all(file.parent().context("no folder")?)?;
        fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Errors of scripts so far.
    #[must_use]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            let message = self.receive().with_context(|| format!("no answer to {method}"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        // Messages end with a zero byte.
        self.to.write_all(format!("{message}\0").as_bytes()).context("Chromium has ended")?;
        Ok(self.calls)
    }

    fn receive(&mut self) -> Result<Value> {
        let message = self.from.recv_timeout(LIMIT)?;
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Page.javascriptDialogOpening") => {
                let text = self.answer.take();
                let answer = json!({ "accept": text.is_some(), "promptText": text.unwrap_or_default() });
                self.send("Page.handleJavaScriptDialog", &answer)?;
            }
            Some("Runtime.exceptionThrown") => self.errors.push(message["params"].to_string()),
            _ => {}
        }
        Ok(message)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        // Asked to, it ends with all its processes.
        if self.send("Browser.close", &json!({})).is_err() || process::wait(&mut self.child, LIMIT).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What comes from Chromium, read at once: a full pipe would hold it up.
fn messages(pipe: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for message in BufReader::new(pipe).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&message) else { break };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}
