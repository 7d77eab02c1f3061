//! `./run bench [NAME...]`: what a packet costs, against the budget; one row a gate, exit code 1 when one is missed.
//!
//! One file a group of gates. Counts are exact on any machine; rates are ratios of interleaved pairs in one run.
//! The `inner-` commands are what the bench starts itself with, under valgrind or for each run on a real port.

mod accuracy;
mod classes;
mod crowd;
mod flows;
mod generator;
mod growth;
mod health;
mod instructions;
mod load;
mod offline;
mod policy;
mod queries;
mod real;
mod reload;
mod replay;
mod rig;
mod table;
mod testpmd;
mod wires;
mod world;

use anyhow::{Result, bail};
use clap::Parser;
use dataplane::io::dpdk::Eal;
use mimalloc::MiMalloc;
use std::process::ExitCode;
use table::Table;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What a packet costs, against the budget.
#[derive(Parser, Debug)]
#[command(name = "bench")]
struct Args {
    /// Fewer pairs and smaller tables: minutes instead of a quarter of an hour.
    #[arg(long)]
    quick: bool,
    /// Which groups (default: all): instructions, replay, wires, growth, health, load, classes, reload, policy, generator,
    /// flows, accuracy. Or `profile KIND`: where the instructions of a kind go.
    names: Vec<String>,
}

/// One group of gates: measures and adds rows; the flag is `--quick`.
enum Group {
    /// Needs no EAL.
    Plain(fn(&mut Table, bool) -> Result<()>),
    /// Opens DPDK ports.
    Ports(fn(&mut Table, bool, &Eal) -> Result<()>),
}

/// All groups, in the order of the table.
const GROUPS: &[(&str, Group)] = &[
    ("instructions", Group::Plain(instructions::bench)),
    ("replay", Group::Ports(replay::bench)),
    ("wires", Group::Ports(wires::bench)),
    ("growth", Group::Ports(growth::bench)),
    ("health", Group::Plain(health::bench)),
    ("load", Group::Plain(load::bench)),
    ("classes", Group::Plain(classes::bench)),
    ("reload", Group::Plain(reload::bench)),
    ("policy", Group::Plain(policy::bench)),
    ("generator", Group::Plain(generator::bench)),
    ("flows", Group::Plain(flows::bench)),
    ("accuracy", Group::Plain(accuracy::bench)),
];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True when no gate was missed.
fn run(args: &Args) -> Result<bool> {
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    match names[..] {
        ["profile", kind] => return instructions::profile(kind).map(|()| true),
        ["inner-instructions", kind, turns, seed] => {
            return instructions::inner(kind, turns.parse()?, seed.parse()?).map(|()| true);
        }
        ["inner-watch", said, stop] => return real::watch(said, stop).map(|()| true),
        _ => {}
    }
    if let Some(unknown) = names.iter().find(|n| GROUPS.iter().all(|(name, _)| name != *n)) {
        let known: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
        bail!("no group \"{unknown}\"; there are {}", known.join(", "));
    }
    println!("{}", machine());
    let (mut table, mut eal) = (Table::default(), None);
    for (name, group) in GROUPS {
        if names.is_empty() || names.contains(name) {
            let measured = match group {
                Group::Plain(bench) => bench(&mut table, args.quick),
                Group::Ports(bench) => {
                    let eal = match &eal {
                        Some(eal) => eal,
                        None => eal.insert(rig::eal()?),
                    };
                    bench(&mut table, args.quick, eal)
                }
            };
            if let Err(error) = measured {
                table.broken(name, &error);
            }
        }
    }
    Ok(table.finish())
}

/// The machine and the build, for the head of the table.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let command: Vec<String> = std::env::args().skip(1).collect();
    format!(
        "Windrose bench: {model}, {cores} cores, load average {load}; {}; ./run bench {}",
        dataplane::io::dpdk::Eal::version(),
        command.join(" ")
    )
}
