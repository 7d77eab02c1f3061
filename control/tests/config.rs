//! The configuration as its user meets it: files on disk, and what `load` says of them. Expected places
//! are counted by hand; record data comes from the RFCs that define it.

// LONG: one table of what can be wrong with a file; each case is a few lines.

use control::config::model::{
    AllDown, BrownoutRule, CheckKind, ClientPrefix, Config, CookieMode, Latency, Metric, Role, Spread,
};
use control::config::{Diagnostics, Severity, load_with_warnings};
use control::data::Place;
use control::policy::chain::facts::{Continent, Country, Location};
use dataplane::wire::cookie::Secret;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A configuration that is right, 16 lines, to which cases add or of which they replace a line.
const GOOD: &str = r#"[dataplane]
cores = [1]
[[port]]
name = "wan"
device = "net_null0"
addresses = ["192.0.2.53"]
[[isp]]
name = "KT"
prefixes = ["198.18.0.0/16"]
[[site]]
name = "seoul-kt"
isp = "KT"
[[zone]]
name = "example.com"
file = "example.zone"
[[service]]
name = "vod.example.com"
member = [ { address = "203.0.113.1", site = "seoul-kt" } ]
"#;

const ZONE: &str = "$TTL 300\n@ SOA ns1 host 1 3600 900 604800 300\n@ NS ns1\nns1 A 192.0.2.53\n";

struct Files {
    dir: TempDir,
}

impl Files {
    fn new(toml: &str, zone: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("windrose.toml"), toml).expect("written");
        std::fs::write(dir.path().join("example.zone"), zone).expect("written");
        Self { dir }
    }

    fn load(&self) -> Result<(Config, Diagnostics), Diagnostics> {
        load_with_warnings(&self.dir.path().join("windrose.toml"))
    }
}

/// `GOOD` with line `number` (from 1) replaced.
fn with_line(number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    lines[number - 1] = line;
    lines.join("\n")
}

fn with_more(more: &str) -> String {
    format!("{GOOD}{more}")
}

/// Each finding as "FILE:LINE:COLUMN: message (help)".
fn shown(found: &Diagnostics) -> Vec<String> {
    let one = |d: &control::config::Diagnostic| {
        let file = d
            .file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let help = d.help.as_deref().unwrap_or_default();
        format!("{file}:{}:{}: {} ({help})", d.line, d.column, d.message)
    };
    found.iter().map(one).collect()
}

/// The load fails, and one finding begins with `place` and holds `fragment`.
fn assert_refused(toml: &str, zone: &str, place: &str, fragment: &str) {
    let files = Files::new(toml, zone);
    let found = match files.load() {
        Err(found) => shown(&found),
        Ok(_) => panic!("taken, though wrong at {place}: {fragment}\n{toml}"),
    };
    let hit = found
        .iter()
        .any(|text| text.starts_with(&format!("{place}: ")) && text.contains(fragment));
    assert!(
        hit,
        "no finding at {place} with `{fragment}`; there are {found:#?}\n{toml}"
    );
}

#[test]
fn the_good_one_is_taken_with_its_defaults() {
    let (config, warnings) = Files::new(GOOD, ZONE)
        .load()
        .unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(shown(&warnings), [""; 0]);
    assert_eq!(config.appliance.name, "windrose");
    assert_eq!(config.dataplane.memory_bytes, 268_435_456);
    assert_eq!(config.dns.udp_size_max, 1232);
    assert_eq!(config.dns.cookies.mode, CookieMode::On);
    assert!(config.dns.cookies.secrets.is_none() && config.dns.rate_limit.is_none());
    assert_eq!(config.sites[0].isp, Some(0));
    assert_eq!(config.sites[0].preference, 128);
    assert_eq!(config.admin.socket, Path::new("/run/windrose.sock"));
    let service = &config.services[0];
    assert_eq!(
        (service.ttl, service.answers, service.spread),
        (30, 1, Spread::RoundRobin)
    );
    assert_eq!(
        service.chain,
        [
            Metric::Health,
            Metric::Capacity,
            Metric::Isp,
            Metric::Preference,
            Metric::Static
        ]
    );
    assert_eq!(service.when_all_down, AllDown::LastGood);
    assert_eq!((service.members[0].weight, service.members[0].site), (1, 0));
    assert!(service.check.is_none());
}

#[test]
fn every_shipped_configuration_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let files = std::fs::read_dir(&folder)
        .expect("configs/")
        .map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> = files
        // The agent's own is loaded by its tests.
        .filter(|path| path.extension().is_some_and(|e| e == "toml") && !path.ends_with("agent.toml"))
        .collect();
    assert!(
        files.iter().any(|path| path.ends_with("example.toml")),
        "{files:?}"
    );
    for file in files {
        let (_, warnings) = load_with_warnings(&file).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(shown(&warnings), [""; 0], "{}", file.display());
    }
}

