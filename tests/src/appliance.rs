//! The appliance under test: `windrose run -c FILE` as a process in a namespace, and its admin socket.
//!
//! Called by tests and demo. Owns the process; dropping an [`Appliance`] kills it.

use crate::lab::Host;
use crate::process::{self, Child, Finished, eventually};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// EAL start, first snapshot and first checks on a busy two-core machine.
const READY: Duration = Duration::from_secs(30);
/// Ample for any sub-command that asks a running appliance.
const ASK: Duration = Duration::from_secs(20);

/// Path of a program of this workspace: beside the running test or demo, or where
/// `WINDROSE_BIN_DIR` says.
///
/// # Errors
/// When it has not been built.
pub fn program(name: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("WINDROSE_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let own = std::env::current_exe()?;
            let folder = own.parent().context("folder of this program")?;
            // Tests lie in target/PROFILE/deps, programs in target/PROFILE.
            if folder.ends_with("deps") {
                folder.join("..")
            } else {
                folder.to_owned()
            }
        }
    };
    let path = folder.join(name);
    let path = path.canonicalize().with_context(|| {
        format!(
            "{} is not built: run `cargo build --workspace --bins` with the profile of the tests (./run test does)",
            path.display()
        )
    })?;
    Ok(path)
}

/// Runs `windrose ARGS` to its end, in the namespace `host` if given.
///
/// # Errors
/// When it is not built or does not end within 20 s.
pub fn windrose(host: Option<&Host>, args: &[&str]) -> Result<Finished> {
    let program = program("windrose")?;
    let program = program.to_string_lossy();
    let mut argv = vec![&*program];
    argv.extend(args);
    process::run(host.map(Host::name), &argv, ASK)
}

/// A configuration of one worker and one port, which answers on 192.0.2.53 and 2001:db8:1::53, with
/// no zones yet.
pub fn one_port(device: &str, socket: &Path) -> String {
    format!(
        "[dataplane]\ncores = [0]\nshare_cores = true\nidle = \"sleep\"\nmemory = \"128MB\"\n\n\
         [[port]]\nname = \"port\"\ndevice = \"{device}\"\n\
         addresses = [\"192.0.2.53\", \"2001:db8:1::53\"]\n\n[admin]\nsocket = \"{}\"\n",
        socket.display()
    )
}

/// A running appliance.
#[derive(Debug)]
pub struct Appliance {
    host: Host,
    socket: PathBuf,
    child: Child,
}

impl Appliance {
    /// Starts `windrose run -c config` in `host` and waits until it answers on `socket`, which is
    /// what its configuration says.
    ///
    /// # Errors
    /// When it ends, or is not ready within 30 s; with its log.
    pub fn start(host: &Host, config: &Path, socket: &Path) -> Result<Self> {
        let program = program("windrose")?;
        let (program, config) = (program.to_string_lossy(), config.to_string_lossy());
        let child = host.spawn(&[&*program, "run", "-c", &*config])?;
        let mut appliance = Self {
            host: host.clone(),
            socket: socket.to_owned(),
            child,
        };
        eventually("windrose is ready", READY, || {
            if !appliance.child.is_running()? {
                bail!("windrose ended while starting");
            }
            Ok(appliance.socket.exists() && appliance.get("/healthz").is_ok())
        })
        .with_context(|| appliance.log())?;
        Ok(appliance)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        format!("log of windrose:\n{}", self.child.output())
    }

    /// Body of `GET path` on the admin socket.
    ///
    /// # Errors
    /// When it does not answer with 200 within 5 s.
    pub fn get(&self, path: &str) -> Result<String> {
        http_get(&self.socket, path)
    }

    /// `windrose status --json` as a value.
    ///
    /// # Errors
    /// When the command fails, or prints no JSON.
    pub fn status(&self) -> Result<Value> {
        let text = self.ask(&["status", "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("status is not JSON:\n{text}"))
    }

    /// Output of `windrose ARGS --socket ...`, which must succeed.
    ///
    /// # Errors
    /// When it fails.
    pub fn ask(&self, args: &[&str]) -> Result<String> {
        let socket = self.socket.to_string_lossy();
        let mut argv = args.to_vec();
        argv.extend(["--socket", &*socket]);
        windrose(Some(&self.host), &argv)?.success()
    }

    /// Packets received so far, summed over the workers.
    ///
    /// # Errors
    /// When the status cannot be had or has no such counter.
    pub fn received(&self) -> Result<u64> {
        let status = self.status()?;
        let workers = status["workers"].as_array().context("no workers in the status")?;
        let received = |worker: &Value| worker["received"].as_u64();
        workers
            .iter()
            .map(|worker| received(worker).context("no counter `received`"))
            .sum()
    }

    /// A metric from `/metrics`, summed over workers, by the value of its label `label`.
    ///
    /// # Errors
    /// When the metrics cannot be had, or have no such family.
    pub fn metric(&self, family: &str, label: &str) -> Result<BTreeMap<String, u64>> {
        let text = self.get("/metrics")?;
        let mut values = BTreeMap::new();
        // windrose_dns_replies_total{worker="0",outcome="answer"} 3
        for line in text.lines() {
            let Some((labels, value)) = line
                .strip_prefix(family)
                .and_then(|l| l.strip_prefix('{'))
                .and_then(|l| l.split_once("} "))
            else {
                continue;
            };
            let key = labels
                .split(',')
                .find_map(|pair| pair.strip_prefix(label)?.strip_prefix("=\""));
            let key = key
                .with_context(|| format!("no label {label} in: {line}"))?
                .trim_end_matches('"');
            *values.entry(key.to_owned()).or_insert(0) +=
                value.parse::<u64>().with_context(|| line.to_owned())?;
        }
        if values.is_empty() {
            bail!("no metric {family}");
        }
        Ok(values)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// SIGHUP: reload.
    ///
    /// # Errors
    /// When it has ended.
    pub fn reload(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGHUP)
    }

    /// SIGINT, then waits for its end; what it printed.
    ///
    /// # Errors
    /// When it has ended already, or does not end within 20 s.
    pub fn stop(mut self) -> Result<Finished> {
        self.child.signal(Signal::SIGINT)?;
        self.child.wait(ASK)
    }
}

/// Body of `GET path` over a Unix socket.
fn http_get(socket: &Path, path: &str) -> Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: windrose\r\nConnection: close\r\n\r\n"
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("no HTTP header")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        bail!("GET {path}: {status}\n{body}");
    }
    Ok(body.to_owned())
}
