//! `windrose run -c FILE`: the appliance.
//!
//! Exit code 0 after SIGINT or SIGTERM; 2 when it could not start, with nothing left behind.

use crate::run::{self, RunError};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Run the appliance until SIGINT or SIGTERM; SIGHUP loads the configuration anew.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The TOML file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
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
        match run::run(&self.config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(RunError::Config(found)) => {
                eprintln!("{found}");
                ExitCode::from(2)
            }
            Err(RunError::Start(error)) => {
                eprintln!("windrose: cannot start: {error:#}");
                ExitCode::from(2)
            }
        }
    }
}