#[test]
fn the_tour_says_what_its_comments_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/example.toml");
    let (config, _) = load_with_warnings(&path).unwrap_or_else(|found| panic!("{found}"));
    let vod = &config.services[0];
    assert_eq!(vod.preference, [(2, 1)]);
    assert_eq!(vod.spread, Spread::Weighted);
    let check = vod.check.as_ref().expect("a check");
    assert_eq!(
        (check.timeout, check.rise, check.fall),
        (Duration::from_millis(800), 3, 3)
    );
    let CheckKind::Http {
        tls, path, expect, ..
    } = &check.kind
    else {
        panic!("{:?}", check.kind)
    };
    assert_eq!((*tls, path.as_str(), *expect), (false, "/healthz", (200, 299)));
    // The tour writes the defaults of the rules; one that says less is the same, but for `slower_than`.
    let rules = "check = { kind = \"icmp\", brownout = {}, dampening = {} }";
    let files = Files::new(
        &with_line(
            18,
            &format!("member = [ {{ address = \"203.0.113.9\", site = \"seoul-kt\" }} ]\n{rules}"),
        ),
        ZONE,
    );
    let (defaults, _) = files.load().unwrap_or_else(|found| panic!("{found}"));
    let own = &defaults.services[0].check.as_ref().expect("a check").grade;
    assert_eq!(check.grade.dampening, own.dampening);
    assert_eq!(own.slow_start, Duration::ZERO);
    let brownout = own.brownout.expect("a rule");
    assert_eq!(brownout.slower_than, None);
    let slower_than = Some(Duration::from_millis(500));
    assert_eq!(
        check.grade.brownout,
        Some(BrownoutRule {
            slower_than,
            ..brownout
        })
    );
    assert_eq!(check.grade.slow_start, Duration::from_secs(60));
    assert_eq!(
        config.appliance.state.as_deref(),
        Some(Path::new("/var/lib/windrose"))
    );
    assert_eq!(config.alerts.len(), 1);
    assert_eq!(
        (config.alerts[0].events.len(), config.alerts[0].timeout),
        (5, Duration::from_secs(5))
    );
    assert_eq!(
        config.services[1].when_all_down,
        AllDown::Fixed(vec!["192.0.2.9".parse().expect("v4")])
    );
    assert_eq!(
        config.services[1].check.as_ref().map(|check| check.port),
        Some(443)
    );
}

#[test]
fn ports_have_roles_and_latency_its_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/example.toml");
    let (config, _) = load_with_warnings(&path).unwrap_or_else(|found| panic!("{found}"));
    let roles: Vec<&Role> = config.ports.iter().map(|port| &port.role).collect();
    let bridge = |pair: &str| Role::Bridge(pair.into());
    assert_eq!(
        roles,
        [
            &Role::Service,
            &Role::Mirror,
            &bridge("servers"),
            &bridge("users")
        ]
    );
    assert_eq!(config.latency, Latency::default());
    let seconds = Duration::from_secs;
    let more = "[latency]\nflows = 5000\nidle = \"10s\"\ncutoff = \"2s\"\nepoch = \"3s\"\nquic_ports = [8443]\nquic_id = 4\n\
                window = \"12s\"\nhold = \"0s\"\ncells = 7\nfile = \"s.csv\"\nfile_size = \"5kB\"\nfile_keep = 2\n";
    let (config, _) = Files::new(&with_more(more), ZONE).load().expect("is right");
    let want = Latency {
        flows: 5000,
        idle: seconds(10),
        cutoff: seconds(2),
        epoch: seconds(3),
        quic_ports: vec![8443],
        quic_id: 4,
        window: seconds(12),
        hold: Duration::ZERO,
        cells: 7,
        file: Some(config.path.parent().unwrap().join("s.csv")),
        file_size: 5 << 10,
        file_keep: 2,
    };
    assert_eq!(config.latency, want);
    let port = |rest: &str| {
        with_more(&format!(
            "[[port]]\nname = \"x\"\ndevice = \"net_null1\"\n{rest}\n"
        ))
    };
    let cases = [
        (port("role = \"mirrored\""), "22:8", "did you mean `mirror`?"),
        (port("role = \"bridge\""), "19:1", "needs `pair`"),
        (
            port("role = \"bridge\"\npair = \"y\""),
            "19:1",
            "there is no port `y`",
        ),
        (port("role = \"bridge\"\npair = \"x\""), "19:1", "its own pair"),
        (
            port("role = \"bridge\"\npair = \"wan\""),
            "19:1",
            "`wan` is not a bridge port",
        ),
        (
            port("role = \"mirror\"\npair = \"wan\""),
            "23:8",
            "`pair` is for ports",
        ),
        (with_more("[latency]\nidle = \"1s\""), "20:8", "from 5s to 4m"),
        (
            with_more("[latency]\nquic_ports = [1, 2, 3, 4, 5]"),
            "20:14",
            "4 ports at most",
        ),
    ];
    for (toml, place, fragment) in cases {
        assert_refused(&toml, ZONE, &format!("windrose.toml:{place}"), fragment);
    }
}

