//! The real Prometheus and its promtool, from the Debian package: what they say of the files in `tracer/packaging`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plegtrace_lab::packages::{self, Suite};
use plegtrace_lab::{http, process};
use serde_json::Value;

use crate::program::end_with_parent;

/// Its start, and a single answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A file of `tracer/packaging`.
#[must_use]
pub fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/packaging").join(name)
}

/// Runs promtool with something to read; what it prints.
///
/// # Errors
///
/// There is none, or it complains.
pub fn promtool(arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(program("promtool")?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start promtool")?;
    let mut stdin = child.stdin.take().context("stdin is a pipe")?;
    // One that does not read has nothing to read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let out = child.wait_with_output().context("cannot wait for promtool")?;
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    ensure!(out.status.success(), "promtool {}: {said}", arguments.join(" "));
    Ok(said)
}

fn program(name: &str) -> Result<PathBuf> {
    packages::unpack(Suite::Bookworm, &["prometheus"])?.path(&format!("usr/bin/{name}"))
}

/// A running Prometheus; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    /// Starts it: it scrapes these jobs and judges these rules, both each second.
    ///
    /// # Errors
    ///
    /// There is none, or it does not begin to serve.
    pub fn start(jobs: &[(&str, SocketAddr)], rules: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("rules.yml"), rules)?;
        let scrape = |(job, address): &(&str, SocketAddr)| {
            format!("  - {{job_name: {job}, static_configs: [{{targets: ['{address}']}}]}}\n")
        };
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [rules.yml]\nscrape_configs:\n{}",
            jobs.iter().map(scrape).collect::<String>()
        );
        let config_file = dir.path().join("prometheus.yml");
        std::fs::write(&config_file, config)?;
        let address = SocketAddr::from(([127, 0, 0, 1], http::free_port()?));
        let mut command = Command::new(program("prometheus")?);
        command.arg(format!("--config.file={}", config_file.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=warn");
        end_with_parent(&mut command);
        let child = command.stdin(Stdio::null()).spawn().context("cannot start Prometheus")?;
        let prometheus = Self { child, address, _dir: dir };
        let ready = || Ok(http::get(address, "/-/ready", LIMIT).ok());
        process::wait_for("Prometheus", LIMIT, ready).map(|_| prometheus)
    }

    /// What an expression says now.
    ///
    /// # Errors
    ///
    /// It is none, or there is no answer.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let answer = self.get(&format!("/api/v1/query?query={}", escaped(expression)));
        let data = answer.with_context(|| format!("no answer to {expression}"))?;
        Ok(data["result"].as_array().context("no list")?.clone())
    }

    /// The number that an expression says, when it says one.
    ///
    /// # Errors
    ///
    /// As for [`Self::query`].
    pub fn number(&self, expression: &str) -> Result<Option<f64>> {
        let result = self.query(expression)?;
        ensure!(result.len() <= 1, "{expression} says several things: {result:?}");
        let number = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse().ok());
        Ok(result.first().and_then(number))
    }

    /// The labels of the alerts that fire.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn firing(&self) -> Result<Vec<Value>> {
        let data = self.get("/api/v1/alerts")?;
        let alerts = data["alerts"].as_array().context("no alerts")?;
        let fires = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(fires.map(|alert| alert["labels"].clone()).collect())
    }

    /// The expressions of its rules.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn rules(&self) -> Result<Vec<String>> {
        let data = self.get("/api/v1/rules")?;
        let groups = data["groups"].as_array().context("no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        Ok(rules.filter_map(|rule| Some(rule["query"].as_str()?.to_owned())).collect())
    }

    fn get(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&http::get(self.address, path, LIMIT)?)?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(answer["data"].clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A text as a part of a URL.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The expressions of the packaged dashboard, its variables replaced by what Grafana would put there.
///
/// # Errors
///
/// It is no dashboard.
pub fn dashboard_expressions() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(packaged("plegtrace-dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let filled = |text: &str| text.replace("$instance", ".*").replace("$__rate_interval", "30s");
    Ok(targets.filter_map(|target| target["expr"].as_str()).map(filled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing of an expression is lost on its way.
    #[test]
    fn expressions_travel() {
        assert_eq!(escaped("a{b=\"+\"} > 1"), "a%7Bb%3D%22%2B%22%7D%20%3E%201");
    }
}
