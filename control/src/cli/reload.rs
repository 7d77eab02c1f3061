//! `windrose reload`: has a running appliance load its configuration anew, and waits for what comes of it.
//!
//! Exit code 0; 1 when the new configuration is refused and the old one stays; 2 when none answers. SIGHUP does
//! the same without waiting.

use super::{print_json, report};
use crate::admin::api::ReloadReport;
use crate::admin::client;
use hyper::Method;
use std::path::PathBuf;
use std::process::ExitCode;

/// Load the configuration of a running appliance anew.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Admin socket of the appliance.
    #[arg(long, value_name = "PATH", default_value = client::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let answer = client::request(&self.socket, Method::POST, "/v1/reload");
        report(answer.and_then(|body| {
            if self.json {
                return print_json(&self.socket, &body);
            }
            let done: ReloadReport = client::parse(&self.socket, &body)?;
            for warning in &done.warnings {
                eprintln!("warning: {warning}");
            }
            let hash = done.config_hash.get(..12).unwrap_or(&done.config_hash);
            println!("generation {}, configuration {hash}", done.generation);
            Ok(())
        }))
    }
}
