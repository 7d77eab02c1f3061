//! Real resolvers in front of Windrose, which come from a root of their own by its delegation; and the clients of those who
//! look after DNS.

use super::{CLIENT, SERVICE, World, world};
use std::net::IpAddr;
use std::time::Duration;
use windrose_tests::client::dig;
use windrose_tests::laws;
use windrose_tests::peer::{Kind, Peer};

const LONG: Duration = Duration::from_secs(60);
/// The resolvers' root: delegates to Windrose, as its parents would.
const ROOT: &str = "\
.            3600 IN SOA root.test. hostmaster.test. 1 7200 900 1209600 60
.            3600 IN NS root.test.
root.test.   3600 IN A 10.53.0.9
example.com. 3600 IN NS ns1.example.com.
example.net. 3600 IN NS ns1.example.com.
ns1.example.com. 3600 IN A 192.0.2.53
";
const SERVICES: &str = r#"
[[isp]]
name = "here"
prefixes = ["192.0.2.0/24"]

[[site]]
name = "near"
isp = "here"

[[site]]
name = "far"

[[service]]
name = "gslb.example.com"
ttl = 30
chain = ["health", "isp", "static"]
member = [
    { address = "198.51.100.2", site = "far" },
    { address = "198.51.100.1", site = "near" },
]
"#;

/// Question, RCODE, and the answer section.
const QUESTIONS: &[(&str, &str, &[&str])] = &[
    (
        "www.example.com A",
        "NOERROR",
        &["www.example.com. A 192.0.2.80", "www.example.com. A 192.0.2.81"],
    ),
    (
        "www.example.com AAAA",
        "NOERROR",
        &["www.example.com. AAAA 2001:db8:1::80"],
    ),
    (
        "web2.example.com A",
        "NOERROR",
        &[
            "web.example.com. CNAME www.example.com.",
            "web2.example.com. CNAME web.example.com.",
            "www.example.com. A 192.0.2.80",
            "www.example.com. A 192.0.2.81",
        ],
    ),
    (
        "far.example.com A",
        "NOERROR",
        &[
            "far.example.com. CNAME www.example.net.",
            "www.example.net. A 198.51.100.80",
        ],
    ),
    (
        "www.dn.example.com A",
        "NOERROR",
        &[
            "dn.example.com. DNAME example.net.",
            "www.dn.example.com. CNAME www.example.net.",
            "www.example.net. A 198.51.100.80",
        ],
    ),
    (
        "a.b.wild.example.com A",
        "NOERROR",
        &["a.b.wild.example.com. A 192.0.2.95"],
    ),
    ("absent.example.com A", "NXDOMAIN", &[]),
    (
        "absent.dn.example.com AAAA",
        "NXDOMAIN",
        &[
            "absent.dn.example.com. CNAME absent.example.net.",
            "dn.example.com. DNAME example.net.",
        ],
    ),
    ("ent.example.com A", "NOERROR", &[]),
    (
        "deep.ent.example.com A",
        "NOERROR",
        &["deep.ent.example.com. A 192.0.2.94"],
    ),
    ("gslb.example.com AAAA", "NOERROR", &[]),
    ("gslb.example.com HTTPS", "NOERROR", &[]),
    (
        "gslb.example.com A",
        "NOERROR",
        &["gslb.example.com. A 198.51.100.1"],
    ),
    (
        "gSlB.eXample.com A",
        "NOERROR",
        &["gslb.example.com. A 198.51.100.1"],
    ),
    (
        "opaque.example.com TYPE65280",
        "NOERROR",
        &["opaque.example.com. TYPE65280 \\# 6 C00C03777777"],
    ),
];

fn start() -> World {
    let world = world("dn IN DNAME example.net.\n", SERVICES).unwrap();
    world.lab.write("root.zone", ROOT).unwrap();
    world
}

