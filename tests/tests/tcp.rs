//! DNS over TCP through the exception path: the kernel's TCP behind the workers' rings. Needs root.

use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windrose_tests::appliance::{Appliance, one_port};
use windrose_tests::client::{DigReply, dig, dnsperf};
use windrose_tests::laws;
use windrose_tests::process::eventually;
use windrose_tests::raw::RawSocket;
use windrose_tests::stream::{ByHand, DnsStream, framed, query};
use windrose_tests::world::{Kind, World};

const LONG: Duration = Duration::from_secs(20);
/// RR types (RFC 1035).
const A: u16 = 1;
const TXT: u16 = 16;
/// TCP flag (RFC 9293).
const SYN: u8 = 2;

/// A world whose configuration and zone got something appended.
fn world(workers: usize, config: &str, zone: &str) -> World {
    let mut world = World::build(workers).unwrap();
    let path = world
        .config(Kind::AfPacket, workers, |text| text + config)
        .unwrap();
    let file = world.lab.folder().join("demo.zone");
    let text = std::fs::read_to_string(&file).unwrap() + zone;
    std::fs::write(&file, text).unwrap();
    world.start(&path).unwrap();
    world
}

/// What `windrose status` says of TCP.
fn status(world: &mut World) -> Value {
    world.appliance().unwrap().status().unwrap()["tcp"].clone()
}

fn count(status: &Value, family: &str, name: &str) -> u64 {
    status[family][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{family} {name}: {status:#}"))
}

/// Stops the appliance; before, every connection that was accepted is open or has one end.
fn stop(mut world: World) {
    let status = status(&mut world);
    let ends = [
        "closed_by_client",
        "idle",
        "evicted_client",
        "evicted_total",
        "bad_length",
        "failed",
    ];
    let ended: u64 = ends.iter().map(|end| count(&status, "connections", end)).sum();
    assert_eq!(
        count(&status, "connections", "accepted"),
        status["open"].as_u64().unwrap() + ended,
        "{status:#}"
    );
    laws::hold_after_stop(&mut world).unwrap();
}

fn header(reply: &DigReply) -> (String, bool, bool) {
    (reply.status.clone(), reply.has_flag("aa"), reply.has_flag("tc"))
}

/// Answers over TCP are those over UDP, over both families, from both ISPs.
fn dig_is_answered_over_tcp(kind: Kind, workers: usize) {
    let mut world = World::running(kind, workers).unwrap();
    for isp in &world.isps {
        for ipv6 in [false, true] {
            for query in [
                "vod.example.com A",
                "vod.example.com AAAA",
                "www.example.com A",
                "web.example.com A",
                "example.com MX",
                "example.com ANY",
                "www.example.com TXT",
                "absent.example.com A",
                "example.org A",
                "www.example.com A +noedns",
                "vod.example.com A +subnet=203.0.113.0/24",
                "example.com CH TXT",
                "www.example.com A +nsid",
                "www.example.com A +opcode=notify",
                "www.example.com A +edns=1 +noednsneg",
            ] {
                let ask = |how: &str| dig(&isp.host, isp.server(ipv6), &format!("{query} {how}"));
                let (udp, tcp) = (ask("+notcp").unwrap(), ask("+tcp").unwrap());
                assert_eq!(header(&tcp), header(&udp), "{query}\n{}", tcp.text);
                assert_eq!(
                    (&tcp.answer, &tcp.authority),
                    (&udp.answer, &udp.authority),
                    "{query}"
                );
                assert_eq!(
                    (&tcp.edns, &tcp.client_subnet),
                    (&udp.edns, &udp.client_subnet),
                    "{query}"
                );
                assert!(tcp.text.contains("(TCP)"), "{}", tcp.text);
            }
            for transfer in ["example.com AXFR", "example.com IXFR=1"] {
                let argv = format!("dig @{} +tcp +time=5 +tries=1 {transfer}", isp.server(ipv6));
                let argv: Vec<&str> = argv.split(' ').collect();
                let refused = isp.host.run(&argv, LONG).unwrap().stdout;
                assert!(
                    refused.contains("Transfer failed") || refused.contains("REFUSED"),
                    "{refused}"
                );
            }
            let reply = dig(&isp.host, isp.server(ipv6), "www.example.com A +tcp +keepalive").unwrap();
            assert!(
                reply.text.contains("TCP-KEEPALIVE: 10.0 secs")
                    || reply.text.contains("TCP KEEPALIVE: 10.0 secs"),
                "{}",
                reply.text
            );
        }
    }
    let tcp = status(&mut world);
    assert_eq!(tcp["open"], 0, "{tcp:#}");
    assert_eq!(count(&tcp, "sent", "unknown_neighbour"), 0, "{tcp:#}");
    assert!(count(&tcp, "replies", "answer") > 0, "{tcp:#}");
    stop(world);
}

#[test]
fn dig_is_answered_over_tcp_over_af_packet() {
    dig_is_answered_over_tcp(Kind::AfPacket, 1);
}

#[test]
fn dig_is_answered_over_tcp_over_af_packet_with_two_workers() {
    dig_is_answered_over_tcp(Kind::AfPacket, 2);
}

#[test]
fn dig_is_answered_over_tcp_over_af_xdp() {
    dig_is_answered_over_tcp(Kind::AfXdp, 1);
}

/// A record set that no datagram holds: dig asks again over TCP by itself, from the same address.
#[test]
fn a_truncated_answer_is_fetched_over_tcp() {
    // 230 strings of 250 characters, 12 bytes before each: 60,490 bytes.
    let big: String = (0..230).map(|n| format!("big IN TXT \"{n:0250}\"\n")).collect();
    let world = world(1, "", &big);
    for isp in &world.isps {
        for ipv6 in [false, true] {
            let server = isp.server(ipv6);
            let cut = dig(&isp.host, server, "big.example.com TXT").unwrap();
            assert_eq!((cut.has_flag("tc"), cut.answer.len()), (true, 0), "{}", cut.text);
            let argv = format!("dig @{server} +tries=1 +time=10 big.example.com TXT");
            let argv: Vec<&str> = argv.split(' ').collect();
            let whole = isp.host.run(&argv, LONG).unwrap().stdout;
            assert!(whole.contains("Truncated, retrying in TCP mode"), "{whole}");
            let reply = DigReply::parse(&whole).unwrap();
            let mut numbers: Vec<usize> = reply
                .answer
                .iter()
                .map(|r| r.rdata.trim_matches('"').parse().unwrap())
                .collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..230).collect::<Vec<_>>());
        }
    }
    stop(world);
}

