//! `windrose explain` and `windrose status` for names that lead elsewhere and for services that answer with names. Needs root.

use windrose_tests::appliance::{Appliance, one_port};
use windrose_tests::lab::Lab;

const ZONE: &str = r"$ORIGIN example.com.
$TTL 300
@       SOA ns1 hostmaster 1 3600 600 86400 60
@       NS ns1
ns1     A 192.0.2.53
*.wild  A 192.0.2.3
deep.ent A 192.0.2.4
old     DNAME img
toimg   CNAME x.img
tocut   CNAME x.child
child   NS ns.child
ns.child A 192.0.2.99
$GENERATE 1-200 big A 192.0.2.$
";

/// In KT, the first service has an address at its first tier and a name at its second; the second service only an
/// address that is down before a name; the third is a wildcard.
const SERVICES: &str = r#"
[[isp]]
name = "KT"
prefixes = ["10.1.0.0/16"]
[[site]]
name = "seoul"
isp = "KT"
[[site]]
name = "cdn"
[[zone]]
name = "example.com"
file = "example.zone"
[[service]]
name = "mixed.example.com"
member = [ { address = "198.51.100.1", site = "seoul" }, { cname = "www.cdn.test", site = "cdn" } ]
[[service]]
name = "spare.example.com"
check = { kind = "tcp", port = 9, interval = "1s", fall = 1 }
member = [ { address = "198.51.100.9", site = "seoul" }, { cname = "www.cdn.test", site = "cdn" } ]
[[service]]
name = "*.img.example.com"
member = [ { address = "198.51.100.2", site = "seoul" }, { address = "198.51.100.3", site = "cdn" } ]
"#;

#[test]
fn names_that_lead_elsewhere_are_explained() {
    let mut lab = Lab::new().unwrap();
    let host = lab.host("app").unwrap();
    // Nobody listens at it: its check is refused.
    host.address("lo", "198.51.100.9/32").unwrap();
    let socket = lab.folder().join("admin.sock");
    lab.write("example.zone", ZONE).unwrap();
    let config = lab
        .write("windrose.toml", &(one_port("net_ring0", &socket) + SERVICES))
        .unwrap();
    let appliance = Appliance::start(&host, &config, &socket).unwrap();
    for (name, rtype, lines) in CASES {
        let args = ["explain", name, rtype, "--from", "10.1.2.3"];
        let text = appliance.ask(&args).unwrap();
        let shown: Vec<&str> = text.lines().collect();
        for line in *lines {
            match line.strip_prefix("no ") {
                Some(label) => assert!(!shown.iter().any(|l| l.starts_with(label)), "{label}\n{text}"),
                None => assert!(shown.contains(line), "{line}\n{text}"),
            }
        }
    }
    let status = appliance.ask(&["status"]).unwrap();
    let rows: Vec<Vec<&str>> = status.lines().map(|l| l.split_whitespace().collect()).collect();
    for row in [
        "www.cdn.test. cdn up - - - 1 16/16 a name: counts as up",
        "198.51.100.1 seoul up - - - 1 16/16 no check",
        "service *.img.example.com",
    ] {
        let words: Vec<&str> = row.split(' ').collect();
        assert!(rows.contains(&words), "{row}\n{status}");
    }
    let down = rows
        .iter()
        .find(|row| row.first() == Some(&"198.51.100.9"))
        .unwrap();
    assert_eq!(down[2], "down", "{status}");
    appliance.stop().unwrap();
}

/// Name, type, and lines that must be shown; with `no ` before it, a label that must not be.
const CASES: &[(&str, &str, &[&str])] = &[
    (
        "mixed.example.com",
        "A",
        &[
            "tiers     1: seoul (198.51.100.1)",
            "          2: cdn (www.cdn.test.)",
            "draw      round robin from tier 1: 198.51.100.1 at seoul",
            "answer    NOERROR, TTL 30, generation 1",
            "          mixed.example.com. 30 A 198.51.100.1",
            "no name",
            "no authority",
        ],
    ),
    // Since an address was drawn, there is nothing for other types.
    (
        "mixed.example.com",
        "AAAA",
        &[
            "draw      an address was drawn, so the answer is no name; no member has this type",
            "answer    NOERROR (nodata), TTL 60, generation 1",
            "authority example.com. 60 SOA ns1.example.com. hostmaster.example.com. 1 3600 600 86400 60",
        ],
    ),
    (
        "spare.example.com",
        "TXT",
        &[
            "tiers     1: seoul (198.51.100.9 down)",
            "draw      round robin from tier 2: www.cdn.test. at cdn",
            "          spare.example.com. 30 CNAME www.cdn.test.",
        ],
    ),
    (
        "y.img.example.com",
        "A",
        &[
            "name      covered by *.img.example.com",
            "service   *.img.example.com",
            "          y.img.example.com. 30 A 198.51.100.2",
        ],
    ),
    (
        "y.old.example.com",
        "A",
        &[
            "name      renamed by the DNAME at old.example.com",
            "          leads to *.img.example.com",
            "          old.example.com. 300 DNAME img.example.com.",
            "          y.old.example.com. 300 CNAME y.img.example.com.",
            "          y.img.example.com. 30 A 198.51.100.2",
        ],
    ),
    (
        "toimg.example.com",
        "A",
        &[
            "service   *.img.example.com",
            "          toimg.example.com. 300 CNAME x.img.example.com.",
            "          x.img.example.com. 30 A 198.51.100.2",
        ],
    ),
    (
        "a.wild.example.com",
        "A",
        &[
            "class     not looked up: the answer is the same for all",
            "name      covered by *.wild.example.com",
            "          a.wild.example.com. 300 A 192.0.2.3",
        ],
    ),
    (
        "x.child.example.com",
        "A",
        &[
            "name      delegated at child.example.com",
            "answer    NOERROR (referral), TTL 300, generation 1",
            "authority child.example.com. 300 NS ns.child.example.com.",
        ],
    ),
    (
        "tocut.example.com",
        "A",
        &["authority child.example.com. 300 NS ns.child.example.com."],
    ),
    (
        "ent.example.com",
        "A",
        &["answer    NOERROR (nodata), TTL 60, generation 1", "no name"],
    ),
    (
        "none.example.com",
        "A",
        &[
            "name      not there; the closest name above it is example.com",
            "answer    NXDOMAIN, TTL 60, generation 1",
        ],
    ),
    (
        "www.example.org",
        "A",
        &[
            "zone      none of ours",
            "answer    REFUSED, generation 1",
            "error     Not Authoritative",
        ],
    ),
    (
        "big.example.com",
        "A",
        &["answer    NOERROR, truncated: whole over TCP, generation 1"],
    ),
];
