//! Sites' agents in namespaces of their own, and an appliance that they report to: one is cut off, one lies, one is slow.
//! Round-trip times to hosts behind the appliance's kernel. Needs root.
//!
//! The world of `configs/demo.toml`; reports go to an address of their own, so that they can be cut off without the
//! health checks.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use windrose_tests::appliance::{program, windrose};
use windrose_tests::client::dig;
use windrose_tests::lab::Host;
use windrose_tests::laws;
use windrose_tests::process::{Child, eventually};
use windrose_tests::world::{Kind, World};

/// A test's patience on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Where reports go to: an address of the appliance's host that no check uses.
const RECEIVER: &str = "10.99.0.1";
const TOKENS: [&str; 3] = [
    "token-of-seoul-kt-1",
    "token-of-seoul-lg-1",
    "token-of-busan-site",
];

/// The world with an appliance that takes reports; busan is avoided when it is silent. `more` goes into `[reports]`.
fn world(more: &str) -> World {
    let mut world = World::build(1).unwrap();
    world.host.address("lo", &format!("{RECEIVER}/32")).unwrap();
    for (site, (wire, via)) in world.sites.iter().zip([("to-a", 1), ("to-b", 65), ("to-c", 129)]) {
        assert!(
            world
                .host
                .ip(&format!("addr show dev {wire}"))
                .unwrap()
                .contains(&format!("198.51.100.{via}/"))
        );
        site.host
            .ip(&format!("route add default via 198.51.100.{via}"))
            .unwrap();
    }
    for (site, token) in world.sites.iter().zip(TOKENS) {
        secret(&world, &format!("{}.token", site.name), token);
    }
    let state = world.lab.folder().join("state").to_string_lossy().into_owned();
    let config = world.config(Kind::AfPacket, 1, |text| {
        let mut text = text.replace("name = \"demo\"", &format!("name = \"demo\"\nstate = \"{state}\""));
        for site in ["seoul-kt", "seoul-lg", "busan"] {
            let key = format!("[[site]]\nname = \"{site}\"\n");
            assert!(text.contains(&key), "demo.toml has another form");
            text = text.replace(&key, &format!("{key}token_file = \"{site}.token\"\n"));
        }
        let text = text.replace("token_file = \"busan.token\"\n", "token_file = \"busan.token\"\non_silence = \"avoid\"\n");
        format!(
            "{text}\n[reports]\nlisten = \"{RECEIVER}:8853\"\ninterval = \"300ms\"\nsilent_after = \"2s\"\n{more}"
        )
    });
    world.start(&config.unwrap()).unwrap();
    world
}