/// The client sits behind a router: frames come from the router's MAC address, and go there.
#[test]
fn a_client_behind_a_router_is_answered() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let router = world.isps[0].host.clone();
    let user = world.lab.host("user").unwrap();
    world.lab.link(&router, "eth1", &user, "eth0").unwrap();
    for (host, interface, address) in [
        (&router, "eth1", "10.9.0.1/24"),
        (&router, "eth1", "2001:db8:9::1/64"),
        (&user, "eth0", "10.9.0.2/24"),
        (&user, "eth0", "2001:db8:9::2/64"),
    ] {
        host.address(interface, address).unwrap();
    }
    router.sysctl("net.ipv4.ip_forward", "1").unwrap();
    router.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    user.ip("route add default via 10.9.0.1").unwrap();
    user.ip("route add default via 2001:db8:9::1").unwrap();
    for ipv6 in [false, true] {
        let server = world.isps[0].server(ipv6);
        // The router and the client behind it at once: two ways with one MAC address.
        let mut near = DnsStream::connect(&router, server).unwrap();
        for how in ["+notcp", "+tcp"] {
            let reply = dig(&user, server, &format!("www.example.com A {how}")).unwrap();
            assert_eq!(
                reply.addresses(),
                [IpAddr::from([192, 0, 2, 80])],
                "{}",
                reply.text
            );
        }
        near.ask(&query(7, "www.example.com", A)).unwrap();
    }
    stop(world);
}

