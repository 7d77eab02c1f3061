//! The command line of `windrose`: what it accepts. Each sub-command is a file here.

mod admin;
mod agent;
mod check;
mod events;
mod explain;
mod latency;
mod latency_matrix;
mod reload;
#[cfg(feature = "dpdk")]
mod run;
mod status;

use crate::admin::client::{self, ClientError};
use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// DNS answers by where the network really leads, straight from the packet buffer.
#[derive(Parser, Debug)]
#[command(name = "windrose", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[cfg(feature = "dpdk")]
    Run(run::Args),
    Check(check::Args),
    Status(status::Args),
    Events(events::Args),
    Admin(admin::Args),
    Explain(explain::Args),
    Latency(latency::Args),
    Reload(reload::Args),
    Agent(agent::Args),
}

impl Cli {
    /// Does what was asked for; the exit code of the process.
    pub fn execute(self) -> ExitCode {
        match self.command {
            #[cfg(feature = "dpdk")]
            Command::Run(args) => args.execute(),
            Command::Check(args) => args.execute(),
            Command::Status(args) => args.execute(),
            Command::Events(args) => args.execute(),
            Command::Admin(args) => args.execute(),
            Command::Explain(args) => args.execute(),
            Command::Latency(args) => args.execute(),
            Command::Reload(args) => args.execute(),
            Command::Agent(args) => args.execute(),
        }
    }
}

/// Prints an answer's JSON, indented.
fn print_json(socket: &Path, answer: &[u8]) -> Result<(), ClientError> {
    let value: serde_json::Value = client::parse(socket, answer)?;
    println!("{value:#}");
    Ok(())
}

/// The exit code of a command that asked the appliance; an error goes to standard error, one line.
fn report(result: Result<(), ClientError>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("windrose: {error}");
    ExitCode::from(match error {
        ClientError::Refused(_) => 1,
        _ => 2,
    })
}
