//! The `pktgen` program against a real server: Knot DNS in a network namespace, over a veth pair and an
//! af_packet port, IPv4 and IPv6, with and without EDNS. Needs root and the package `knot`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;
use windrose_tests::lab::{Host, Lab};
use windrose_tests::process::{Child, Finished, eventually};

const PKTGEN: &str = env!("CARGO_BIN_EXE_pktgen");
/// Ample for a run of a second or two on a busy machine.
const RUN: Duration = Duration::from_secs(60);

const ZONE: &str = "\
$ORIGIN example.com.
$TTL 60
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.1
host0 A 198.51.100.10
host1 A 198.51.100.11
host2 A 198.51.100.12
host2 A 198.51.100.13
host2 AAAA 2001:db8::12
";

struct Bench {
    lab: Lab,
    generator: Host,
    server: Host,
    _knot: Child,
}

/// A namespace with Knot on 192.0.2.1 and 2001:db8:1::1, and one for the generator; its interface has no address.
fn bench() -> Result<Bench> {
    let mut lab = Lab::new()?;
    let (generator, server) = (lab.host("gen")?, lab.host("srv")?);
    lab.link(&generator, "veth0", &server, "veth0")?;
    generator.sysctl("net.ipv6.conf.veth0.disable_ipv6", "1")?;
    server.address("veth0", "192.0.2.1/24")?;
    server.address("veth0", "2001:db8:1::1/64")?;
    lab.write("example.com.zone", ZONE)?;
    let folder = lab.folder().display();
    let config = format!(
        "server:\n    rundir: {folder}\n    listen: [ 192.0.2.1@53, 2001:db8:1::1@53 ]\n    udp-workers: 1\n\
         database:\n    storage: {folder}\nlog:\n  - target: stderr\n    any: warning\n\
         zone:\n  - domain: example.com\n    storage: {folder}\n    file: example.com.zone\n"
    );
    let path = lab.write("knot.conf", &config)?;
    let knot = server
        .spawn(&["knotd", "-c", &path.to_string_lossy()])
        .context("knotd: apt-get install knot")?;
    eventually("Knot answers", Duration::from_secs(20), || {
        let answer = server.command(&[
            "dig",
            "+short",
            "+tries=1",
            "+time=1",
            "@192.0.2.1",
            "host0.example.com",
        ]);
        Ok(answer.is_ok_and(|text| text.trim() == "198.51.100.10"))
    })?;
    Ok(Bench {
        lab,
        generator,
        server,
        _knot: knot,
    })
}

impl Bench {
    fn pktgen(&self, arguments: &[&str]) -> Result<Finished> {
        let mut argv = vec![
            PKTGEN,
            "dns",
            "--port",
            "net_af_packet0,iface=veth0",
            "--idle",
            "sleep",
            "--json",
        ];
        argv.extend(arguments);
        self.generator.run(&argv, RUN)
    }

    fn report(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.pktgen(arguments)?.success()?;
        serde_json::from_str(&text).with_context(|| text)
    }
}

#[test]
fn knot_answers_every_query() -> Result<()> {
    let bench = bench()?;
    let v4 = ["--server", "192.0.2.1", "--source", "192.0.2.0/27"];
    let v6 = ["--server", "2001:db8:1::1", "--source", "2001:db8:1::/64"];

    // host0 and host1 have one A each, host2 two; host3 does not exist. 500 of each are asked.
    let expect = bench.lab.write(
        "expect",
        "host0.example.com 198.51.100.10\nhost1.example.com 198.51.100.11\n\
         host2.example.com 198.51.100.12 198.51.100.13\n",
    )?;
    let expect = expect.to_string_lossy();
    let plain = [
        "--name",
        "host{0-3}.example.com",
        "--rate",
        "2000",
        "--duration",
        "1s",
        "--max-loss",
        "0",
    ];
    let report = bench.report(&[&v4[..], &plain, &["--verify", &expect, "--mixed-case"]].concat())?;
    ensure!(report["sent"] == 2_000 && report["answered"] == 2_000, "{report}");
    ensure!(
        report["lost"] == 0 && report["wrong"] == 0 && report["unexpected"] == 0,
        "{report}"
    );
    ensure!(
        report["rcodes"] == serde_json::json!({ "NOERROR": 1_500, "NXDOMAIN": 500 }),
        "{report}"
    );
    let addresses = ["198.51.100.10", "198.51.100.11", "198.51.100.12", "198.51.100.13"];
    ensure!(
        addresses.iter().all(|a| report["addresses"][a] == 500),
        "{report}"
    );
    // Header, name of 19 bytes, type, class.
    ensure!(report["query_bytes"] == 2_000 * (12 + 19 + 4), "{report}");
    let latency = |name: &str| report["latency_us"][name].as_f64().context("latency");
    ensure!(
        latency("p50")? > 0.0 && latency("p50")? <= latency("p99.9")? && latency("p99.9")? <= latency("max")?,
        "{report}"
    );

    // Neighbour discovery both ways; more addresses than one, OPT with DO and ECS, types drawn.
    let names = bench.lab.write(
        "names",
        "; dnsperf\nhost2.example.com AAAA\nexample.com SOA\nhost0.example.com TXT\n",
    )?;
    let names = names.to_string_lossy();
    let more = [
        "--names",
        &names,
        "--count",
        "300",
        "--rate",
        "1k",
        "--ecs",
        "10.0.0.0/8",
        "--dnssec-ok",
        "--max-loss",
        "0",
    ];
    let narrow = ["--server", "2001:db8:1::1", "--source", "2001:db8:1::/123"];
    let report = bench.report(&[&narrow[..], &more].concat())?;
    ensure!(
        report["answered"] == 300 && report["addresses"]["2001:db8::12"] == 100,
        "{report}"
    );
    ensure!(report["rcodes"]["NOERROR"] == 300, "{report}");

    // A wrong expectation is an exit code.
    let wrong = bench.lab.write("wrong", "host0.example.com 203.0.113.1\n")?;
    let one = [
        "--name",
        "host0.example.com",
        "--rate",
        "100",
        "--count",
        "10",
        "--max-loss",
        "5",
    ];
    let finished = bench.pktgen(&[&v4[..], &one, &["--verify", &wrong.to_string_lossy()]].concat())?;
    ensure!(
        finished.code == 1 && finished.stderr.contains("--max-loss 5"),
        "{finished:?}"
    );

    // Nobody there: said in words, and what to do.
    let nobody = ["--server", "2001:db8:1::99", "--source", "2001:db8:1::/64"];
    let finished = bench.pktgen(&[&nobody[..], &one].concat())?;
    ensure!(
        finished.code == 2
            && finished
                .stderr
                .contains("nobody on this link answers for 2001:db8:1::99"),
        "{finished:?}"
    );

    // While it runs, its addresses answer ARP, neighbour solicitations and echo.
    let slow = ["--name", "host0.example.com", "--rate", "10", "--duration", "8s"];
    for (addresses, ping) in [(v4, "192.0.2.9"), (v6, "2001:db8:1::9")] {
        let mut argv = vec![
            PKTGEN,
            "dns",
            "--port",
            "net_af_packet0,iface=veth0",
            "--idle",
            "sleep",
        ];
        argv.extend(addresses.iter().chain(&slow));
        let child = bench.generator.spawn(&argv)?;
        eventually("echo answered", Duration::from_secs(8), || {
            Ok(bench
                .server
                .command(&["ping", "-c", "2", "-i", "0.2", "-W", "1", "-s", "700", ping])
                .is_ok())
        })?;
        drop(child);
    }
    Ok(())
}