#[test]
fn what_is_wrong_with_the_toml_is_said_where_it_is() {
    let zone = "[[zone]]\nname = \"EXAMPLE.com.\"\nfile = \"example.zone\"\n";
    let service = |rest: &str| {
        let member = "member = [ { address = \"203.0.113.9\", site = \"seoul-kt\" } ]";
        with_more(&format!(
            "[[service]]\nname = \"b.example.com\"\n{member}\n{rest}\n"
        ))
    };
    let cases: &[(String, &str, &str)] = &[
        (with_line(2, "core = [1]"), "2:1", "did you mean `cores`?"),
        (with_line(2, "core = [1]"), "1:1", "[dataplane] has no `cores`"),
        (
            with_line(2, "cores = 1"),
            "2:9",
            "must be an array, not an integer",
        ),
        (
            with_line(2, "cores = [1, 1]"),
            "2:13",
            "CPU 1 is given to two workers",
        ),
        (with_line(2, "cores = []"), "2:9", "is empty"),
        (
            with_line(2, "cores = [1]\nmemory = \"256\""),
            "3:10",
            "has no unit",
        ),
        (
            with_line(2, "cores = [1]\nmemory = \"64MB\"\nbuffers = 100_000"),
            "3:10",
            "more than `memory`",
        ),
        (
            with_line(2, "cores = [1]\nidle = \"spinn\""),
            "3:8",
            "did you mean `spin`?",
        ),
        (with_line(2, "cores = [1"), "3:1", ""),
        (
            with_line(6, "addresses = [\"192.0.2.53\", \"192.0.2.53\"]"),
            "6:28",
            "first in line 6",
        ),
        (
            with_line(6, "addresses = [\"192.0.2.300\"]"),
            "6:14",
            "is not an IPv4 or IPv6 address",
        ),
        (
            with_line(6, "addresses = [\"::ffff:192.0.2.1\"]"),
            "6:14",
            "write 192.0.2.1",
        ),
        (
            with_line(6, "addresses = [\"203.0.113.1\"]"),
            "18:24",
            "service address of this appliance",
        ),
        (
            with_line(6, "addresses = [\"192.0.2.53\"]\nmtu = 1000"),
            "3:1",
            "do not fit an MTU",
        ),
        (
            with_line(9, "prefixes = [\"198.18.1.0/16\"]"),
            "9:13",
            "did you mean `198.18.0.0/16`?",
        ),
        (with_line(12, "isp = \"KY\""), "12:7", "did you mean `KT`?"),
        (with_line(12, "location = [91.0, 0]"), "12:12", "latitude"),
        (with_line(12, "location = [nan, 0]"), "12:12", "latitude"),
        (
            with_line(12, "preference = 256"),
            "12:14",
            "from 0 to 255, not 256",
        ),
        (with_line(15, "file = \"nothere.zone\""), "15:8", "no zone file"),
        (
            with_line(17, "name = \"vod.example.org\""),
            "17:8",
            "lies in no zone",
        ),
        (
            with_line(17, "name = \"ns1.example.com\""),
            "17:8",
            "has A records in line 4 of",
        ),
        (
            with_line(18, "member = [ { address = \"203.0.113.1\", site = \"seoul\" } ]"),
            "18:46",
            "did you mean `seoul-kt`?",
        ),
        (with_line(18, "member = []"), "18:10", "is empty"),
        (
            with_line(
                18,
                "member = [ { addres = \"203.0.113.1\", site = \"seoul-kt\" } ]",
            ),
            "18:14",
            "did you mean `address`?",
        ),
        (
            with_more("[[site]]\nname = \"seoul-kt\"\n"),
            "20:8",
            "first in line 11",
        ),
        (
            with_more("[[isp]]\nname = \"B\"\nprefixes = [\"198.18.0.0/16\"]\n"),
            "21:13",
            "first in `KT`, line 9",
        ),
        (with_more(zone), "20:8", "first in line 14"),
        (
            with_more(&GOOD[GOOD.find("[[service]]").expect("a service")..].replace("vod", "VOD")),
            "20:8",
            "first in line 17",
        ),
        (
            with_more("[admin]\nlisten = \"127.0.0.1\"\n"),
            "20:10",
            "ADDRESS:PORT",
        ),
        (
            with_more("[dns]\nudp_size_max = 4096\n"),
            "20:16",
            "from 512 to 1400",
        ),
        (
            with_more("[dns]\nversion = \"\"\n"),
            "20:11",
            "from 1 to 255 bytes",
        ),
        (
            with_more("[dns.cookies]\nmode = \"of\"\n"),
            "20:8",
            "did you mean `off`?",
        ),
        (
            with_more("[dns.cookies]\nsecret_file = \"none\"\n"),
            "20:15",
            "cannot read the cookie secrets",
        ),
        (
            with_more("[dns.tcp]\nidle_timeout = \"10ms\"\n"),
            "20:16",
            "`idle_timeout` must be from 1s to 10m, not 10ms",
        ),
        (
            with_more("[dns.tcp]\nconnections = 0\n"),
            "20:15",
            "`connections`",
        ),
        (
            with_more("[dns.tcp]\nconections = 5\n"),
            "20:1",
            "did you mean `connections`?",
        ),
        (
            with_more("[dns.rate_limit]\nslip = 2\n"),
            "19:1",
            "has no `responses_per_second`",
        ),
        (
            with_more("[dns.rate_limit]\nresponses_per_second = 0\n"),
            "20:24",
            "from 1 to 1000000",
        ),
        (
            with_more("[dns]\nrate_limit = { responses_per_second = 9, ipv6_prefix = 65 }\n"),
            "20:56",
            "from 16 to 64",
        ),
        (
            with_more("[dns.rate_limit]\nallow = [\"192.0.2.1/24\"]\n"),
            "20:10",
            "did you mean `192.0.2.0/24`?",
        ),
        (with_more("[bogus]\n"), "19:2", "unknown key `bogus`"),
        (service("answers = 17"), "22:11", "from 1 to 16"),
        (service("ttl = 2147483648"), "22:7", "2147483647"),
        (
            service("chain = [\"health\", \"latancy\", \"static\"]"),
            "22:20",
            "did you mean `latency`?",
        ),
        (
            service("chain = [\"heath\", \"static\"]"),
            "22:10",
            "did you mean `health`?",
        ),
        (
            service("chain = [\"static\", \"health\"]"),
            "22:20",
            "must end with \"static\"",
        ),
        (service("when_all_down = \"shut\""), "22:17", "\"closed\""),
        (service("when_all_down = { fixed = [] }"), "22:27", "1 to 16"),
        (
            service("preference = { seul-kt = 3 }"),
            "22:16",
            "did you mean `seoul-kt`?",
        ),
        (
            service("check = { kind = \"ping\" }"),
            "22:18",
            "\"tcp\" or \"http\"",
        ),
        (service("check = { kind = \"tcp\" }"), "22:9", "has no `port`"),
        (
            service("check = { kind = \"http\", timeout = \"2s\", interval = \"1s\" }"),
            "22:36",
            "from 1ms to the interval",
        ),
        (
            service("check = { kind = \"http\", expect = \"ok\" }"),
            "22:35",
            "range of status codes",
        ),
        (
            service("check = { kind = \"http\", expect = [204, 200] }"),
            "22:35",
            "from a lower to a higher",
        ),
        (
            service("check = { kind = \"tcp\", port = 1, path = \"/\" }"),
            "22:42",
            "no meaning",
        ),
        (
            service("check = { kind = \"icmp\", port = 1 }"),
            "22:33",
            "no meaning for kind = \"icmp\"",
        ),
        (
            service("check = { kind = \"udp\", port = 1 }"),
            "22:9",
            "has no `payload`",
        ),
        (
            service("check = { kind = \"udp\", port = 1, payload = \"\" }"),
            "22:45",
            "from 1 to 1200 bytes",
        ),
        (service("check = { kind = \"dns\" }"), "22:9", "has no `query`"),
        (
            service("check = { kind = \"dns\", query = \"a.example\", type = \"B\" }"),
            "22:53",
            "not a record type",
        ),
        (
            service("check = { kind = \"dns\", query = \"a.example\", address = \"2001:db8::1\" }"),
            "22:56",
            "never in an answer to A",
        ),
        (
            service("check = { kind = \"icmp\", brownout = { window = 4 } }"),
            "22:48",
            "from 5 to 1000",
        ),
        (
            service("check = { kind = \"icmp\", brownout = { shed_above = \"60%\" } }"),
            "22:52",
            "below `down_above`",
        ),
        (
            service("check = { kind = \"icmp\", brownout = { slower_than = \"2s\" } }"),
            "22:53",
            "timeout of the check",
        ),
        (
            service("check = { kind = \"icmp\", dampening = { reuse = 3000 } }"),
            "22:48",
            "below `suppress`",
        ),
        (
            service("check = { kind = \"icmp\", dampening = { max = \"1m\" } }"),
            "22:46",
            "outlast `max`",
        ),
        (
            with_more("[[alert]]\nurl = \"ftp://a.example/x\"\n"),
            "20:7",
            "http://... or https://",
        ),
        (
            with_more("[[alert]]\nurl = \"http://a.example/x\"\nevents = [\"failver\"]\n"),
            "21:11",
            "did you mean `failover`?",
        ),
        (
            with_more("[appliance]\nstate = \"here\"\n"),
            "20:9",
            "absolute path",
        ),
    ];
    for (toml, place, fragment) in cases {
        assert_refused(toml, ZONE, &format!("windrose.toml:{place}"), fragment);
    }
}

