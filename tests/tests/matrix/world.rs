//! What the matrix is asked of: three zones, a few services, and the appliance with one port between it and one client.
//!
//! Called by the matrix. Owns the lab and the running appliance; its configuration changes by reload.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use windrose_tests::appliance::{Appliance, one_port};
use windrose_tests::datagram::Asker;
use windrose_tests::lab::{Host, Lab};
use windrose_tests::message::name;
use windrose_tests::process::eventually;

const LONG: Duration = Duration::from_secs(20);
/// A name of which each server in the lab knows the SOA record.
pub(crate) const KNOWN: &str = "example.com.";
/// Where the client asks from. The second has no place on the allow list.
pub(crate) const CLIENT: [&str; 2] = ["192.0.2.10", "2001:db8:1::10"];
pub(crate) const LIMITED: &str = "192.0.2.66";
pub(crate) const SERVICE: [&str; 2] = ["192.0.2.53", "2001:db8:1::53"];
/// Prefixes of the ISPs; the order of sites below is theirs, and the last site is everybody else's.
pub(crate) const ISPS: [(&str, [&str; 2]); 2] = [
    ("kt", ["192.0.2.0/24", "2001:db8:1::/48"]),
    ("lg", ["203.0.113.0/24", "2001:db8:2::/48"]),
];
/// Secrets of the cookies: the one in use, and the one before.
pub(crate) const SECRETS: [&str; 2] = [
    "e5e973e5a6b2a43f48e7dc849e37bfcf",
    "445536bcd2513298075a5d379663c962",
];

/// How the appliance is configured while a row is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// NSID, CHAOS texts, cookies.
    Usual,
    /// The same with rate limits, and the client on their allow list.
    Guarded,
    /// Over UDP, cookies are required.
    Require,
    /// Neither NSID nor CHAOS texts, cookies or client subnets.
    Bare,
}

/// Strings of a TXT record of `length` bytes of RDATA.
fn strings(mut length: usize) -> String {
    let mut text = String::new();
    while length > 0 {
        let part = length.min(256);
        let _ = write!(text, " \"{}\"", "x".repeat(part - 1));
        length -= part;
    }
    text
}

/// A TXT record at `tN` with which a reply is `total` bytes long without OPT: header, question, and an answer of 12 bytes
/// before its RDATA.
fn sized(total: usize) -> String {
    let question = name(&format!("t{total}.example.com.")).len() + 4;
    format!("t{total} IN TXT{}\n", strings(total - 12 - question - 12))
}

