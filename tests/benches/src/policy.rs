//! What selection costs: compiling all plans of many services for many client classes, compiling again what one change
//! touches, and a query among many services to one among one.

use crate::queries::{Query, query, read_reply};
use crate::table::{Gate, Row, Spread, Table};
use crate::world::{POLLS_PER_TURN, World, measured_polls};
use anyhow::{Context, Result, bail};
use control::policy::cells::Changed;
use control::policy::chain::facts::{Clients, Evidence, Reading, SiteFacts, Source};
use dataplane::io::BURST_MAX;
use dataplane::io::memory::{MemoryConfig, MemoryPort};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Services, their policies, and client classes: an ISP each.
#[derive(Clone, Copy)]
struct Shape {
    services: usize,
    policies: usize,
    classes: usize,
}

const LARGE: Shape = Shape {
    services: 10_000,
    policies: 50,
    classes: 10_000,
};
/// Sites of each service.
const SITES: usize = 6;
/// Queries that are timed at once.
const QUERIES: usize = POLLS_PER_TURN * BURST_MAX;

/// Measures compilations and queries.
///
/// # Errors
/// When a configuration is not taken or a query not answered.
pub(crate) fn bench(table: &mut Table, quick: bool) -> Result<()> {
    compilations(table, quick)?;
    queries(table, quick)
}

fn toml(shape: Shape) -> String {
    let mut out = String::from(
        "[dataplane]\ncores = [0]\nshare_cores = true\n\n[[port]]\nname = \"p\"\ndevice = \"net_null0\"\n\
         addresses = [\"192.0.2.53\"]\n\n[[zone]]\nname = \"example.com\"\nfile = \"z\"\n",
    );
    for isp in 0..shape.classes {
        let [_, a, b, _] = (isp as u32 * 256).to_be_bytes();
        _ = write!(
            out,
            "\n[[isp]]\nname = \"isp{isp}\"\nprefixes = [\"11.{a}.{b}.0/24\"]\n"
        );
    }
    for site in 0..SITES {
        _ = write!(
            out,
            "\n[[site]]\nname = \"site{site}\"\nisp = \"isp{site}\"\nsessions_max = 1000\n"
        );
    }
    for service in 0..shape.services {
        // Preferences make the policies; each service has members of its own.
        let policy = service % shape.policies + 1;
        _ = write!(
            out,
            "\n[[service]]\nname = \"s{service:05}.example.com\"\npreference = {{ site0 = {policy} }}\n\
             chain = [\"health\", \"capacity\", \"isp\", \"latency\", \"connection-load\", \"available-sessions\", \
             \"preference\", \"static\"]\nmember = [\n"
        );
        for site in 0..SITES {
            let [_, a, b, c] = (service as u32 * 8 + site as u32).to_be_bytes();
            _ = writeln!(
                out,
                "  {{ address = \"20.{a}.{b}.{c}\", site = \"site{site}\" }},"
            );
        }
        out.push_str("]\n");
    }
    out
}

fn world(shape: Shape) -> Result<World> {
    let zone =
        "$ORIGIN example.com.\n$TTL 300\n@ SOA ns1 h 1 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.53\n";
    World::of(&toml(shape), &[("z", zone)])
}

fn evidence(ms: u64) -> Vec<Evidence> {
    vec![Evidence {
        value: Duration::from_millis(ms),
        count: 1,
        age: Duration::ZERO,
        source: Source::Agent,
    }]
}

fn compilations(table: &mut Table, quick: bool) -> Result<()> {
    table.section(&format!(
        "Plans of {} services in {} policies of eight metrics over {SITES} sites, {} client classes",
        LARGE.services, LARGE.policies, LARGE.classes
    ));
    let mut world = world(LARGE)?;
    let mac = MemoryConfig::default().mac;
    let (mut whole, mut one_class, mut one_site) = (vec![], vec![], vec![]);
    let mut bytes = 0;
    for round in 0..if quick { 2 } else { 5 } {
        let start = Instant::now();
        let snapshot = world.compile(mac)?;
        whole.push(start.elapsed().as_secs_f64() * 1e3);
        bytes = snapshot.cells.len() * size_of::<dataplane::tables::plans::Cell>();
        // One class has other evidence.
        let clients = Clients::Isp(500 + round);
        let facts = Arc::make_mut(&mut world.compiler.facts);
        facts.sites.resize(SITES, SiteFacts::default());
        facts.latency.insert((clients, 3), evidence(5));
        facts.latency.insert((clients, 4), evidence(50));
        let changed = Changed {
            clients: [clients].into(),
            ..Changed::default()
        };
        one_class.push(refresh(&mut world, &changed)?);
        // A site reports that it is full, and that it is not.
        let sessions = Reading {
            value: if round % 2 == 0 { 1000 } else { 0 },
            age: Duration::ZERO,
        };
        Arc::make_mut(&mut world.compiler.facts).sites[2].sessions = Some(sessions);
        let changed = Changed {
            sites: [2].into(),
            ..Changed::default()
        };
        one_site.push(refresh(&mut world, &changed)?);
    }
    let [whole, one_class, one_site] = [whole, one_class, one_site].map(|times| Spread::of(&times));
    let row = |name: &str, measured, unit, gate, note: String| Row {
        name: name.into(),
        measured,
        unit,
        gate,
        note,
    };
    table.push(row("whole", whole.median, "ms", Gate::None, format!("{whole}")));
    table.push(row(
        "again, evidence of one class changed",
        one_class.median / whole.median,
        "x",
        Gate::AtMost(0.02),
        format!("of the whole; {:.1} ms", one_class.median),
    ));
    table.push(row(
        "again, readings of one site changed",
        one_site.median / whole.median,
        "x",
        Gate::AtMost(1.0),
        format!(
            "of the whole; {:.0} ms: every cell of its policies",
            one_site.median
        ),
    ));
    let cells = LARGE.policies * LARGE.classes * 2;
    table.push(row(
        "memory of the cells",
        bytes as f64 / 1e6,
        "MB",
        Gate::AtMost(cells as f64 * 32.0 * 1.1 / 1e6),
        "32 bytes a policy and class, twice where it explores".into(),
    ));
    Ok(())
}

