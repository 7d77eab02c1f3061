//! ISC's DNS compliance tester against a running appliance, over both families: `compliance GENREPORT`. Ends with an
//! error unless every test is ok. Called by `./run compliance`, which fetches and builds the tester. Needs root.

use anyhow::{Context, Result, ensure};
use std::time::Duration;
use windrose_tests::process::run;
use windrose_tests::world::{Kind, World};

/// All tests but those of types, and those of every type.
const SETS: [&str; 2] = ["-f", "-t"];
/// Ample: a test that gets no reply is tried for some seconds.
const LONG: Duration = Duration::from_secs(300);

fn main() -> Result<()> {
    let tester = std::env::args().nth(1).context("compliance GENREPORT")?;
    let world = World::running(Kind::AfPacket, 1)?;
    let isp = world.isps.first().context("an ISP")?;
    for ipv6 in [false, true] {
        for set in SETS {
            let line = format!(
                "echo 'example.com ns1.example.com {}' | {tester} {set}",
                isp.server(ipv6)
            );
            let output = run(Some(isp.host.name()), &["sh", "-c", &line], LONG)?.success()?;
            print!("{output}");
            let results: Vec<&str> = output
                .lines()
                .filter(|line| line.contains("example.com"))
                .collect();
            ensure!(!results.is_empty(), "no result from: {line}");
            // "ZONE. @ADDRESS (SERVER.): TEST=ok TEST=ok,WHAT ...", or "all ok".
            let ok = |test: &str| {
                test.split_once('=')
                    .is_none_or(|(_, said)| said.split(',').next() == Some("ok"))
            };
            let marked: Vec<&str> = results
                .iter()
                .flat_map(|line| line.split(' '))
                .filter(|test| !ok(test))
                .collect();
            ensure!(marked.is_empty(), "not ok: {}", marked.join(" "));
        }
    }
    println!("all ok");
    Ok(())
}
