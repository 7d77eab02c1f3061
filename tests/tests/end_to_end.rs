//! Real clients against a running appliance over AF_PACKET and AF_XDP ports. Needs root.

use std::net::IpAddr;
use std::time::Duration;
use windrose_tests::client::{DigReply, dig, dnsperf};
use windrose_tests::raw::RawSocket;
use windrose_tests::world::{Kind, World};
use windrose_tests::{capture, laws};

const LONG: Duration = Duration::from_secs(10);

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What both ISPs must be told, over IPv4 and IPv6, from `configs/demo.toml` and `demo.zone` by hand.
fn dig_is_answered_by_policy(kind: Kind, workers: usize) {
    let mut world = World::running(kind, workers).unwrap();
    for (isp, (near4, near6)) in [
        ("KT", ("198.51.100.11", "2001:db8:a::11")),
        ("LG", ("198.51.100.75", "2001:db8:b::11")),
    ] {
        let isp = world.isps.iter().find(|have| have.name == isp).unwrap();
        for ipv6 in [false, true] {
            let ask = |query: &str| dig(&isp.host, isp.server(ipv6), query).unwrap();
            let header =
                |reply: &DigReply| (reply.status.clone(), reply.has_flag("aa"), reply.has_flag("tc"));
            let fine = ("NOERROR".to_owned(), true, false);

            let reply = ask("vod.example.com A");
            assert_eq!(
                (header(&reply), reply.addresses()),
                (fine.clone(), vec![address(near4)]),
                "{}",
                reply.text
            );
            assert_eq!(reply.answer[0].ttl, 30);
            let reply = ask("vod.example.com AAAA");
            assert_eq!(
                (header(&reply), reply.addresses()),
                (fine.clone(), vec![address(near6)]),
                "{}",
                reply.text
            );
            // The case of the question comes back, in the question and so in the answer's owner.
            let reply = ask("VoD.eXample.COM A");
            assert_eq!(reply.answer[0].name, "VoD.eXample.COM.", "{}", reply.text);

            let reply = ask("live.example.com A");
            let mut two = reply.addresses();
            two.dedup();
            assert_eq!((two.len(), reply.answer[0].ttl), (2, 10), "{}", reply.text);

            let reply = ask("www.example.com A");
            assert_eq!(
                (header(&reply), reply.addresses()),
                (fine.clone(), vec![address("192.0.2.80")])
            );
            let reply = ask("web.example.com A");
            assert_eq!(reply.answer[0].rdata, "www.example.com.", "{}", reply.text);
            assert_eq!(reply.addresses(), [address("192.0.2.80")], "{}", reply.text);
            assert_eq!(
                ask("anything.wild.example.com A").addresses(),
                [address("192.0.2.99")]
            );
            assert_eq!(ask("example.com MX").answer[0].rdata, "10 mail.example.com.");

            let nodata = ask("www.example.com TXT");
            assert_eq!(
                (header(&nodata), nodata.answer.len()),
                (fine, 0),
                "{}",
                nodata.text
            );
            assert_eq!(nodata.authority[0].rtype, "SOA");
            let absent = ask("absent.example.com A");
            assert_eq!(
                header(&absent),
                ("NXDOMAIN".to_owned(), true, false),
                "{}",
                absent.text
            );
            // The negative TTL is the lesser of the SOA's own and its minimum (RFC 2308 section 5): 60.
            assert_eq!(
                (absent.authority[0].rtype.as_str(), absent.authority[0].ttl),
                ("SOA", 60)
            );
            assert_eq!(ask("example.org A").status, "REFUSED");

            assert!(ask("www.example.com A +noedns").edns.is_none());
            let edns = ask("www.example.com A +bufsize=4096").edns.unwrap();
            assert!(
                edns.starts_with("version: 0") && edns.ends_with("udp: 1232"),
                "{edns}"
            );
            let nsid = ask("www.example.com A +nsid");
            assert!(nsid.text.contains("(\"demo\")"), "{}", nsid.text);
            // The client subnet decides over the resolver: LG's user through either resolver.
            let ecs = ask("vod.example.com A +subnet=203.0.113.0/24");
            assert_eq!(ecs.addresses(), [address("198.51.100.75")], "{}", ecs.text);
            assert_eq!(
                ecs.client_subnet.as_deref(),
                Some("203.0.113.0/24/24"),
                "{}",
                ecs.text
            );
        }
    }
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn dig_is_answered_by_policy_over_af_packet() {
    dig_is_answered_by_policy(Kind::AfPacket, 1);
}

#[test]
fn dig_is_answered_by_policy_over_af_packet_with_two_workers() {
    dig_is_answered_by_policy(Kind::AfPacket, 2);
}

#[test]
fn dig_is_answered_by_policy_over_af_xdp() {
    dig_is_answered_by_policy(Kind::AfXdp, 1);
}

/// dnsperf loses nothing at a modest rate and gets the RCODEs that its queries ask for.
fn dnsperf_loses_nothing(kind: Kind, workers: usize) {
    let mut world = World::running(kind, workers).unwrap();
    // Three in four exist.
    let queries = world
        .lab
        .write(
            "queries",
            "vod.example.com A\nlive.example.com A\nwww.example.com AAAA\nabsent.example.com A\n",
        )
        .unwrap();
    for isp in &world.isps {
        for ipv6 in [false, true] {
            let got = dnsperf(&isp.host, isp.server(ipv6), &queries, 2, 2000).unwrap();
            assert_eq!((got.lost, got.completed), (0, got.sent), "{got:?}");
            // 2 s at 2,000 a second, less a slow start on a busy machine.
            assert!(got.sent > 1000, "{got:?}");
            let (fine, absent) = (got.rcodes["NOERROR"], got.rcodes["NXDOMAIN"]);
            assert_eq!(fine + absent, got.sent, "{got:?}");
            assert!(fine.abs_diff(3 * absent) <= 3, "{got:?}");
        }
    }
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn dnsperf_loses_nothing_over_af_packet() {
    dnsperf_loses_nothing(Kind::AfPacket, 1);
}

#[test]
fn dnsperf_loses_nothing_over_af_packet_with_two_workers() {
    dnsperf_loses_nothing(Kind::AfPacket, 2);
}

#[test]
fn dnsperf_loses_nothing_over_af_xdp() {
    dnsperf_loses_nothing(Kind::AfXdp, 1);
}

#[test]
fn neighbours_find_the_service_addresses_and_no_others() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let kt = &world.isps[0];
    let run = |argv: &str| kt.host.run(&argv.split(' ').collect::<Vec<_>>(), LONG).unwrap();
    let mac = world.host.ip("-o link show dev kt0").unwrap();
    let mac = mac.split("link/ether ").nth(1).unwrap()[..17].to_owned();

    let arping = run("arping -c 2 -w 5 -I eth0 192.0.2.53").success().unwrap();
    assert!(arping.to_lowercase().contains(&mac), "{arping}");
    let ndisc = run("ndisc6 -r 2 -w 2000 2001:db8:1::53 eth0").success().unwrap();
    assert!(ndisc.to_lowercase().contains(&mac), "{ndisc}");
    // The other port's address is not answered here, though the kernel asks by ARP.
    assert_ne!(run("arping -c 1 -w 1 -I eth0 203.0.113.53").code, 0);
    assert_ne!(run("ndisc6 -r 1 -w 500 2001:db8:2::53 eth0").code, 0);

    // 57 and 1400 bytes: odd, and near the MTU.
    for size in [56, 57, 1400] {
        run(&format!("ping -c 2 -i 0.2 -W 2 -s {size} 192.0.2.53"))
            .success()
            .unwrap();
        run(&format!("ping -6 -c 2 -i 0.2 -W 2 -s {size} 2001:db8:1::53"))
            .success()
            .unwrap();
    }
    let neighbours = kt.host.ip("neigh show dev eth0").unwrap();
    for address in ["192.0.2.53", "2001:db8:1::53"] {
        let line = neighbours
            .lines()
            .find(|line| line.starts_with(&format!("{address} ")))
            .unwrap();
        assert!(line.contains(&mac) && !line.contains("PERMANENT"), "{line}");
    }

    // Duplicate address detection: a host that takes a service address must find it taken.
    kt.host.ip("addr add 2001:db8:1::53/64 dev eth0").unwrap();
    windrose_tests::process::eventually("DAD fails", LONG, || {
        Ok(kt
            .host
            .ip("addr show dev eth0")?
            .lines()
            .any(|l| l.contains("1::53/64") && l.contains("dadfailed")))
    })
    .unwrap();
    laws::hold_after_stop(&mut world).unwrap();
}

/// A query as the kernel would send it, from KT's resolver, with `tags` between MACs and EtherType.
fn tagged_query(world: &World, tags: &[u8]) -> Vec<u8> {
    let (port, client) = (
        world.host.mac("kt0").unwrap(),
        world.isps[0].host.mac("eth0").unwrap(),
    );
    // www.example.com A, id 0x5744, RD.
    let mut message = vec![0x57, 0x44, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["www", "example", "com", ""] {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 1, 0, 1]);
    let udp_len = u16::try_from(8 + message.len()).unwrap();
    let mut frame = [&port[..], &client, tags, &[8, 0]].concat();
    let ip = [
        &[0x45, 0],
        &(20 + udp_len).to_be_bytes()[..],
        &[0, 1, 0x40, 0, 64, 17, 0, 0],
    ]
    .concat();
    frame.extend(ip.iter().chain(&[192, 0, 2, 10, 192, 0, 2, 53]));
    frame.extend([[0x30, 0x39], [0, 53], udp_len.to_be_bytes(), [0, 0]].concat());
    frame.extend(message);
    let target = capture::Target {
        mac: port,
        ipv4: world.isps[0].service.0,
        ipv6: world.isps[0].service.1,
        client: world.isps[0].resolver.1,
    };
    capture::readdress(&mut frame, &target, capture::Checksums::Right);
    frame
}

#[test]
fn tagged_queries_are_answered_with_the_same_tags() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let wire = RawSocket::open(&world.isps[0].host, "eth0").unwrap();
    // None; VID 5 with PCP 5 and DEI; a priority tag; Q-in-Q of two 8100 tags (af_packet rewrites an
    // outer 88a8 to 8100, so 88a8 is left to the capture tests).
    for tags in [
        &[][..],
        &[0x81, 0, 0xb0, 5],
        &[0x81, 0, 0xb0, 0],
        &[0x81, 0, 0, 200, 0x81, 0, 7, 0xd1],
    ] {
        let query = tagged_query(&world, tags);
        wire.send(&query).unwrap();
        let is_reply = |frame: &[u8]| capture::dns(frame).is_some_and(|dns| dns.from.1 == 53);
        let frame = wire.receive(LONG, is_reply).unwrap();
        let (asked, reply) = (capture::dns(&query).unwrap(), capture::dns(&frame).unwrap());
        assert_eq!(
            (&reply.tags[..], &reply.from, &reply.to),
            (tags, &asked.to, &asked.from)
        );
        assert!(capture::checksums_hold(&frame), "{tags:x?}");
        assert_eq!((&frame[..6], &frame[6..12]), (&query[6..12], &query[..6]));
        // QR, AA and RD; NOERROR; one answer, which ends the message or comes before the rest.
        assert_eq!(reply.message[..4], [0x57, 0x44, 0x85, 0], "{tags:x?}");
        assert!(
            reply.message.windows(4).any(|at| at == [192, 0, 2, 80]),
            "{tags:x?}"
        );
    }
    laws::hold_after_stop(&mut world).unwrap();
}
