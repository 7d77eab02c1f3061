//! What a person gets wrong: one clear line, exit code 2, and nothing left half-started. Needs root.

use std::time::Duration;
use windrose_tests::appliance::{program, windrose};
use windrose_tests::process;
use windrose_tests::world::{Kind, World};

/// Runs `windrose run` on the demo's configuration after `edit`; it must refuse with code 2, name each of
/// `words` on standard error, and leave no socket and no process.
fn refused(edit: impl FnOnce(String) -> String, words: &[&str]) {
    let world = World::build(1).unwrap();
    let config = world.config(Kind::AfPacket, 1, edit).unwrap();
    let finished = windrose(Some(&world.host), &["run", "-c", &config.to_string_lossy()]).unwrap();
    refusal(&finished, words);
    assert!(!world.socket().exists(), "the admin socket is left");
    // Only what the test runs itself may be inside: nothing.
    let inside = process::run(
        None,
        &["ip", "netns", "pids", world.host.name()],
        Duration::from_secs(5),
    )
    .unwrap();
    assert_eq!(inside.stdout, "");
}

fn refusal(finished: &process::Finished, words: &[&str]) {
    let text = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.code, 2, "{text}");
    // One finding, one line: in the file with its place, or why the appliance cannot start.
    let findings = |line: &&str| line.contains(": error: ") || line.contains("cannot start: ");
    assert_eq!(finished.stderr.lines().filter(findings).count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
    assert!(
        !text.contains("panicked") && !text.contains("RUST_BACKTRACE"),
        "{text}"
    );
}

#[test]
fn unknown_key() {
    refused(
        |text| text.replace("answers = 1", "anwsers = 1"),
        &["windrose.toml:", "anwsers", "answers"],
    );
}

#[test]
fn missing_zone_file() {
    refused(
        |text| text.replace("demo.zone", "absent.zone"),
        &["windrose.toml:", "absent.zone"],
    );
}

#[test]
fn zone_syntax_error() {
    let world = World::build(1).unwrap();
    let config = world
        .config(Kind::AfPacket, 1, |text| text.replace("demo.zone", "bad.zone"))
        .unwrap();
    // The address on line 4 is none.
    let zone = "$ORIGIN example.com.\n@ 60 IN SOA ns1 h 1 2 3 4 5\n@ 60 IN NS ns1\nns1 60 IN A 192.0.2.\n";
    world.lab.write("bad.zone", zone).unwrap();
    let finished = windrose(Some(&world.host), &["run", "-c", &config.to_string_lossy()]).unwrap();
    refusal(&finished, &["bad.zone:4"]);
    assert!(!world.socket().exists());
}

#[test]
fn duplicate_service() {
    // Names are compared as DNS does: without case.
    refused(
        |text| text.replace("name = \"live.example.com\"", "name = \"VOD.example.com\""),
        &["windrose.toml:", "VOD.example.com", "twice"],
    );
}

#[test]
fn overlapping_address() {
    // A member at the appliance's own service address.
    refused(
        |text| text.replacen("\"198.51.100.11\"", "\"192.0.2.53\"", 1),
        &["windrose.toml:", "192.0.2.53", "`kt`"],
    );
}

#[test]
fn prefix_of_two_isps() {
    refused(
        |text| text.replace("[\"203.0.113.0/24\"", "[\"192.0.2.0/24\""),
        &["windrose.toml:", "192.0.2.0/24", "`KT`"],
    );
}

#[test]
fn port_that_does_not_exist() {
    refused(|text| text.replace("iface=lg0", "iface=absent0"), &["absent0"]);
}

/// A veth has no combined channels, so af_xdp has one queue on it.
#[test]
fn more_workers_than_queues() {
    let world = World::build(2).unwrap();
    let config = world.config(Kind::AfXdp, 2, |text| text).unwrap();
    let finished = windrose(Some(&world.host), &["run", "-c", &config.to_string_lossy()]).unwrap();
    refusal(&finished, &["kt0", "queue"]);
    assert!(!world.socket().exists());
}

#[test]
fn too_few_cores() {
    refused(
        |text| text.replace("cores = [0]", "cores = [900]"),
        &["900", "cores"],
    );
}

#[test]
fn missing_configuration() {
    let finished = windrose(None, &["run", "-c", "/nonexistent/windrose.toml"]).unwrap();
    refusal(&finished, &["/nonexistent/windrose.toml"]);
}

#[test]
fn port_without_permission() {
    let world = World::build(1).unwrap();
    let config = world.config(Kind::AfPacket, 1, |text| text).unwrap();
    // AF_PACKET needs CAP_NET_RAW.
    let windrose = program("windrose").unwrap();
    let argv = [
        "setpriv",
        "--bounding-set",
        "-net_raw,-net_admin",
        "--inh-caps",
        "-net_raw,-net_admin",
        &windrose.to_string_lossy(),
        "run",
        "-c",
        &config.to_string_lossy(),
    ];
    let finished = world.host.run(&argv, Duration::from_secs(20)).unwrap();
    refusal(&finished, &["kt0"]);
    assert!(!world.socket().exists());
}