/// However queries arrive, each gets its reply.
#[test]
fn messages_may_be_split_joined_and_pipelined() {
    // Longer than anything here waits: no end comes from being idle.
    let mut world = world(1, "\n[dns.tcp]\nidle_timeout = \"1m\"\n", "");
    let isp = world.isps[0].clone();
    let server = isp.server(false);
    let want = |reply: &[u8], id: u16| {
        assert_eq!(
            reply[..4],
            [&id.to_be_bytes()[..], &[0x84, 0]].concat(),
            "{reply:x?}"
        );
        assert_eq!(reply[reply.len() - 4..], [192, 0, 2, 80]);
    };
    // A segment for each byte.
    let mut stream = DnsStream::connect(&isp.host, server).unwrap();
    for byte in framed(&query(1, "www.example.com", A)) {
        stream.send(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    want(&stream.message().unwrap(), 1);
    // 3,000 in one go, the last cut in its length; more than all buffers between hold is no problem either,
    // since the replies are read only afterwards.
    let many: Vec<u8> = (0..3000)
        .flat_map(|id| framed(&query(id, "www.example.com", A)))
        .collect();
    stream.send(&many).unwrap();
    let last = framed(&query(3000, "www.example.com", A));
    stream.send(&last[..1]).unwrap();
    let mut ids: Vec<u16> = (0..3000)
        .map(|_| stream.message().unwrap())
        .map(|reply| u16::from_be_bytes([reply[0], reply[1]]))
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..3000).collect::<Vec<_>>());
    // The rest, and with it the end of what the client says: the reply still comes, then the end.
    stream.send(&last[1..]).unwrap();
    stream.finish().unwrap();
    want(&stream.message().unwrap(), 3000);
    stream.end().unwrap();
    // A response on the way in is nobody's question; the next query is.
    let mut stream = DnsStream::connect(&isp.host, server).unwrap();
    let mut response = query(9, "www.example.com", A);
    response[2] = 0x80;
    stream.send(&framed(&response)).unwrap();
    want(&stream.ask(&query(10, "www.example.com", A)).unwrap(), 10);
    // What cannot be a DNS message ends the connection; what came before it is answered.
    for length in [0, 11] {
        let mut stream = DnsStream::connect(&isp.host, server).unwrap();
        let before = framed(&query(11, "www.example.com", A));
        stream.send(&[&before[..], &[0, length]].concat()).unwrap();
        want(&stream.message().unwrap(), 11);
        stream.end().unwrap();
    }
    // The longest that two bytes of length can announce: bytes behind the question are ignored.
    let mut long = query(12, "www.example.com", A);
    long.resize(65535, 0);
    let mut stream = DnsStream::connect(&isp.host, server).unwrap();
    let reply = stream.ask(&long).unwrap();
    want(&reply, 12);
    drop(stream);
    let tcp = status(&mut world);
    assert_eq!(count(&tcp, "connections", "bad_length"), 2, "{tcp:#}");
    assert_eq!(tcp["ignored"], 1, "{tcp:#}");
    stop(world);
}

/// A client that asks and never reads is cut off, and holds up nobody.
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let big: String = (0..230).map(|n| format!("big IN TXT \"{n:0250}\"\n")).collect();
    let mut world = world(1, "\n[dns.tcp]\nidle_timeout = \"1s\"\n", &big);
    let isp = world.isps[0].clone();
    let server = isp.server(false);
    let mut stream = DnsStream::connect(&isp.host, server).unwrap();
    let many: Vec<u8> = (0..500)
        .flat_map(|id| framed(&query(id, "big.example.com", TXT)))
        .collect();
    stream.send(&many).unwrap();
    let other = dig(&isp.host, server, "www.example.com A +tcp").unwrap();
    assert_eq!(other.addresses(), [IpAddr::from([192, 0, 2, 80])]);
    eventually("it is cut off", LONG, || {
        let tcp = world.appliance()?.status()?["tcp"].clone();
        Ok(count(&tcp, "connections", "failed") == 1 && tcp["open"] == 0)
    })
    .unwrap();
    stop(world);
}

#[test]
fn idle_connections_are_closed_and_bytes_alone_do_not_count() {
    let mut world = world(1, "\n[dns.tcp]\nidle_timeout = \"1s\"\n", "");
    let isp = &world.isps[0];
    let server = isp.server(true);
    let mut silent = DnsStream::connect(&isp.host, server).unwrap();
    let mut asked = DnsStream::connect(&isp.host, server).unwrap();
    asked.ask(&query(1, "www.example.com", A)).unwrap();
    let mut dribbles = DnsStream::connect(&isp.host, server).unwrap();
    // A byte every 100 ms would keep it open for minutes; the limit is one second for the whole query.
    let long = framed(&[0; 3000]);
    let cut = long.iter().take(200).any(|byte| {
        std::thread::sleep(Duration::from_millis(100));
        dribbles.send(&[*byte]).is_err()
    });
    assert!(cut, "20 s of single bytes were taken");
    silent.end().unwrap();
    asked.end().unwrap();
    let tcp = status(&mut world);
    assert_eq!(
        (count(&tcp, "connections", "idle"), &tcp["open"]),
        (3, &Value::from(0)),
        "{tcp:#}"
    );
    stop(world);
}