/// All questions to the resolver at `address`, over UDP and TCP.
fn resolves(world: &World, address: IpAddr) {
    for how in ["+notcp", "+tcp"] {
        for (question, rcode, answer) in QUESTIONS {
            let reply = dig(&world.client, address, &format!("{question} +rec {how}")).unwrap();
            let mut got: Vec<String> = reply
                .answer
                .iter()
                .map(|r| format!("{} {} {}", r.name, r.rtype, r.rdata).to_lowercase())
                .collect();
            got.sort();
            assert_eq!(
                (reply.status.as_str(), got),
                (*rcode, answer.iter().map(|line| line.to_lowercase()).collect()),
                "{}",
                reply.text
            );
            assert!(
                reply
                    .answer
                    .iter()
                    .all(|r| !r.name.starts_with("gslb") || r.ttl <= 30),
                "{}",
                reply.text
            );
        }
        // No datagram holds these: the resolver has come back over TCP.
        for (question, count) in [("huge.example.com TXT", 1), ("many.example.com A", 40)] {
            let reply = dig(&world.client, address, &format!("{question} +rec +tcp")).unwrap();
            assert_eq!(
                (reply.status.as_str(), reply.answer.len()),
                ("NOERROR", count),
                "{}",
                reply.text
            );
        }
    }
}

fn resolver(kind: Kind) {
    let mut world = start();
    let root = "10.53.0.9".parse().unwrap();
    let _root = Peer::authority(&world.lab, &world.client, Kind::Nsd, root, &["."]).unwrap();
    let address = "10.53.0.11".parse().unwrap();
    let resolver = Peer::resolver(
        &world.lab,
        &world.client,
        kind,
        address,
        root,
        "www.example.net A",
    )
    .unwrap();
    resolves(&world, resolver.address);
    let appliance = world.appliance.take().unwrap();
    let tcp = appliance.status().unwrap()["tcp"]["connections"]["accepted"]
        .as_u64()
        .unwrap();
    assert!(tcp > 0, "nothing came over TCP");
    let totals = laws::hold(&appliance.stop().unwrap()).unwrap();
    let replied = totals["replied"];
    assert!(kind == Kind::UnboundTcp || replied > 10, "{totals:?}");
}

#[test]
fn unbound_resolves_through_windrose() {
    resolver(Kind::Unbound);
}

#[test]
fn unbound_resolves_through_windrose_over_tcp_alone() {
    resolver(Kind::UnboundTcp);
}

#[test]
fn knot_resolver_resolves_through_windrose() {
    resolver(Kind::KnotResolver);
}

/// delv parses with BIND's library and judges what it gets; dnsviz looks for faults of EDNS, of negative answers, of TCP, of
/// delegations.
#[test]
fn delv_and_dnsviz_find_no_fault() {
    let mut world = start();
    let server = format!("@{SERVICE}");
    for (query, wanted) in [
        ("www.example.com A", "www.example.com.\t3600\tIN\tA\t192.0.2.80"),
        ("gslb.example.com A", "gslb.example.com.\t30\tIN\tA\t198.51.100.1"),
        ("far.example.com A", "www.example.net.\t600\tIN\tA\t198.51.100.80"),
    ] {
        for how in ["+notcp", "+tcp"] {
            let argv: Vec<&str> = ["delv", "-i", &server, how]
                .into_iter()
                .chain(query.split(' '))
                .collect();
            let got = world.client.command(&argv).unwrap();
            assert!(got.contains(wanted), "{query} {how}:\n{got}");
        }
    }
    let probe = world.lab.folder().join("probe.json");
    let probe = probe.to_string_lossy();
    let delegation = format!("example.net+:ns1.example.com={SERVICE}");
    let argv = [
        "dnsviz",
        "probe",
        "-A",
        "-x",
        &delegation,
        "-o",
        &probe,
        "example.net",
    ];
    let probed = world.client.run(&argv, LONG).unwrap();
    assert_eq!(probed.code, 0, "{}{}", probed.stdout, probed.stderr);
    let argv = ["dnsviz", "grok", "-l", "warning", "-r", &probe];
    let faults = world.client.run(&argv, LONG).unwrap();
    // What has no fault at this level is not printed at all.
    assert_eq!((faults.code, faults.stdout.trim()), (0, ""), "{}", faults.stderr);
    // That it asked, and understood what it got.
    let argv = ["dnsviz", "grok", "-l", "info", "-r", &probe];
    let seen = world.client.run(&argv, LONG).unwrap().stdout;
    assert!(seen.contains("192.0.2.53") && seen.contains("NOERROR"), "{seen}");
    assert!(CLIENT.starts_with("192.0.2."), "the ISP above");
    laws::hold(&world.appliance.take().unwrap().stop().unwrap()).unwrap();
}
