//! `windrose events`: what a running appliance saw and did, and whether its webhooks were told.
//!
//! Exit code 0; 1 when the appliance refuses; 2 when none answers.

use super::{print_json, report};
use crate::admin::api::Events;
use crate::admin::client;
use hyper::Method;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the last events of a running appliance: failovers, members, overrides, reloads.
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
        let answer = client::request(&self.socket, Method::GET, "/v1/events");
        report(answer.and_then(|body| {
            if self.json {
                return print_json(&self.socket, &body);
            }
            let events: Events = client::parse(&self.socket, &body)?;
            for event in &events.events {
                println!(
                    "{}  {:<16}  {}: {}; {}",
                    event.at, event.event, event.subject, event.seen, event.done
                );
            }
            for hook in &events.webhooks {
                let error = hook.last_error.as_ref();
                let error = error.map_or_else(String::new, |e| format!("; last error: {e}"));
                println!(
                    "webhook {}: {} delivered, {} waiting, {} given up, {} tries failed{error}",
                    hook.url, hook.delivered, hook.waiting, hook.dropped, hook.failed_tries
                );
            }
            Ok(())
        }))
    }
}
