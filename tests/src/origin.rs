//! HTTP origins: the servers of a site, as separate processes that can crash and hang.
//!
//! Called by tests and demo. Each [`Origin`] owns one `lab-origin` process in the namespace of its site.

use crate::lab::Host;
use crate::process::{Child, eventually};
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::time::Duration;

/// A running origin; killed on drop.
#[derive(Debug)]
pub struct Origin {
    host: Host,
    site: String,
    listen: Vec<SocketAddr>,
    child: Child,
}

impl Origin {
    /// Starts an origin that answers `GET /healthz` with 200 and its site's name on each address,
    /// and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be started or does not listen within 5 s.
    pub fn start(host: &Host, site: &str, listen: &[SocketAddr]) -> Result<Self> {
        let child = launch(host, site, listen)?;
        Ok(Self {
            host: host.clone(),
            site: site.to_owned(),
            listen: listen.to_vec(),
            child,
        })
    }

    /// Crash: SIGKILL, then waits until it is gone.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn crash(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGKILL)?;
        eventually("the origin is gone", Duration::from_secs(5), || {
            Ok(!self.child.is_running()?)
        })
        .map(drop)
    }

    /// Starts it again after a crash.
    ///
    /// # Errors
    /// As [`Origin::start`]; or while it runs.
    pub fn restart(&mut self) -> Result<()> {
        if self.child.is_running()? {
            bail!("origin {} runs already", self.site);
        }
        self.child = launch(&self.host, &self.site, &self.listen)?;
        Ok(())
    }

    /// The JSON bodies that were sent to it by POST, in order.
    ///
    /// # Errors
    /// When one is no JSON.
    pub fn posted(&self) -> Result<Vec<serde_json::Value>> {
        let output = self.child.output();
        let bodies = output.lines().filter_map(|line| line.strip_prefix("posted "));
        bodies.map(|body| Ok(serde_json::from_str(body)?)).collect()
    }

    /// Hang: SIGSTOP. Connections are still accepted by the kernel, and nothing answers.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn hang(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGSTOP)
    }

    /// Goes on after a hang: SIGCONT.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn resume(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGCONT)
    }
}

fn launch(host: &Host, site: &str, listen: &[SocketAddr]) -> Result<Child> {
    let program = crate::appliance::program("lab-origin")?;
    let program = program.to_string_lossy();
    let addresses: Vec<String> = listen.iter().map(SocketAddr::to_string).collect();
    let mut argv = vec![&*program, "--site", site];
    argv.extend(addresses.iter().map(String::as_str));
    let mut child = host.spawn(&argv)?;
    eventually("the origin listens", Duration::from_secs(5), || {
        if !child.is_running()? {
            bail!("origin {site} ended:\n{}", child.output());
        }
        Ok(child.output().contains("listening"))
    })?;
    Ok(child)
}