#[test]
fn limits_close_the_connection_that_waits_longest() {
    let mut world = world(
        1,
        "\n[dns.tcp]\nconnections = 4\nconnections_per_client = 2\nidle_timeout = \"1m\"\n",
        "",
    );
    let (kt, lg) = (world.isps[0].clone(), world.isps[1].clone());
    let connect = |isp: &windrose_tests::world::Isp, ipv6| {
        let mut stream = DnsStream::connect(&isp.host, isp.server(ipv6)).unwrap();
        stream.ask(&query(1, "www.example.com", A)).unwrap();
        stream
    };
    let (mut first, mut second) = (connect(&kt, false), connect(&kt, false));
    first.ask(&query(2, "www.example.com", A)).unwrap();
    // The client's third: its second waits longer now than its first.
    let mut third = connect(&kt, false);
    second.end().unwrap();
    first.ask(&query(3, "www.example.com", A)).unwrap();
    third.ask(&query(4, "www.example.com", A)).unwrap();
    // Four in all; the fifth is another client's, and the first waits longest.
    let (mut fourth, mut fifth) = (connect(&lg, false), connect(&kt, true));
    let mut sixth = connect(&lg, true);
    first.end().unwrap();
    for stream in [&mut third, &mut fourth, &mut fifth, &mut sixth] {
        stream.ask(&query(5, "www.example.com", A)).unwrap();
    }
    let tcp = status(&mut world);
    let evicted = |limit: &str| count(&tcp, "connections", &format!("evicted_{limit}"));
    assert_eq!(
        (evicted("client"), evicted("total"), &tcp["open"]),
        (1, 1, &Value::from(4)),
        "{tcp:#}"
    );
    stop(world);
}

/// The TCP thread's engine hears of health as workers do.
#[test]
fn a_member_that_is_down_is_not_given_over_tcp() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let kt = world.isps[0].clone();
    let member = |site: usize| IpAddr::from(world.sites[site].ipv4);
    let (own, next) = (member(0), member(1));
    // One connection over it all.
    let mut stream = DnsStream::connect(&kt.host, kt.server(false)).unwrap();
    let mut given = || {
        let reply = stream.ask(&query(1, "vod.example.com", A))?;
        let [.., a, b, c, d] = reply[..] else {
            panic!("short")
        };
        anyhow::Ok(IpAddr::from([a, b, c, d]))
    };
    eventually("its own site", LONG, || Ok(given()? == own)).unwrap();
    world.sites[0].origin.crash().unwrap();
    eventually("the next site", LONG, || Ok(given()? == next)).unwrap();
    world.sites[0].origin.restart().unwrap();
    eventually("its own site again", LONG, || Ok(given()? == own)).unwrap();
    stop(world);
}

/// What the kernel says of the TCP thread's namespace: a counter of `/proc/net/netstat`, and how many half-open
/// connections there are.
fn kernel(pid: u32, counter: &str) -> (u64, usize) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let named = |path: &std::path::Path| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
    let task = tasks
        .map(|task| task.unwrap().path())
        .find(|path| named(path).trim() == "windrose-tcp")
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(task.join("net").join(name)).unwrap();
    let netstat = read("netstat");
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == counter).unwrap();
    let value = values.split(' ').nth(at).unwrap().parse().unwrap();
    // The fourth column is the state; 03 is SYN-RECEIVED. The listener is one for both families.
    let half_open = |line: &str| line.split_ascii_whitespace().nth(3) == Some("03");
    (value, read("tcp6").lines().filter(|line| half_open(line)).count())
}