/// example.com.
fn zone() -> String {
    let mut zone = String::from(
        r#"$ORIGIN example.com.
$TTL 3600
@       300 IN SOA ns1 hostmaster 2026010101 7200 900 1209600 60
        IN NS    ns1
        IN MX    10 mail
        IN TXT   "Windrose"
ns1     IN A     192.0.2.53
        IN AAAA  2001:db8:1::53
www     IN A     192.0.2.80
        IN AAAA  2001:db8:1::80
mail    IN A     192.0.2.25
; Items 22 to 26.
\000\255.bin IN A 192.0.2.90
a\.b    IN A     192.0.2.91
a.b     IN A     192.0.2.92
[       IN A     192.0.2.93
ttls    100 IN A 192.0.2.1
ttls    50 IN A  192.0.2.2
ttls    50 IN A  192.0.2.2
opaque  IN TYPE65280 \# 6 c00c03777777
; Items 32 to 35.
deep.ent IN A    192.0.2.94
*.wild  IN TXT   "wild"
there.wild IN A  192.0.2.95
x.ent.wild IN A  192.0.2.96
web     IN CNAME www
far     IN CNAME www.example.net.
lost    IN CNAME absent.example.net.
out     IN CNAME www.example.org.
loop1   IN CNAME loop2
loop2   IN CNAME loop1
togslb  IN CNAME gslb
tocut   IN CNAME below.cut
; Item 36.
cut     IN NS    ns.cut
cut     IN DS    12345 13 2 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
ns.cut  IN A     192.0.2.97
ns.cut  IN AAAA  2001:db8:1::97
away    IN NS    ns.example.org.
; Item 39 and 40.
https   IN HTTPS 1 . alpn=h2 port=8443
alias   IN HTTPS 0 www
dn      IN DNAME example.net.
"#,
    );
    // Glue of a hundred servers is more than 1,232 bytes, and all of it is required.
    for n in 0..100 {
        let _ = writeln!(zone, "wide IN NS n{n}.wide\nn{n}.wide IN A 192.0.2.{n}");
    }
    // A chain longer than any answer follows: eight CNAMEs at most.
    for n in 0..12 {
        let _ = writeln!(zone, "chain{n} IN CNAME chain{}", n + 1);
    }
    zone.push_str("chain12 IN A 192.0.2.98\n");
    for total in [501, 502, 512, 513, 589, 590, 1221, 1222, 9000] {
        zone.push_str(&sized(total));
    }
    zone
}

const NET: &str = r#"$ORIGIN example.net.
$TTL 600
@       600 IN SOA ns1.example.com. hostmaster 1 7200 900 1209600 30
        IN NS    ns1.example.com.
www     IN A     198.51.100.80
"#;

/// A zone of one name, which is a service.
const ORG: &str = r#"$ORIGIN gslb.test.
$TTL 600
@       600 IN SOA ns1.example.com. hostmaster 1 7200 900 1209600 30
        IN NS    ns1.example.com.
"#;

fn config(setting: Setting, world: &World) -> String {
    let mut text = one_port("net_af_packet0,iface=port0", &world.socket());
    let secrets = world.lab.folder().join("secrets");
    match setting {
        Setting::Usual | Setting::Guarded | Setting::Require => {
            text += "\n[dns]\nnsid = \"matrix\"\nversion = \"windrose\"\nhostname = \"lab\"\n";
            let mode = if setting == Setting::Require {
                "require"
            } else {
                "on"
            };
            let _ = write!(
                text,
                "\n[dns.cookies]\nmode = \"{mode}\"\nsecret_file = \"{}\"\n",
                secrets.display()
            );
        }
        Setting::Bare => text += "\n[dns]\necs = false\n\n[dns.cookies]\nmode = \"off\"\n",
    }
    if setting == Setting::Guarded {
        text += &format!(
            "\n[dns.rate_limit]\nresponses_per_second = 1\nburst = 10\nslip = 2\nipv4_prefix = 32\nipv6_prefix = 64\n\
             allow = [\"{}/32\", \"{}/128\"]\n",
            CLIENT[0], CLIENT[1]
        );
    }
    for (n, (isp, prefixes)) in ISPS.iter().enumerate() {
        let _ = write!(
            text,
            "\n[[isp]]\nname = \"{isp}\"\nprefixes = {prefixes:?}\n\n\
             [[site]]\nname = \"at-{isp}\"\nisp = \"{isp}\"\npreference = {}\n",
            100 - n
        );
    }
    text += "\n[[site]]\nname = \"elsewhere\"\npreference = 200\n";
    for zone in ["example.com", "example.net", "gslb.test"] {
        let _ = write!(text, "\n[[zone]]\nname = \"{zone}\"\nfile = \"{zone}.zone\"\n");
    }
    let members = |v6: bool| {
        let mut text = String::new();
        for (n, site) in ["at-kt", "at-lg", "elsewhere"].iter().enumerate() {
            let _ = write!(
                text,
                "{{ address = \"198.51.100.{}\", site = \"{site}\" }}, ",
                n + 1
            );
            if v6 {
                let _ = write!(
                    text,
                    "{{ address = \"2001:db8:a::{}\", site = \"{site}\" }}, ",
                    n + 1
                );
            }
        }
        text
    };
    let mut service = |name: &str, rest: &str, members: &str| {
        let _ = write!(
            text,
            "\n[[service]]\nname = \"{name}\"\nttl = 30\n{rest}\nmember = [ {members} ]\n"
        );
    };
    let chain = "chain = [\"health\", \"isp\", \"preference\", \"static\"]";
    service("gslb.example.com", chain, &members(false));
    service("dual.example.com", chain, &members(true));
    service("gslb.test", chain, &members(false));
    service("*.any.example.com", chain, &members(false));
    let all = "chain = [\"health\", \"static\"]\nanswers = 2";
    service("turn.example.com", all, &members(false));
    // A name among the members, and none else.
    service(
        "named.example.com",
        "chain = [\"health\", \"static\"]",
        "{ cname = \"www.example.net.\", site = \"elsewhere\" }",
    );
    for (name, rule) in [("closed", "\"closed\""), ("fixed", "{ fixed = [\"192.0.2.9\"] }")] {
        // Nothing listens there, on this very host.
        let check = "check = { kind = \"tcp\", port = 9, interval = \"200ms\", fall = 1 }";
        let rest = format!("chain = [\"health\", \"static\"]\nwhen_all_down = {rule}\n{check}");
        service(
            &format!("{name}.example.com"),
            &rest,
            "{ address = \"198.51.100.9\", site = \"elsewhere\" }",
        );
    }
    text
}

/// The lab. Fields drop in order: the appliance before its wires.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) appliance: Option<Appliance>,
    pub(crate) app: Host,
    pub(crate) client: Host,
    pub(crate) lab: Lab,
    generation: u64,
}

