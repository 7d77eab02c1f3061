//! What README tells people to type, typed. Needs root.

use std::path::Path;
use std::time::Duration;
use windrose_tests::appliance::{program, windrose};
use windrose_tests::process;
use windrose_tests::world::{Kind, World};

/// The demo takes about ten seconds; a loaded machine several times that.
const DEMO: Duration = Duration::from_secs(100);
const SHORT: Duration = Duration::from_secs(10);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn the_demo_runs_and_finds_everything_as_it_must_be() {
    let demo = program("demo").unwrap();
    let output = process::run(None, &[&demo.to_string_lossy()], DEMO)
        .unwrap()
        .success()
        .unwrap();
    assert!(
        output.contains("kill -9") && output.contains("windrose status"),
        "{output}"
    );
}

#[test]
fn the_commands_by_hand_are_those_that_there_are() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| {
            line.starts_with("windrose ") || line.starts_with("pktgen ") || line.starts_with("./run ")
        })
        .map(|line| line.split("  ").next().unwrap().trim())
        .collect();
    assert_eq!(
        commands,
        [
            "./run demo",
            "./run test",
            "windrose check configs/example.toml",
            "windrose run -c configs/lab-af-packet.toml",
            "windrose status",
            "windrose explain vod.example.com A --from 192.0.2.10",
            "windrose latency",
            "windrose latency --pcap FILE",
            "windrose reload",
            "windrose admin drain 'seoul-kt/*' --for 1h",
            "windrose events",
            "pktgen dns --help",
        ],
        "README has other commands: type them here too"
    );
    let example = root().join("configs/example.toml");
    windrose(None, &["check", &example.to_string_lossy()])
        .unwrap()
        .success()
        .unwrap();
    let pktgen = program("pktgen").unwrap();
    let help = process::run(None, &[&pktgen.to_string_lossy(), "dns", "--help"], SHORT)
        .unwrap()
        .success()
        .unwrap();
    assert!(help.contains("--server"), "{help}");

    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let appliance = world.appliance().unwrap();
    assert!(appliance.ask(&["status"]).unwrap().contains("vod.example.com"));
    let why = appliance
        .ask(&["explain", "vod.example.com", "A", "--from", "192.0.2.10"])
        .unwrap();
    assert!(why.contains("198.51.100.11") && why.contains("ISP KT"), "{why}");
    let latency = appliance.ask(&["latency"]).unwrap();
    assert!(latency.starts_with("nothing is measured"), "{latency}");
    assert!(appliance.ask(&["reload"]).unwrap().starts_with("generation 2,"));
    let drained = appliance
        .ask(&["admin", "drain", "seoul-kt/*", "--for", "1h"])
        .unwrap();
    assert_eq!(drained, "seoul-kt/* drain: 2 members, ends in 1h00m\n");
    let events = appliance.ask(&["events"]).unwrap();
    assert!(
        events.contains("override-set") && events.contains("reload"),
        "{events}"
    );
}
