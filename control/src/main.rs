//! The `windrose` command: one file a sub-command under `cli`.

use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> std::process::ExitCode {
    control::cli::Cli::parse().execute()
}