impl World {
    /// Namespaces and files; the appliance runs in the usual setting.
    pub(crate) fn start() -> Result<Self> {
        let mut lab = Lab::new()?;
        let (app, client) = (lab.host("app")?, lab.host("client")?);
        lab.link(&app, "port0", &client, "eth0")?;
        app.sysctl("net.ipv6.conf.port0.disable_ipv6", "1")?;
        app.address("lo", "198.51.100.9/32")?;
        for address in [CLIENT[0], LIMITED] {
            client.address("eth0", &format!("{address}/24"))?;
        }
        client.address("eth0", &format!("{}/64", CLIENT[1]))?;
        for (name, text) in [
            ("example.com", &*zone()),
            ("example.net", NET),
            ("gslb.test", ORG),
        ] {
            lab.write(&format!("{name}.zone"), text)?;
        }
        lab.write("secrets", &(SECRETS.join("\n") + "\n"))?;
        let mut world = Self {
            appliance: None,
            app,
            client,
            lab,
            generation: 0,
        };
        let config = world.write(Setting::Usual)?;
        world.appliance = Some(Appliance::start(&world.app, &config, &world.socket())?);
        Ok(world)
    }

    fn socket(&self) -> PathBuf {
        self.lab.folder().join("admin.sock")
    }

    fn write(&self, setting: Setting) -> Result<PathBuf> {
        self.lab.write("windrose.toml", &config(setting, self))
    }

    /// Another configuration, adopted by the worker.
    pub(crate) fn set(&mut self, setting: Setting) -> Result<()> {
        self.write(setting)?;
        self.appliance()?.ask(&["reload"])?;
        self.generation += 1;
        let wanted = self.generation + 1;
        let appliance = self.appliance()?;
        eventually("the worker has the new configuration", LONG, || {
            Ok(appliance.status()?["workers"][0]["adopted"].as_u64() == Some(wanted))
        })?;
        Ok(())
    }

    pub(crate) fn appliance(&self) -> Result<&Appliance> {
        self.appliance.as_ref().context("the appliance is not running")
    }

    /// The four ways to ask, with their names.
    pub(crate) fn askers(&self) -> Result<Vec<(&'static str, Asker)>> {
        let mut askers = Vec::new();
        let names = [["UDP/IPv4", "TCP/IPv4"], ["UDP/IPv6", "TCP/IPv6"]];
        for (family, [udp, tcp]) in names.into_iter().enumerate() {
            let (local, server): (IpAddr, IpAddr) = (CLIENT[family].parse()?, SERVICE[family].parse()?);
            askers.push((udp, Asker::udp(&self.client, local, server, KNOWN)?));
            askers.push((tcp, Asker::tcp(&self.client, server, KNOWN)));
        }
        Ok(askers)
    }
}
