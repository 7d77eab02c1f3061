//! Reload by SIGHUP while queries run: nothing is lost, a bad file changes nothing. Needs root.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use windrose_tests::client::{Dnsperf, dig};
use windrose_tests::laws;
use windrose_tests::process::eventually;
use windrose_tests::world::{Kind, World};

const LONG: Duration = Duration::from_secs(20);
/// Reloads under load.
const RELOADS: u32 = 1000;
/// Of so many, one is sent as SIGHUP and its answer looked at; the others by `windrose reload`, one after the other.
const LOOK_EVERY: u32 = 20;

/// `www.example.com` of the zone file: one address per generation.
fn set_address(world: &World, address: &str) {
    let zone = world.lab.folder().join("demo.zone");
    let text = std::fs::read_to_string(&zone).unwrap();
    let with = |line: &str| {
        if line.starts_with("www     IN A ") {
            format!("www     IN A     {address}")
        } else {
            line.to_owned()
        }
    };
    let text: Vec<String> = text.lines().map(with).collect();
    replace(&zone, &(text.join("\n") + "\n"));
}

/// Written whole, so that a reload in between never reads half.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn www(world: &World) -> IpAddr {
    let kt = &world.isps[0];
    dig(&kt.host, kt.server(false), "www.example.com A")
        .unwrap()
        .addresses()[0]
}

#[test]
fn reloads_under_load_lose_nothing() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let queries = world
        .lab
        .write("queries", "www.example.com A\nvod.example.com A\n")
        .unwrap();
    let (server, file) = (
        world.isps[0].server(false).to_string(),
        queries.to_string_lossy().into_owned(),
    );
    let argv = [
        "dnsperf", "-s", &server, "-d", &file, "-l", "600", "-Q", "2000", "-c", "4", "-t", "5",
    ];
    let mut load = world.isps[0].host.spawn(&argv).unwrap();
    let addresses: [IpAddr; 2] = ["192.0.2.80".parse().unwrap(), "192.0.2.81".parse().unwrap()];
    for turn in 1..=RELOADS {
        let wanted = addresses[usize::try_from(turn % 2).unwrap()];
        set_address(&world, &wanted.to_string());
        if turn % LOOK_EVERY != 0 {
            world.appliance().unwrap().ask(&["reload"]).unwrap();
            continue;
        }
        world.appliance().unwrap().reload().unwrap();
        eventually("the reload is live", LONG, || {
            let got = www(&world);
            assert!(addresses.contains(&got), "{got} is of no generation");
            Ok(got == wanted)
        })
        .unwrap();
    }
    // dnsperf ends on SIGINT with its statistics, and waits for what is outstanding.
    load.signal(nix::sys::signal::Signal::SIGINT).unwrap();
    let got = Dnsperf::parse(&load.wait(LONG).unwrap().stdout).unwrap();
    // What was under way at the end counts as interrupted, not lost.
    assert_eq!(got.lost, 0, "{got:?}");
    assert_eq!(got.rcodes.get("NOERROR"), Some(&got.completed), "{got:?}");
    // One worker. A snapshot that a newer one overtook was superseded, not adopted.
    let count = |status: &serde_json::Value, key: &str| status["workers"][0][key].as_u64().unwrap();
    eventually("the last snapshot has come back", LONG, || {
        let status = world.appliance()?.status()?;
        Ok(count(&status, "adopted") == count(&status, "retired") + 1)
    })
    .unwrap();
    let status = world.appliance().unwrap().status().unwrap();
    assert_eq!(
        count(&status, "published"),
        count(&status, "adopted") + count(&status, "superseded")
    );
    assert_eq!(count(&status, "published"), u64::from(RELOADS) + 1, "{status:#}");
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_bad_file_leaves_the_old_configuration() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let config = world.lab.folder().join("windrose.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    replace(&config, &good.replace("answers = 1", "anwsers = 1"));
    set_address(&world, "192.0.2.81");
    world.appliance().unwrap().reload().unwrap();
    eventually("the fault is logged", LONG, || {
        Ok(world.appliance()?.log().contains("anwsers"))
    })
    .unwrap();
    assert_eq!(www(&world), "192.0.2.80".parse::<IpAddr>().unwrap());
    replace(&config, &good);
    world.appliance().unwrap().reload().unwrap();
    let wanted: IpAddr = "192.0.2.81".parse().unwrap();
    eventually("the good file is live", LONG, || Ok(www(&world) == wanted)).unwrap();
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn other_ports_are_refused_whole() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let config = world.lab.folder().join("windrose.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    // The sections change places: taken by index, each port would answer the other's addresses at once.
    let changed = good
        .replace("name = \"kt\"", "name = \"other\"")
        .replace("name = \"lg\"", "name = \"kt\"")
        .replace("name = \"other\"", "name = \"lg\"");
    assert_ne!(changed, good);
    replace(&config, &changed);
    set_address(&world, "192.0.2.81");
    let refused = world
        .appliance()
        .unwrap()
        .ask(&["reload"])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("restart"), "{refused}");
    assert_eq!(www(&world), "192.0.2.80".parse::<IpAddr>().unwrap());
    laws::hold_after_stop(&mut world).unwrap();
}