/// Forged SYNs, and connections that come and go, while queries run over UDP on the same port: each of those
/// is answered, and TCP is there again afterwards.
#[test]
fn floods_over_tcp_take_nothing_from_udp() {
    let mut world = World::running(Kind::AfPacket, 2).unwrap();
    let kt = world.isps[0].clone();
    let queries = world
        .lab
        .write("queries", "www.example.com A\nvod.example.com A\n")
        .unwrap();
    let wire = RawSocket::open(&kt.host, "eth0").unwrap();
    let forged = ByHand {
        port: world.host.mac("kt0").unwrap(),
        mac: kt.host.mac("eth0").unwrap(),
        tags: vec![],
        client: (Ipv4Addr::UNSPECIFIED, 0),
        service: kt.service.0,
    };
    let pid = world.appliance().unwrap().pid();
    let running = AtomicBool::new(true);
    let (got, syns, kernel) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut sent = 0u32;
            while running.load(Ordering::Relaxed) {
                for _ in 0..50 {
                    // From all of 198.18.0.0/15, ports in turn.
                    let address = Ipv4Addr::from(0xc612_0000 | sent.wrapping_mul(2_654_435_761) >> 15);
                    let port = u16::try_from(1024 + sent % 60000).unwrap();
                    let client = ByHand {
                        client: (address, port),
                        ..forged.clone()
                    };
                    wire.send(&client.frame(sent, 0, SYN, &[])).unwrap();
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        let connections = scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                // May fail under the flood: that is TCP's own trouble.
                if let Ok(mut stream) = DnsStream::connect(&kt.host, kt.server(false)) {
                    let _ = stream.ask(&query(1, "www.example.com", A));
                }
            }
        });
        let got = dnsperf(&kt.host, kt.server(false), &queries, 5, 1000);
        let kernel = std::panic::catch_unwind(|| kernel(pid, "SyncookiesSent"));
        running.store(false, Ordering::Relaxed);
        connections.join().unwrap();
        (got.unwrap(), flood.join().unwrap(), kernel.unwrap())
    });
    // Answered by cookies: no state beyond the queue of 1,024 (and a few that raced).
    let (cookies, half_open) = kernel;
    assert!(
        cookies > 0 && half_open <= 1100,
        "{cookies} cookies, {half_open} half open"
    );
    assert_eq!((got.lost, got.completed), (0, got.sent), "{got:?}");
    assert!(got.sent > 1000 && syns > 5000, "{got:?}, {syns} SYNs");
    let tcp = status(&mut world);
    assert!(count(&tcp, "punted", "forwarded") > 1000, "{tcp:#}");
    let reply = dig(&kt.host, kt.server(false), "www.example.com A +tcp").unwrap();
    assert_eq!(reply.addresses(), [IpAddr::from([192, 0, 2, 80])]);
    stop(world);
}

/// A reload brings a new service address and takes one away; both ends of the exception path follow.
#[test]
fn a_reload_moves_the_addresses() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let kt = world.isps[0].clone();
    let config = world.lab.folder().join("windrose.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"192.0.2.53\"", "\"192.0.2.54\"")).unwrap();
    world.appliance().unwrap().ask(&["reload"]).unwrap();
    let new = IpAddr::from([192, 0, 2, 54]);
    let reply = dig(&kt.host, new, "www.example.com A +tcp").unwrap();
    assert_eq!(
        reply.addresses(),
        [IpAddr::from([192, 0, 2, 80])],
        "{}",
        reply.text
    );
    assert!(dig(&kt.host, kt.server(false), "www.example.com A +tcp").is_err());
    assert_eq!(
        dig(&kt.host, kt.server(true), "www.example.com A +tcp")
            .unwrap()
            .addresses(),
        [IpAddr::from([192, 0, 2, 80])]
    );
    stop(world);
}

/// Two appliances on one host have the same interface name and the same port 53, each in its own namespace; one that
/// is killed leaves nothing that keeps its successor from starting.
#[test]
fn two_appliances_do_not_meet_and_a_killed_one_is_succeeded() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let second = world.lab.folder().join("second.sock");
    let zone = "\n[[zone]]\nname = \"example.com\"\nfile = \"demo.zone\"\n";
    let text = one_port("net_af_packet0,iface=wire", &second) + zone;
    let config = world.lab.write("second.toml", &text).unwrap();
    let far = world.lab.host("far").unwrap();
    world.lab.link(&world.host, "wire", &far, "eth0").unwrap();
    world.host.sysctl("net.ipv6.conf.wire.disable_ipv6", "1").unwrap();
    far.address("eth0", "192.0.2.99/24").unwrap();
    let kt = world.isps[0].clone();
    let ask = |host| {
        let reply = dig(host, kt.server(false), "www.example.com A +tcp").unwrap();
        assert_eq!(
            reply.addresses(),
            [IpAddr::from([192, 0, 2, 80])],
            "{}",
            reply.text
        );
    };
    for _ in 0..2 {
        let other = Appliance::start(&world.host, &config, &second).unwrap();
        ask(&far);
        ask(&kt.host);
        // Dropping it kills it.
        drop(other);
    }
    ask(&kt.host);
    stop(world);
}

/// Switched off, TCP gets no reply and the rest is as before.
#[test]
fn tcp_can_be_switched_off() {
    let mut world = world(1, "\n[dns.tcp]\nenabled = false\n", "");
    let kt = world.isps[0].clone();
    assert!(dig(&kt.host, kt.server(false), "www.example.com A +tcp").is_err());
    assert!(dig(&kt.host, kt.server(false), "www.example.com A +notcp").is_ok());
    assert_eq!(status(&mut world), Value::Null);
    laws::hold_after_stop(&mut world).unwrap();
}
