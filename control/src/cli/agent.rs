//! `windrose agent -c FILE`: a site's agent.
//!
//! Exit code 0 after SIGINT or SIGTERM, or after `--dry-run`; 2 when it could not start.

use crate::agent::{self, AgentError};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Run at a site: check its members, read its numbers, measure round-trip times, and report to appliances.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The agent's TOML file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Check and read once, print the report as JSON, send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write logs as JSON lines.
    #[arg(long)]
    log_json: bool,
}

impl Args {
    pub(super) fn execute(self) -> ExitCode {
        let filter = EnvFilter::try_from_env("WINDROSE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        let log = tracing_subscriber::fmt()
            .with_ansi(std::io::stderr().is_terminal())
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        if self.log_json {
            log.json().init();
        } else {
            log.with_target(false).init();
        }
        let result = if self.dry_run {
            agent::dry_run(&self.config).map(|report| {
                let text = serde_json::to_string_pretty(&report).unwrap_or_default();
                println!("{text}");
            })
        } else {
            agent::run(&self.config)
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(AgentError::Config(found)) => {
                eprintln!("{found}");
                ExitCode::from(2)
            }
            Err(AgentError::Start(error)) => {
                eprintln!("windrose agent: cannot start: {error:#}");
                ExitCode::from(2)
            }
        }
    }
}
