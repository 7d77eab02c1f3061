//! Cookies, identity and rate limits as real clients see them. Needs root.

use std::time::Duration;
use windrose_tests::client::{DigReply, dig, dnsperf};
use windrose_tests::laws;
use windrose_tests::process::eventually;
use windrose_tests::world::{Isp, Kind, World};

/// RFC 9018 appendix A.4.
const SECRET: &str = "dd3bdf9344b678b185a6f5cb60fca715";

/// The cookie in dig's output: 48 hexadecimal digits, and what dig says of it.
fn cookie(reply: &DigReply) -> (String, String) {
    let line = reply
        .text
        .lines()
        .find_map(|line| line.strip_prefix("; COOKIE: "));
    let mut words = line
        .unwrap_or_else(|| panic!("no cookie: {}", reply.text))
        .split(' ');
    (
        words.next().unwrap_or_default().to_owned(),
        words.collect::<Vec<_>>().join(" "),
    )
}

fn world(more: &str) -> World {
    let mut world = World::build(1).unwrap();
    world.lab.write("cookies", SECRET).unwrap();
    let config = world
        .config(Kind::AfPacket, 1, |text| format!("{text}\n{more}"))
        .unwrap();
    world.start(&config).unwrap();
    world
}

fn ask(isp: &Isp, ipv6: bool, query: &str) -> DigReply {
    dig(&isp.host, isp.server(ipv6), query).unwrap()
}

#[test]
fn dig_finds_its_cookie_good_over_udp_and_tcp_and_through_a_rollover() {
    let mut world = world("[dns.cookies]\nmode = \"require\"\nsecret_file = \"cookies\"\n");
    for isp in &world.isps {
        for (ipv6, transport) in [(false, "+notcp"), (true, "+notcp"), (false, "+tcp")] {
            // dig gets BADCOOKIE at first, and by itself comes back with the cookie that it was given.
            let asked = ask(isp, ipv6, &format!("vod.example.com A +cookie {transport}"));
            let (given, verdict) = cookie(&asked);
            assert_eq!(
                (asked.status.as_str(), given.len(), verdict.as_str()),
                ("NOERROR", 48, "(good)"),
                "{}",
                asked.text
            );
            let query = format!("vod.example.com A +nobadcookie +cookie={given} {transport}");
            let again = ask(isp, ipv6, &query);
            assert_eq!((again.status.as_str(), cookie(&again).0), ("NOERROR", given));
        }
    }
    let isp = &world.isps[0];
    let (old, _) = cookie(&ask(isp, false, "vod.example.com A +cookie"));
    let new = "445536bcd2513298075a5d379663c962";
    world.lab.write("cookies", &format!("{new}\n{SECRET}\n")).unwrap();
    world.appliance().unwrap().ask(&["reload"]).unwrap();
    let query = format!("vod.example.com A +nobadcookie +cookie={old}");
    let isp = &world.isps[0];
    // The old one stays good while the workers take the new secret.
    eventually("a cookie of the new secret", Duration::from_secs(5), || {
        let asked = ask(isp, false, &query);
        assert_eq!(asked.status, "NOERROR", "{}", asked.text);
        Ok(cookie(&asked).0 != old)
    })
    .unwrap();
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn an_appliance_says_who_it_is_and_why_it_refuses() {
    let mut world = world("");
    for isp in &world.isps {
        for transport in ["+notcp", "+tcp"] {
            let ask = |query: &str| ask(isp, false, &format!("{query} {transport}"));
            let nsid = ask("www.example.com A +nsid");
            assert!(nsid.text.contains("(\"demo\")"), "{}", nsid.text);
            let id = ask("CH TXT id.server");
            assert_eq!(id.answer[0].rdata, "\"demo\"", "{}", id.text);
            assert_eq!(ask("CH TXT hostname.bind").status, "REFUSED");
            let foreign = ask("example.org A");
            assert!(
                foreign.text.contains("EDE: 20 (Not Authoritative)"),
                "{}",
                foreign.text
            );
            let status = ask("example.com A +opcode=status");
            assert!(status.text.contains("EDE: 21 (Not Supported)"), "{}", status.text);
        }
    }
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn a_flood_from_one_network_is_limited_and_the_other_answered() {
    let mut world = world("[dns.rate_limit]\nresponses_per_second = 50\nburst = 50\nslip = 2\n");
    let queries = world.lab.write("queries", "www.example.com A\n").unwrap();
    let (kt, lg) = (&world.isps[0], &world.isps[1]);
    let flood = dnsperf(&kt.host, kt.server(false), &queries, 2, 2000).unwrap();
    // A user in the flooding network gets an answer by UDP or, after an empty reply, by TCP.
    let fallback = ask(kt, false, "www.example.com A +noignore");
    assert_eq!(fallback.status, "NOERROR", "{}", fallback.text);
    assert_eq!(ask(lg, false, "www.example.com A").status, "NOERROR");
    let appliance = world.appliance().unwrap();
    let outcomes = appliance.metric("windrose_dns_replies_total", "outcome").unwrap();
    let dropped = appliance
        .metric("windrose_dropped_packets_total", "reason")
        .unwrap()["rate_limit"];
    // Every second reply over the limit is dropped, and nothing else is lost.
    assert_eq!(dropped, flood.sent - flood.completed, "{flood:?}");
    assert!(dropped > 50, "{flood:?}");
    assert!(
        outcomes["slipped"].abs_diff(dropped) <= 1,
        "{outcomes:?} {dropped}"
    );
    assert!(
        appliance
            .get("/metrics")
            .unwrap()
            .contains("windrose_dns_byte_ratio{worker=\"0\"}")
    );
    laws::hold_after_stop(&mut world).unwrap();
}