#[test]
fn a_service_at_a_wildcard_is_an_address_for_targets() {
    let toml = with_line(17, "name = \"*.w.example.com\"");
    let files = Files::new(&toml, &format!("{ZONE}@ MX 1 mail.w\n"));
    let (_, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(shown(&warnings), [""; 0]);
    let files = Files::new(&toml, &format!("{ZONE}@ MX 1 mail.v\n"));
    let (_, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(shown(&warnings).len(), 1);
}

#[test]
fn members_that_are_names() {
    let toml = |members: &str| with_line(18, &format!("member = [ {members} ]"));
    let name = "{ cname = \"cdn.example.net\", site = \"seoul-kt\", weight = 7 }";
    let address = "{ address = \"203.0.113.1\", site = \"seoul-kt\" }";
    let files = Files::new(&toml(&format!("{name}, {address}")), ZONE);
    let (config, _) = files.load().unwrap_or_else(|found| panic!("{found}"));
    let service = &config.services[0];
    assert_eq!((service.members.len(), service.cnames.len()), (1, 1));
    assert_eq!(service.cnames[0].name.to_string(), "cdn.example.net");
    assert_eq!((service.cnames[0].weight, service.cnames[0].site), (7, 0));
    for (members, place, fragment) in [
        (format!("{name}, {name}"), "18:84", "is there twice"),
        (
            "{ cname = \"a.net\", address = \"203.0.113.1\", site = \"seoul-kt\" }".to_owned(),
            "18:41",
            "not both",
        ),
        ("{ site = \"seoul-kt\" }".to_owned(), "18:12", "`address`"),
        (
            "{ cname = \"VOD.example.com.\", site = \"seoul-kt\" }".to_owned(),
            "18:22",
            "the service itself",
        ),
    ] {
        assert_refused(&toml(&members), ZONE, &format!("windrose.toml:{place}"), fragment);
    }
    // A name that can be a CNAME has nothing beside it, so that it is no apex either.
    let zone = format!("{ZONE}vod TXT a\n");
    assert_refused(&toml(name), &zone, "windrose.toml:17:8", "TXT records in line");
    let apex = toml(name).replace("name = \"vod.example.com\"", "name = \"example.com\"");
    assert_refused(&apex, ZONE, "windrose.toml:17:8", "SOA records in line");
}

#[test]
fn limits_on_members_and_sites() {
    let members = |count: usize, site: &str| {
        let member = |i: usize| {
            format!(
                "{{ address = \"10.0.{}.{}\", site = \"{site}\" }}",
                i / 250,
                i % 250 + 1
            )
        };
        (0..count).map(member).collect::<Vec<_>>().join(", ")
    };
    let toml = |members: String, sites: String| with_line(18, &format!("member = [ {members} ]\n{sites}"));
    assert!(
        Files::new(&toml(members(64, "seoul-kt"), String::new()), ZONE)
            .load()
            .is_ok()
    );
    assert_refused(
        &toml(members(65, "seoul-kt"), String::new()),
        ZONE,
        "windrose.toml:18:2959",
        "more than 64 IPv4",
    );
    let spread = |count: usize| {
        let sites: String = (0..count)
            .map(|i| format!("[[site]]\nname = \"s{i}\"\n"))
            .collect();
        let member = |i: usize| format!("{{ address = \"10.0.0.{}\", site = \"s{i}\" }}", i + 1);
        toml((0..count).map(member).collect::<Vec<_>>().join(", "), sites)
    };
    assert!(Files::new(&spread(28), ZONE).load().is_ok());
    assert_refused(&spread(29), ZONE, "windrose.toml:18:10", "29 sites");
}

#[test]
fn all_that_is_wrong_is_found_at_once_and_in_order() {
    let toml = GOOD
        .replace("[1]", "\"1\"")
        .replace("wan", "w n")
        .replace("[\"198.18.0.0/16\"]", "[\"198.18.0.0/16\", \"198.18.0.0/16\"]")
        .replace("seoul-kt\" }", "busan\" }");
    let found = Files::new(&toml, "@ BOGUS\n")
        .load()
        .expect_err("wrong five times");
    let places: Vec<_> = found.iter().map(|d| (d.line, d.column)).collect();
    assert_eq!(places, [(2, 9), (4, 8), (9, 30), (18, 46), (1, 3)], "{found}");
    assert!(found.iter().all(|d| d.severity == Severity::Error));
}

#[test]
fn a_finding_is_drawn_as_compilers_do() {
    let files = Files::new(&with_line(12, "\tispp = \"KT\""), ZONE);
    let text = files.load().expect_err("an unknown key").to_string();
    let path = files.dir.path().join("windrose.toml").display().to_string();
    let drawn = format!(
        "{path}:12:2: error: unknown key `ispp` in [[site]]\n    |\n 12 | \tispp = \"KT\"\n    | \t^^^^\n   \
         = help: did you mean `isp`?"
    );
    assert_eq!(text, drawn);
}

#[test]
fn a_missing_file_is_said_in_one_line() {
    let found = load_with_warnings(Path::new("/nonexistent/w.toml")).expect_err("no such file");
    assert!(
        found
            .to_string()
            .starts_with("/nonexistent/w.toml: error: cannot read the configuration: ")
    );
}

#[test]
fn the_token_is_never_shown() {
    let secrets = [
        "token = \"tiny-s3cret\"",
        "token = \"unclosed-s3cret",
        "token = \"s3cret with spaces\"",
        "tokn = 1\ntoken = 's3cret-s3cret-s3cret' x",
    ];
    for line in secrets {
        let found = Files::new(&with_more(&format!("[admin]\n{line}\n")), ZONE)
            .load()
            .expect_err(line);
        assert!(!format!("{found}{found:?}").contains("s3cret"), "{found}");
    }
    let toml = with_more("[admin]\nlisten = \"127.0.0.1:9153\"\ntoken = \"s3cret-s3cret-s3cret\"\n");
    let (config, _) = Files::new(&toml, ZONE)
        .load()
        .unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(config.admin.token.as_deref(), Some("s3cret-s3cret-s3cret"));
    assert!(
        !format!("{config:?}").contains("s3cret"),
        "a log of the configuration would hold the token"
    );
}

const COOKIES: &str = "[dns.cookies]\nsecret_file = \"cookies\"\n";

/// Loads `COOKIES` with that text as secret file.
fn with_cookies(secrets: &str) -> Result<(Config, Diagnostics), Diagnostics> {
    let files = Files::new(&with_more(COOKIES), ZONE);
    let path = files.dir.path().join("cookies");
    std::fs::write(&path, secrets).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("permissions");
    files.load()
}

#[test]
fn cookie_secrets_come_from_a_file_and_are_never_shown() {
    // RFC 9018 appendices A.1 and A.4.
    let (old, new) = (
        "dd3bdf9344b678b185a6f5cb60fca715",
        "445536bcd2513298075a5d379663c962",
    );
    let (config, warnings) = with_cookies(&format!("# in use\n{new}\n\n  {old}\r\n")).expect("two secrets");
    assert_eq!(shown(&warnings), [""; 0]);
    let secrets = config.dns.cookies.secrets.expect("secrets");
    assert_eq!(
        secrets.current,
        Secret::new(0x4455_36bc_d251_3298_075a_5d37_9663_c962u128.to_be_bytes())
    );
    assert_eq!(
        secrets.other,
        Some(Secret::new(
            0xdd3b_df93_44b6_78b1_85a6_f5cb_60fc_a715u128.to_be_bytes()
        ))
    );
    assert!(
        !format!("{config:?}").contains("4455"),
        "a log would hold a secret"
    );
    let one = with_cookies(old).expect("one secret").0;
    assert_eq!(one.dns.cookies.secrets.expect("secrets").other, None);
    for (text, fragment) in [
        ("", "there is no cookie secret"),
        ("# none\n", "there is no cookie secret"),
        (
            &format!("\n{}g\n", &new[1..])[..],
            "cookies:2: not a cookie secret",
        ),
        (&format!("{new}00\n"), "cookies:1: not a cookie secret"),
        (&format!("{new}\n{old}\n{new}\n"), "there are 3 cookie secrets"),
    ] {
        let found = with_cookies(text).expect_err(fragment).to_string();
        assert!(found.contains(fragment), "{found}");
        assert!(!found.contains("5536bcd2513298"), "{found}");
    }
}

#[test]
fn a_secret_file_for_everybody_is_warned_of() {
    let files = Files::new(&with_more(COOKIES), ZONE);
    let path = files.dir.path().join("cookies");
    std::fs::write(&path, "dd3bdf9344b678b185a6f5cb60fca715").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("permissions");
    let (_, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    assert!(
        shown(&warnings)[0].contains("everybody on this host can read"),
        "{warnings}"
    );
}

#[test]
fn rate_limits_have_their_defaults() {
    let toml = with_more("[dns.rate_limit]\nresponses_per_second = 200\nallow = [\"2001:db8::/32\"]\n");
    let (config, _) = Files::new(&toml, ZONE)
        .load()
        .unwrap_or_else(|found| panic!("{found}"));
    let limit = config.dns.rate_limit.expect("a limit");
    assert_eq!((limit.per_second, limit.burst, limit.slip), (200, 200, 2));
    assert_eq!((limit.prefix_v4, limit.prefix_v6), (24, 56));
    assert_eq!(limit.allow, ["2001:db8::/32".parse().expect("a prefix")]);
}

#[test]
fn tcp_is_on_unless_it_is_switched_off() {
    let load = |more: &str| {
        Files::new(&with_more(more), ZONE)
            .load()
            .unwrap_or_else(|found| panic!("{found}"))
    };
    let tcp = load("").0.dns.tcp;
    assert!(tcp.enabled);
    assert_eq!((tcp.idle_timeout.as_secs(), tcp.packets_per_second), (10, 50_000));
    assert_eq!((tcp.connections, tcp.connections_per_client), (1000, 20));
    let (config, warnings) = load(
        "[dns.tcp]\nenabled = false\nidle_timeout = \"2s\"\nconnections = 5\nconnections_per_client = 6\n",
    );
    let tcp = config.dns.tcp;
    assert!(!tcp.enabled);
    assert_eq!((tcp.idle_timeout.as_secs(), tcp.connections), (2, 5));
    assert!(
        shown(&warnings)[0].contains("one client may take them all"),
        "{warnings}"
    );
}

#[test]
fn the_hash_covers_every_file() {
    let hash = |toml: &str, zone: &str, included: &str| {
        let files = Files::new(toml, zone);
        std::fs::write(files.dir.path().join("more"), included).expect("written");
        files.load().unwrap_or_else(|found| panic!("{found}")).0.hash
    };
    let zone = format!("{ZONE}$INCLUDE more\n");
    let hashes = [
        hash(GOOD, &zone, "a A 192.0.2.1\n"),
        hash(GOOD, &zone, "a A 192.0.2.2\n"),
        hash(GOOD, &format!("{zone}; x"), "a A 192.0.2.1\n"),
        hash(&format!("{GOOD}# x"), &zone, "a A 192.0.2.1\n"),
    ];
    assert_eq!(hashes[0], hash(GOOD, &zone, "a A 192.0.2.1\n"));
    let distinct: std::collections::HashSet<_> = hashes.iter().collect();
    assert_eq!(distinct.len(), 4);
    assert!(hashes.iter().all(|hash| hash.len() == 64));
}

/// `GOOD` with databases, a list of clients and these files beside it.
fn with_data(more: &str, files: &[(&str, &str)]) -> Files {
    let all = Files::new(&with_more(more), ZONE);
    for (name, text) in files {
        std::fs::write(all.dir.path().join(name), text).expect("written");
    }
    all
}

#[test]
fn client_data_is_read() {
    let asn = "198.18.0.0,198.18.255.255,64496,\"KT, Seoul\"\n2001:db8::,2001:db8::ffff,64497,b\n";
    let files = with_data(
        "[[isp]]\nname = \"SKB\"\nasns = [64497, 64498]\n[data]\nasn = [\"a.csv\"]\ncountry = [\"c.csv\"]\n\
         [[clients]]\nname = \"office\"\nprefixes = [\"192.0.2.0/25\"]\nfile = \"list\"\nisp = \"SKB\"\n\
         country = \"kr\"\nlocation = [37.57, 126.98]\n",
        &[
            ("a.csv", asn),
            ("c.csv", "198.18.0.0,198.18.255.255,KR\n"),
            (
                "list",
                "192.0.2.128/25\n198.51.100.7 isp=KT continent=EU # moved\n",
            ),
        ],
    );
    let (config, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(shown(&warnings), [""; 0]);
    assert_eq!(config.isps[1].asns, [64497, 64498]);
    let at = |address: &str| config.data.asn[0].find(address.parse().expect("an address"));
    assert_eq!(
        at("198.18.3.4").map(|a| (a.number, &*a.name)),
        Some((64496, "KT, Seoul"))
    );
    assert_eq!(at("2001:db8::1").map(|a| a.number), Some(64497));
    let country = config.data.country[0].find("198.18.3.4".parse().expect("an address"));
    assert_eq!(country.and_then(|p| p.country), Some(Country(*b"KR")));
    let seoul = Place {
        country: Some(Country(*b"KR")),
        continent: None,
        location: Some(Location {
            latitude: 375_700,
            longitude: 1_269_800,
        }),
    };
    let europe = Place {
        continent: Some(Continent::Europe),
        ..Place::default()
    };
    let of = |prefix: &str, isp, place| ClientPrefix {
        prefix: prefix.parse().expect("a prefix"),
        isp: Some(isp),
        place,
    };
    assert_eq!(
        config.clients[0].prefixes,
        [
            of("192.0.2.0/25", 1, seoul),
            of("192.0.2.128/25", 1, seoul),
            of("198.51.100.7/32", 0, europe),
        ]
    );
}

#[test]
fn wrong_client_data_is_told_with_its_place() {
    let refused = |more: &str, files: &[(&str, &str)], place: &str, fragment: &str| {
        let Err(found) = with_data(more, files).load() else {
            panic!("taken: {more}");
        };
        let found = shown(&found);
        let hit = found
            .iter()
            .any(|f| f.starts_with(&format!("{place}: ")) && f.contains(fragment));
        assert!(hit, "no {place} with `{fragment}` in {found:#?}");
    };
    let clients = "[[clients]]\nname = \"a\"\n";
    refused(
        "[data]\nasn = [\"a.csv\"]\n",
        &[],
        "windrose.toml:20:8",
        "no database file",
    );
    refused("[data]\nasn = []\n", &[], "windrose.toml:20:7", "`asn` is empty");
    let good = "198.18.0.0,198.18.255.255,64496,a\n";
    let wrong = format!("{good}198.19.0.0,198.18.0.0,64496,a\n");
    refused(
        "[data]\nasn = [\"a.csv\"]\n",
        &[("a.csv", &wrong)],
        "a.csv:2:1",
        "lies behind",
    );
    refused(
        "[data]\nasn = [\"a.dat\"]\n",
        &[("a.dat", good)],
        "a.dat:0:0",
        "neither .csv nor .mmdb",
    );
    refused(
        "[data]\ncountry = [\"a.csv\"]\n",
        &[("a.csv", good)],
        "a.csv:1:1",
        "4 fields instead of 3",
    );
    refused(
        "[data]\nasns = [\"a.csv\"]\n",
        &[],
        "windrose.toml:20:1",
        "did you mean `asn`?",
    );
    refused(
        "[[isp]]\nname = \"b\"\n",
        &[],
        "windrose.toml:19:1",
        "neither `asns` nor `prefixes`",
    );
    let twice = "[[isp]]\nname = \"b\"\nasns = [1, 2]\n[[isp]]\nname = \"c\"\nasns = [3, 2]\n";
    refused(
        twice,
        &[],
        "windrose.toml:24:12",
        "AS2 is there twice, first in `b`, line 21",
    );
    refused(
        "[[isp]]\nname = \"b\"\nasns = [0]\n",
        &[],
        "windrose.toml:21:9",
        "from 1 to 4294967294",
    );
    refused(
        clients,
        &[],
        "windrose.toml:19:1",
        "neither `prefixes` nor `file`",
    );
    refused(
        &format!("{clients}file = \"list\"\n"),
        &[],
        "windrose.toml:21:8",
        "no prefix file",
    );
    let list = format!("{clients}file = \"list\"\n");
    refused(
        &list,
        &[("list", "# x\n192.0.2.0/24 isp=KTT\n")],
        "list:2:14",
        "did you mean `KT`?",
    );
    let named = format!("{clients}prefixes = [\"192.0.2.0/24\"]\n");
    refused(
        &format!("{named}{named}"),
        &[],
        "windrose.toml:23:8",
        "clients `a` is there twice",
    );
    refused(
        &format!("{named}isp = \"LG\"\n"),
        &[],
        "windrose.toml:22:7",
        "unknown isp `LG`",
    );
    refused(
        &format!("{named}country = \"KOR\"\n"),
        &[],
        "windrose.toml:22:11",
        "ISO 3166-1",
    );
    refused(
        &format!("{named}continent = \"asai\"\n"),
        &[],
        "windrose.toml:22:13",
        "AS (asia)",
    );
    let twice = format!("{clients}prefixes = [\"192.0.2.0/24\", \"192.0.2.0/24\"]\n");
    refused(
        &twice,
        &[],
        "windrose.toml:21:29",
        "prefix 192.0.2.0/24 is there twice",
    );
}

#[test]
fn autonomous_systems_without_a_database_are_warned_of() {
    let files = with_data("[[isp]]\nname = \"b\"\nasns = [64497]\n", &[]);
    let (_, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    let shown = shown(&warnings);
    assert!(
        shown.len() == 1 && shown[0].starts_with("windrose.toml:21:9: `asns` has no effect"),
        "{shown:?}"
    );
}

/// The published table of autonomous systems has such a row.
#[test]
fn ranges_that_overlap_are_warned_of() {
    let asn = "214.95.0.0,215.0.255.255,749,a\n215.0.0.0,215.1.3.255,721,b\n";
    let files = with_data("[data]\nasn = [\"a.csv\"]\n", &[("a.csv", asn)]);
    let (config, warnings) = files.load().unwrap_or_else(|found| panic!("{found}"));
    let said = "a.csv:0:0: 1 of its ranges begin within another: 215.0.0.0 to 215.1.3.255 in 214.95.0.0 to 215.0.255.255 \
                (where ranges overlap, the one that begins last counts)";
    assert_eq!(shown(&warnings), [said]);
    let at = |address: &str| config.data.asn[0].find(address.parse().expect("an address"));
    assert_eq!(at("214.255.255.255").map(|a| a.number), Some(749));
    assert_eq!(at("215.0.128.0").map(|a| a.number), Some(721));
}

#[test]
fn the_hash_covers_client_data() {
    let hash = |asn: &str, list: &str| {
        let more = "[data]\nasn = [\"a.csv\"]\n[[clients]]\nname = \"a\"\nfile = \"list\"\n";
        let files = with_data(more, &[("a.csv", asn), ("list", list)]);
        files.load().unwrap_or_else(|found| panic!("{found}")).0.hash
    };
    let (one, two) = ("1.0.0.0,1.0.0.9,1,a\n", "1.0.0.0,1.0.0.9,2,a\n");
    assert_eq!(hash(one, "192.0.2.0/24"), hash(one, "192.0.2.0/24"));
    assert_ne!(hash(one, "192.0.2.0/24"), hash(two, "192.0.2.0/24"));
    assert_ne!(hash(one, "192.0.2.0/24"), hash(one, "192.0.2.0/25"));
}