fn secret(world: &World, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = world.lab.write(name, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Starts the agent of a site, with `more` in its file and the token of the file `token`.
fn agent(world: &mut World, site: usize, token: &str, more: &str) -> Child {
    let status = world.appliance().unwrap().status().unwrap();
    let fingerprint = status["reports"]["fingerprint"].as_str().unwrap().to_owned();
    let Site { name, address, host } = Site::of(world, site);
    let text = format!(
        "site = \"{name}\"\ntoken_file = \"{token}\"\n\
         [[appliance]]\naddress = \"{RECEIVER}\"\nfingerprint = \"{fingerprint}\"\n\
         [[member]]\naddress = \"{address}\"\n\
         check = {{ kind = \"http\", port = 8080, path = \"/healthz\", interval = \"200ms\", fall = 2, rise = 2 }}\n{more}"
    );
    let file = world.lab.write(&format!("agent-{name}.toml"), &text).unwrap();
    let program = program("windrose").unwrap();
    let argv = [
        "env",
        "WINDROSE_LOG=debug",
        &*program.to_string_lossy(),
        "agent",
        "-c",
        &*file.to_string_lossy(),
    ];
    host.spawn(&argv).unwrap()
}

struct Site {
    name: &'static str,
    address: IpAddr,
    host: Host,
}

impl Site {
    fn of(world: &World, site: usize) -> Self {
        let site = &world.sites[site];
        Self {
            name: site.name,
            address: site.ipv4.into(),
            host: site.host.clone(),
        }
    }
}

/// What the status says of a site's reports.
fn report(world: &mut World, site: usize) -> Result<Value> {
    let name = world.sites[site].name;
    let status = world.appliance()?.status()?;
    let sites = status["sites"].as_array().context("sites")?;
    let found = sites
        .iter()
        .find(|known| known["name"] == name)
        .context("the site")?;
    Ok(found["report"].clone())
}

/// Waits until what the status says of a site is as `wanted`.
fn wait_for(world: &mut World, agents: &[&Child], site: usize, what: &str, wanted: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let waited = eventually(what, LONG, || {
        last = report(world, site)?;
        Ok(wanted(&last))
    });
    if let Err(error) = waited {
        let logs: String = agents.iter().map(|agent| agent.output()).collect();
        let appliance = world.appliance().unwrap().log();
        panic!("{error:#}: {last}\n{appliance}\nagents:\n{logs}");
    }
}

fn count(world: &mut World, outcome: &str) -> u64 {
    let family = "windrose_report_requests_total";
    world.appliance().unwrap().metric(family, "outcome").unwrap()[outcome]
}

/// Every member that live.example.com gives: two of those that are candidates, in turn.
fn given(world: &World) -> BTreeSet<IpAddr> {
    let kt = &world.isps[0];
    let ask = |_| {
        dig(&kt.host, kt.server(false), "live.example.com A")
            .unwrap()
            .addresses()
    };
    (0..12).flat_map(ask).collect()
}

fn waits_until_given(world: &World, wanted: &[usize]) {
    let wanted: BTreeSet<IpAddr> = wanted.iter().map(|&site| world.sites[site].ipv4.into()).collect();
    let mut last = BTreeSet::new();
    let given = eventually("who is given", LONG, || {
        last = given(world);
        Ok(last == wanted)
    });
    given.unwrap_or_else(|error| panic!("{error:#}: {last:?}, not {wanted:?}"));
}

/// Cuts the way of reports from a site, or restores it.
fn cut(world: &World, site: usize, is_cut: bool) {
    let host = &world.sites[site].host;
    if is_cut {
        host.ip(&format!("route add blackhole {RECEIVER}/32")).unwrap();
    } else {
        host.ip(&format!("route del blackhole {RECEIVER}/32")).unwrap();
    }
}

fn stops_well(mut agent: Child) {
    agent.signal(Signal::SIGTERM).unwrap();
    let end = agent.wait(LONG).unwrap();
    assert_eq!(end.code, 0, "{}", end.stderr);
    assert!(end.stderr.contains("stopping"), "{}", end.stderr);
}

#[test]
fn one_is_cut_off_one_lies_one_is_slow() {
    let mut world = world("");
    secret(&world, "wrong.token", "a-token-that-nobody-has");
    // Slow: what it reads from one source never comes, what the other says does.
    let slow = "[[reading]]\nfrom = \"command\"\ncommand = [\"sleep\", \"60\"]\ntimeout = \"400ms\"\n\
                [[reading]]\nfrom = \"command\"\ncommand = [\"echo\", \"sessions=400000\"]\n";
    let slow = agent(&mut world, 0, "seoul-kt.token", slow);
    let liar = agent(&mut world, 1, "wrong.token", "");
    let load = "[[reading]]\nfrom = \"command\"\n\
                command = [\"echo\", \"{\\\"bandwidth_bps\\\": 900000000, \\\"connections_per_second\\\": 1200}\"]\n";
    let busan = agent(&mut world, 2, "busan.token", load);
    let agents = [&slow, &liar, &busan];

    wait_for(&mut world, &agents, 0, "the slow one reports", |site| {
        site["sessions"] == 400_000 && site["members"][0] == 1 && site["taken"].as_u64() > Some(3)
    });
    wait_for(&mut world, &agents, 2, "busan reports", |site| {
        site["bandwidth_bps"] == 900_000_000
            && site["connections_per_second"] == 1200
            && site["silent"] == false
    });
    assert!(
        slow.output().contains("nothing within 400ms"),
        "{}",
        slow.output()
    );

    // The liar: refused, counted, told; nothing of it is known.
    eventually("the liar is refused", LONG, || {
        Ok(count(&mut world, "bad_token") > 0)
    })
    .unwrap();
    wait_for(&mut world, &agents, 1, "nothing of the liar is known", |site| {
        site["silent"] == true && site["age_s"].is_null() && site["taken"] == 0
    });
    assert!(liar.output().contains("refused with 401"), "{}", liar.output());
    let log = world.appliance().unwrap().log();
    assert!(
        log.contains("report refused") && log.contains("bad_token"),
        "{log}"
    );
    assert!(
        !log.contains("a-token-that-nobody-has"),
        "tokens stay out of the log"
    );
    // Its rule is to ignore that: its members are up, and given.
    waits_until_given(&world, &[0, 1, 2]);

    // Cut off: silent by its time, and avoided, though its checks go on well.
    cut(&world, 2, true);
    wait_for(&mut world, &agents, 2, "busan is silent", |site| {
        site["silent"] == true
    });
    let shown = report(&mut world, 2).unwrap();
    assert!(
        shown["age_s"].as_f64() > Some(2.0) && shown["on_silence"] == "avoid",
        "{shown}"
    );
    waits_until_given(&world, &[0, 1]);
    assert!(world.appliance().unwrap().log().contains("site is silent"));
    let screen = world.appliance().unwrap().ask(&["status"]).unwrap();
    assert!(
        screen.contains("SILENT (avoid)") && screen.contains("reports refused: bad_token"),
        "{screen}"
    );
    let silent = world
        .appliance()
        .unwrap()
        .metric("windrose_site_silent", "site")
        .unwrap();
    assert_eq!((silent["seoul-kt"], silent["busan"]), (0, 1));

    // Everybody is silent: it is the reports that fail, and nobody is avoided for it.
    cut(&world, 0, true);
    wait_for(&mut world, &agents, 0, "seoul-kt is silent", |site| {
        site["silent"] == true
    });
    waits_until_given(&world, &[0, 1, 2]);
    let status = world.appliance().unwrap().status().unwrap();
    assert_eq!(status["reports"]["feed_down"], true, "{}", status["reports"]);
    assert!(
        world
            .appliance()
            .unwrap()
            .log()
            .contains("no site reports any more")
    );

    // One is back: the other is avoided again, then back as well.
    cut(&world, 0, false);
    wait_for(&mut world, &agents, 0, "seoul-kt reports again", |site| {
        site["silent"] == false
    });
    waits_until_given(&world, &[0, 1]);
    cut(&world, 2, false);
    wait_for(&mut world, &agents, 2, "busan reports again", |site| {
        site["silent"] == false
    });
    waits_until_given(&world, &[0, 1, 2]);

    // Another system in the liar's place, by curl.
    let body = r#"{"version": 1, "site": "seoul-lg", "sequence": 1, "totals": {"sessions": 300000}}"#;
    let header = format!("Authorization: Bearer {}", TOKENS[1]);
    let url = format!("https://{RECEIVER}:8853/v1/report");
    let answer = world.sites[1]
        .host
        .run(&["curl", "-sS", "-k", &url, "-H", &header, "--data", body], LONG)
        .unwrap()
        .success()
        .unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (answer["interval_ms"].as_u64(), answer["silent_after_ms"].as_u64()),
        (Some(300), Some(2000))
    );
    assert_eq!(report(&mut world, 1).unwrap()["sessions"], 300_000);

    // A member that dies at its site is reported as down.
    world.sites[0].origin.crash().unwrap();
    wait_for(&mut world, &agents, 0, "the member is down", |site| {
        site["members"] == serde_json::json!([0, 1])
    });
    for agent in [slow, liar, busan] {
        stops_well(agent);
    }
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn round_trip_times_come_by_icmp_and_by_tcp_where_icmp_is_silent() {
    let mut world =
        world("measure = [\"10.9.1.53/32\", \"10.9.2.0/24\", \"10.9.3.53/32\"]\nrtt_every = \"1s\"\n");
    // Behind the appliance's kernel: one that replies to echoes, one that only refuses TCP; 10.9.3.0/24 leads nowhere.
    world.host.sysctl("net.ipv4.ip_forward", "1").unwrap();
    let mut hosts = Vec::new();
    for (name, wire, net, last) in [("echo", "to-e", 1, 53), ("quiet", "to-q", 2, 1)] {
        let host = world.lab.host(name).unwrap();
        world.lab.link(&world.host, wire, &host, "eth0").unwrap();
        world.host.address(wire, &format!("10.9.{net}.254/24")).unwrap();
        host.address("eth0", &format!("10.9.{net}.{last}/24")).unwrap();
        host.ip(&format!("route add default via 10.9.{net}.254")).unwrap();
        hosts.push(host);
    }
    hosts[1].sysctl("net.ipv4.icmp_echo_ignore_all", "1").unwrap();
    world.host.ip("route add blackhole 10.9.3.0/24").unwrap();
    let rtt = "[rtt]\ntimeout = \"300ms\"\nsamples = 3\nper_second = 100\n";
    let agent = agent(&mut world, 0, "seoul-kt.token", rtt);
    wait_for(&mut world, &[&agent], 0, "two prefixes are known", |site| {
        site["rtts"] == 2
    });
    let log = agent.output();
    let measured = |prefix: &str| {
        let line = log
            .lines()
            .find(|line| line.contains("measured") && line.contains(prefix));
        line.unwrap_or_else(|| panic!("{prefix} was not measured:\n{log}"))
            .to_owned()
    };
    assert!(
        measured("10.9.1.53/32").contains("Icmp, 3"),
        "{}",
        measured("10.9.1.53/32")
    );
    // Its first host, by a reset from port 53.
    assert!(
        measured("10.9.2.0/24").contains("Tcp, 3"),
        "{}",
        measured("10.9.2.0/24")
    );
    eventually("the third is tried", LONG, || {
        let log = agent.output();
        Ok(log
            .lines()
            .any(|line| line.contains("10.9.3.53/32") && line.contains("None")))
    })
    .unwrap();
    assert_eq!(
        report(&mut world, 0).unwrap()["rtts"],
        2,
        "a prefix without a reply has no time"
    );
    let rtts = world
        .appliance()
        .unwrap()
        .metric("windrose_site_rtts", "site")
        .unwrap();
    assert_eq!(rtts["seoul-kt"], 2);
    stops_well(agent);
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_pin_that_does_not_fit_and_a_file_that_is_wrong_are_told() {
    let mut world = world("");
    let Site { name, host, .. } = Site::of(&world, 0);
    let text = format!(
        "site = \"{name}\"\ntoken_file = \"{name}.token\"\n[[appliance]]\naddress = \"{RECEIVER}\"\n\
         fingerprint = \"{}\"\n[[member]]\naddress = \"198.51.100.11\"\ncheck = {{ kind = \"tcp\", port = 8080 }}\n",
        "00".repeat(32)
    );
    let file = world.lab.write("agent.toml", &text).unwrap();
    let file = file.to_string_lossy();
    // What would be sent, without sending it.
    let printed = windrose(Some(&host), &["agent", "-c", &*file, "--dry-run"])
        .unwrap()
        .success()
        .unwrap();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["members"][0]["up"], true, "{printed}");
    assert_eq!(
        (printed["site"].as_str(), printed["version"].as_u64()),
        (Some(name), Some(1))
    );

    let program = program("windrose").unwrap();
    let agent = host
        .spawn(&[&*program.to_string_lossy(), "agent", "-c", &*file])
        .unwrap();
    eventually("the pin does not fit", LONG, || {
        Ok(agent.output().contains("the certificate has fingerprint"))
    })
    .unwrap();
    let fingerprint = world.appliance().unwrap().status().unwrap()["reports"]["fingerprint"].clone();
    assert!(
        agent.output().contains(fingerprint.as_str().unwrap()),
        "{}",
        agent.output()
    );
    eventually("a handshake that failed is counted", LONG, || {
        Ok(count(&mut world, "bad_handshake") > 0)
    })
    .unwrap();
    stops_well(agent);

    let bad = world
        .lab
        .write("bad.toml", &text.replace("site =", "sight ="))
        .unwrap();
    let refused = windrose(Some(&host), &["agent", "-c", &*bad.to_string_lossy()]).unwrap();
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .stderr
            .contains("bad.toml:1:1: error: unknown key `sight`"),
        "{}",
        refused.stderr
    );
    laws::hold_after_stop(&mut world).unwrap();
}
