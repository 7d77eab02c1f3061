//! `./run demo [--keep]`: Windrose at work in network namespaces. Started by `run`.
//!
//! Two ISPs with a resolver each, three sites with HTTP origins, the appliance on DPDK af_packet ports
//! between them (`configs/demo.toml`). Every step is checked; the exit code is 1 if one is not as it
//! must be. All of it goes away at the end.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::Value;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use windrose_tests::appliance::program;
use windrose_tests::client::dig;
use windrose_tests::process::eventually;
use windrose_tests::world::{Isp, Kind, World};
use windrose_tests::{lab, laws};

/// Answers must have moved by then: interval 500 ms with 10 % jitter, timeout 400 ms, and what a busy
/// machine adds.
const MOVES: Duration = Duration::from_secs(5);
/// Address of the generator's port in `configs/demo.toml`.
const GENERATOR_PORT: &str = "198.18.0.53";

/// True while `--keep` waits for Ctrl-C.
static KEEPING: AtomicBool = AtomicBool::new(false);

/// Shows Windrose at work in network namespaces.
#[derive(Parser)]
#[command(name = "demo")]
struct Args {
    /// Stay up at the end and say what to try, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let interrupted = match interruption() {
        Ok(interrupted) => interrupted,
        Err(error) => {
            eprintln!("demo: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    match demo(&args, &interrupted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nNOT AS IT MUST BE: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes Ctrl-C over: while `--keep` waits it is sent to the receiver, else it removes the lab and ends
/// the process. By a handler and not by a blocked signal: children would inherit that.
fn interruption() -> Result<Receiver<()>> {
    let (sender, receiver) = channel();
    ctrlc::set_handler(move || {
        if !KEEPING.load(Ordering::Relaxed) || sender.send(()).is_err() {
            eprintln!("\ninterrupted: removing the lab");
            lab::remove_own();
            // 128 + SIGINT, as shells have it.
            std::process::exit(130);
        }
    })
    .context("cannot take SIGINT")?;
    Ok(receiver)
}

/// A heading.
fn step(text: &str) {
    println!("\n== {text}");
}

fn demo(args: &Args, interrupted: &Receiver<()>) -> Result<()> {
    let start = Instant::now();
    step("Two ISPs, three sites, one appliance, in network namespaces");
    let mut world = World::build(1)?;
    let config = world.config(Kind::AfPacket, 1, |text| text)?;
    topology(&world);

    step("windrose run -c configs/demo.toml");
    world.start(&config)?;
    println!("ready {:.1} s after the start", start.elapsed().as_secs_f64());
    let healthy = |world: &World| Ok(ask(&world.isps[0], "vod.example.com A", false)? == [site(world, 0)]);
    eventually("the first checks succeed", MOVES, || healthy(&world))?;

    step("Each ISP's resolver is sent to the site in its own network");
    let summary = resolvers(&world)?;

    step("pktgen: queries from users of both ISPs");
    let load = generate(&world)?;

    step("The origin at seoul-kt dies (kill -9)");
    let moved = failover(&mut world)?;

    step("windrose status");
    print!("{}", world.appliance()?.ask(&["status"])?);
    step("Why: windrose explain vod.example.com A --from 192.0.2.10");
    print!(
        "{}",
        world
            .appliance()?
            .ask(&["explain", "vod.example.com", "A", "--from", "192.0.2.10"])?
    );

    step("The origin comes back; two successful checks later so do the answers");
    world.sites[0].origin.restart()?;
    let back = eventually("answers return to seoul-kt", MOVES, || healthy(&world))?;
    println!(
        "KT's users are sent to {} again after {:.2} s",
        site(&world, 0),
        back.as_secs_f64()
    );

    if args.keep {
        keep(&world, interrupted)?;
    }

    step("Ctrl-C to the appliance: it drains, prints its totals and ends with code 0");
    let totals = laws::hold_after_stop(&mut world)?;
    let total = |name: &str| totals.get(name).copied().unwrap_or(0);
    println!(
        "received {} = replied {} + punted {} + dropped {} + forwarded and consumed {}",
        total("received"),
        total("replied"),
        total("punted"),
        totals
            .iter()
            .filter(|(name, _)| name.starts_with("drop_"))
            .map(|(_, n)| n)
            .sum::<u64>(),
        total("forwarded") + total("consumed")
    );

    step("Summary");
    println!("{summary}");
    println!("{load}");
    println!(
        "answers left the dead origin after {:.2} s (checks every 0.5 s)",
        moved.as_secs_f64()
    );
    println!(
        "answers returned after {:.2} s (two good checks in a row)",
        back.as_secs_f64()
    );
    println!(
        "the packet laws held; everything took {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Member address of a site.
fn site(world: &World, at: usize) -> IpAddr {
    world.sites[at].ipv4.into()
}

fn topology(world: &World) {
    for isp in &world.isps {
        println!(
            "ISP {}: resolver {} and {} in {}; service address {} and {}",
            isp.name,
            isp.resolver.0,
            isp.resolver.1,
            isp.host.name(),
            isp.service.0,
            isp.service.1
        );
    }
    for site in &world.sites {
        println!(
            "site {}: origin http://{}:8080 in {}",
            site.name,
            site.ipv4,
            site.host.name()
        );
    }
}

/// The addresses that one dig gets.
fn ask(isp: &Isp, query: &str, ipv6: bool) -> Result<Vec<IpAddr>> {
    Ok(dig(&isp.host, isp.server(ipv6), query)?.addresses())
}

/// dig from each ISP, checked; a line for the summary.
fn resolvers(world: &World) -> Result<String> {
    let mut said = Vec::new();
    for (at, isp) in world.isps.iter().enumerate() {
        for (ipv6, rtype, near) in [
            (false, "A", site(world, at)),
            (true, "AAAA", IpAddr::from(world.sites[at].ipv6)),
        ] {
            let server = isp.server(ipv6);
            let query = format!("vod.example.com {rtype}");
            let reply = dig(&isp.host, server, &query)?;
            println!("{}$ dig @{server} {query}", isp.host.name());
            for record in &reply.answer {
                println!(
                    "    {} {} {} {}",
                    record.name, record.ttl, record.rtype, record.rdata
                );
            }
            ensure!(
                reply.addresses() == [near],
                "{} was not sent to {near}:\n{}",
                isp.name,
                reply.text
            );
        }
        said.push(format!("{} to {}", isp.name, world.sites[at].name));
    }
    let kt = &world.isps[0];
    let query = "vod.example.com A +subnet=203.0.113.0/24";
    let reply = dig(&kt.host, kt.server(false), query)?;
    println!(
        "{}$ dig @{} {query}   (a public resolver with users in LG)",
        kt.host.name(),
        kt.server(false)
    );
    for record in &reply.answer {
        println!(
            "    {} {} {} {}",
            record.name, record.ttl, record.rtype, record.rdata
        );
    }
    ensure!(
        reply.addresses() == [site(world, 1)],
        "the client subnet did not decide:\n{}",
        reply.text
    );
    let absent = dig(&kt.host, kt.server(false), "absent.example.com A")?;
    println!(
        "{}$ dig @{} absent.example.com A\n    {}",
        kt.host.name(),
        kt.server(false),
        absent.status
    );
    ensure!(
        absent.status == "NXDOMAIN",
        "absent.example.com:\n{}",
        absent.text
    );
    Ok(format!("users go to the site in their ISP: {}", said.join(", ")))
}

/// pktgen as users of each ISP; every answer must be the member of their site. A line for the summary.
fn generate(world: &World) -> Result<String> {
    let pktgen = program("pktgen")?;
    let pktgen = pktgen.to_string_lossy();
    let (mut sent, mut answered) = (0, 0);
    for (at, source) in ["192.0.2.0/24", "203.0.113.0/24"].into_iter().enumerate() {
        let options = format!(
            "dns --port net_af_packet0,iface=eth0 --server {GENERATOR_PORT} --source {source} \
             --name vod.example.com --types A --rate 2000 --duration 2s --timeout 2s --idle sleep --json"
        );
        println!("{}$ pktgen {options}", world.generator.name());
        let argv: Vec<&str> = std::iter::once(&*pktgen)
            .chain(options.split_ascii_whitespace())
            .collect();
        let output = world.generator.run(&argv, Duration::from_secs(30))?.success()?;
        let json = output
            .lines()
            .skip_while(|line| !line.starts_with('{'))
            .collect::<Vec<_>>()
            .join("\n");
        let report: Value = serde_json::from_str(&json).with_context(|| format!("pktgen: {output}"))?;
        let count = |key: &str| {
            report[key]
                .as_u64()
                .with_context(|| format!("no {key} in {json}"))
        };
        let near = site(world, at).to_string();
        println!(
            "    sent {}, answered {}, lost {}, wrong {}; p50 {} us, p99 {} us; addresses {}",
            count("sent")?,
            count("answered")?,
            count("lost")?,
            count("wrong")?,
            report["latency_us"]["p50"],
            report["latency_us"]["p99"],
            report["addresses"]
        );
        ensure!(
            count("lost")? == 0 && count("wrong")? == 0,
            "queries were lost or answered wrongly"
        );
        let given = report["addresses"]
            .as_object()
            .context("no addresses in pktgen's report")?;
        ensure!(
            given.len() == 1 && given.contains_key(&near),
            "users were not all sent to {near}"
        );
        sent += count("sent")?;
        answered += count("answered")?;
    }
    Ok(format!(
        "pktgen: {answered} of {sent} queries answered, every one by policy"
    ))
}

/// Kills the origin of KT's site; how long answers still named it.
fn failover(world: &mut World) -> Result<Duration> {
    let (dead, next) = (site(world, 0), site(world, 1));
    world.sites[0].origin.crash()?;
    let kt = &world.isps[0];
    let moved = eventually("answers leave the dead origin", MOVES, || {
        Ok(ask(kt, "vod.example.com A", false)? == [next])
    })?;
    println!(
        "KT's users are sent to {next} ({}) after {:.2} s",
        world.sites[1].name,
        moved.as_secs_f64()
    );
    for _ in 0..10 {
        for name in ["vod.example.com A", "live.example.com A"] {
            let given = ask(kt, name, false)?;
            ensure!(!given.is_empty() && !given.contains(&dead), "{name}: {given:?}");
        }
    }
    println!("10 more queries for each service: none names {dead}");
    Ok(moved)
}

/// Says what to try, and waits for Ctrl-C.
fn keep(world: &World, interrupted: &Receiver<()>) -> Result<()> {
    let (kt, lg) = (&world.isps[0], &world.isps[1]);
    let (windrose, socket) = (program("windrose")?, world.socket());
    let (windrose, socket) = (windrose.display(), socket.display());
    step("It stays up. In another terminal, as root, try:");
    println!(
        "ip netns exec {} dig @{} vod.example.com",
        kt.host.name(),
        kt.service.0
    );
    println!(
        "ip netns exec {} dig @{} vod.example.com AAAA",
        lg.host.name(),
        lg.service.1
    );
    println!(
        "ip netns exec {} dig @{} vod.example.com +subnet=203.0.113.0/24",
        kt.host.name(),
        kt.service.0
    );
    println!("ip netns exec {} ping {}", kt.host.name(), kt.service.0);
    println!("{windrose} status --socket {socket}");
    println!("{windrose} explain vod.example.com A --from 192.0.2.10 --socket {socket}");
    println!("curl --unix-socket {socket} http://windrose/metrics");
    println!(
        "ip netns pids {}    # an origin: kill -9 or kill -STOP it",
        world.sites[0].host.name()
    );
    println!(
        "\nconfiguration: {}/windrose.toml (change it, then kill -HUP)",
        world.lab.folder().display()
    );
    println!("Ctrl-C ends it and removes everything.");
    KEEPING.store(true, Ordering::Relaxed);
    interrupted.recv()?;
    KEEPING.store(false, Ordering::Relaxed);
    Ok(())
}
