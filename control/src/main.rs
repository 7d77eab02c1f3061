//! The `windrose` command: one file a sub-command under `cli`.

use clap::Parser;

fn main() -> std::process::ExitCode {
    control::cli::Cli::parse().execute()
}
