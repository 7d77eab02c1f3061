//! Bursts to every kind of server are told as their clients saw them, and slower servers as slower. How exactly has its gates
//! in `./run bench accuracy`. Needs root.

use std::time::Duration;
use windrose_real::case::{Case, Run, cases, run};
use windrose_real::judge::{Heard, hear};
use windrose_tests::appliance::windrose;
use windrose_traffic::score::score;
use windrose_traffic::sim::Trace;

const TIME: Duration = Duration::from_secs(2);

fn case(name: &str) -> Case {
    cases()
        .into_iter()
        .find(|case| case.name == name)
        .unwrap_or_else(|| panic!("no case {name}"))
}

/// Runs it for two seconds, and hears what passed.
fn heard(case: &Case, slower: u64) -> (Run, Heard) {
    let (run, ()) = run(case, 5, TIME, Duration::from_millis(slower), |_| Ok(())).unwrap();
    let heard = hear(&run.capture).unwrap();
    (run, heard)
}

fn median(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    values.get(values.len() / 2).map_or(0.0, |nanos| *nanos as f64)
}

#[test]
fn bursts_are_told_as_their_clients_saw_them() {
    let names = [
        "TCP, burst of 4",
        "nginx, HTTP/1.1 keep-alive",
        "nginx, HTTPS",
        "nginx, HTTP/2, burst of 4",
        "memcached, 5 ms away",
        "QUIC, single in flight",
        "WireGuard, single in flight",
    ];
    for name in names {
        let (run, heard) = heard(&case(name), 0);
        let trace = Trace {
            packets: heard.packets,
            bursts: run.bursts,
        };
        let told = score(&trace, &heard.responses);
        println!("{name}: {} bursts, {told:?}", trace.bursts.len());
        assert!(trace.bursts.len() > 20, "{name}: {} bursts", trace.bursts.len());
        // Far below the gates of the bench, which has the machine to itself.
        assert!(told.bursts > 70.0 && told.within > 70.0, "{name}: {told:?}");
    }
}

#[test]
fn answers_do_not_pass_the_vantage_point() {
    let (run, _) = heard(&case("nginx, HTTP/1.1 keep-alive"), 0);
    let counted = |interface: &str| -> u64 {
        let shown = run
            .wires
            .vantage
            .ip(&format!("-json -stats link show {interface}"))
            .unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    assert!(counted("in") >= run.bursts.len() as u64);
    assert_eq!(counted("on"), 0);
}

#[test]
fn a_server_that_is_30_ms_slower_is_measured_as_slower() {
    for name in ["nginx, HTTPS", "WireGuard, single in flight"] {
        let [fast, slow] = [0, 30].map(|slower| {
            let (run, heard) = heard(&case(name), slower);
            let said = median(heard.responses.iter().map(|said| said.took).collect());
            let truth = median(run.bursts.iter().map(|burst| burst.latency).collect());
            assert!(
                (said / truth - 1.0).abs() < 0.1,
                "{name}: {said} ns, truth {truth} ns"
            );
            said
        });
        assert!(slow > fast + 20e6, "{name}: {fast} and {slow} ns");
    }
}

/// The command that users have says of a capture what the stage does.
#[test]
fn the_command_reads_the_capture() {
    let (run, heard) = heard(&case("TCP, burst of 4"), 0);
    let path = run.capture.to_string_lossy();
    let text = windrose(None, &["latency", "--pcap", &path, "--json"])
        .unwrap()
        .success()
        .unwrap();
    let got: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(got["flows"].as_array().unwrap().len(), 1, "{text}");
    assert_eq!(got["flows"][0]["server"], "10.77.1.1:9000");
    let count = got["flows"][0]["response"]["count"].as_u64();
    assert_eq!(count, Some(heard.responses.len() as u64));
}