/// Milliseconds of one compilation of what changed.
fn refresh(world: &mut World, changed: &Changed) -> Result<f64> {
    let start = Instant::now();
    let refreshed = world.compiler.refresh(changed)?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    refreshed.context("nothing came out otherwise")?;
    Ok(time)
}

fn queries(table: &mut Table, quick: bool) -> Result<()> {
    table.section("Queries for random services, rx to tx on the memory port");
    let mut rigs = [1, 10_000].map(|services| rig(services).map(|rig| (services, rig)));
    let mut times = [vec![], vec![]];
    for _ in 0..if quick { 5 } else { 15 } {
        for (rig, times) in rigs.iter_mut().zip(&mut times) {
            let (_, rig) = rig.as_mut().map_err(|e| anyhow::anyhow!("{e:#}"))?;
            times.push(rig.run()?);
        }
    }
    let ratios: Vec<f64> = times[1]
        .iter()
        .zip(&times[0])
        .map(|(many, one)| many / one)
        .collect();
    let ratio = Spread::of(&ratios);
    table.push(Row {
        name: "10,000 services to one, eight metrics".into(),
        measured: ratio.median,
        unit: "x",
        gate: Gate::AtMost(2.5),
        note: format!("{ratio}; one: {:.0} ns a query", Spread::of(&times[0]).median),
    });
    Ok(())
}

/// A worker that answers for so many services.
struct Rig {
    worker: dataplane::worker::Worker<MemoryPort>,
    wire: dataplane::io::memory::MemoryWire,
    /// Each turn's frames.
    turns: Vec<Vec<Vec<u8>>>,
}

fn rig(services: usize) -> Result<Rig> {
    let config = MemoryConfig {
        buffers: 2 * QUERIES,
        frames: 2 * QUERIES,
        ..MemoryConfig::default()
    };
    let (port, wire) = MemoryPort::new(config);
    let mut world = world(Shape {
        services,
        classes: 1_000,
        ..LARGE
    })?;
    let mut worker = world.worker(port)?.worker;
    let mut random = fastrand::Rng::with_seed(5);
    let mut frame = |i: usize| {
        let client = random.u32(0..1_000).to_be_bytes();
        query(&Query {
            mac: config.mac,
            client: [11, client[2], client[3], 9],
            id: i as u16,
            name: &format!("s{:05}.example.com", random.usize(0..services)),
            rtype: 1,
            edns: None,
        })
    };
    let turns: Vec<Vec<Vec<u8>>> = (0..64).map(|_| (0..QUERIES).map(&mut frame).collect()).collect();
    for frame in turns.iter().flatten().take(QUERIES) {
        wire.inject(frame);
    }
    measured_polls(&mut worker, 1);
    let replies = wire.take_all();
    if replies.len() != QUERIES || replies.iter().any(|reply| read_reply(reply) != Some((0, 1))) {
        bail!(
            "{} of {QUERIES} queries answered as they should be",
            replies.len()
        );
    }
    wire.discard_sent(true);
    Ok(Rig { worker, wire, turns })
}

impl Rig {
    /// Nanoseconds a query.
    fn run(&mut self) -> Result<f64> {
        let (mut time, mut received) = (Duration::ZERO, 0);
        for frames in &self.turns {
            self.wire.stage(frames);
            let start = Instant::now();
            received += measured_polls(&mut self.worker, 1);
            time += start.elapsed();
        }
        if received != self.turns.len() * QUERIES {
            bail!("{received} queries received");
        }
        Ok(time.as_secs_f64() * 1e9 / received as f64)
    }
}
