//! DNS over UDP and over TCP give the same replies. Needs root.

use windrose_tests::laws;
use windrose_tests::stream::{DnsStream, datagrams, query};
use windrose_tests::world::{Kind, World};

/// The same query gets the same bytes over UDP and TCP, whatever it asks for and however it is made.
#[test]
fn replies_over_udp_and_tcp_are_the_same_bytes() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let names = [
        "vod.example.com",
        "WWW.eXample.com",
        "web.example.com",
        "a.b.wild.example.com",
        "wild.example.com",
        "absent.example.com",
        "a.b.c.absent.example.com",
        "example.com",
        "example.org",
        "version.bind",
    ];
    // A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV, HTTPS, IXFR, AXFR, ANY, private use (IANA).
    let types = [1, 2, 5, 6, 12, 15, 16, 28, 33, 65, 251, 252, 255, 65280];
    // OPT behind the question: size, extended RCODE, version, flags, options.
    let opt = |size: u16, version: u8, flags: u8, options: &[u8]| {
        let mut record = vec![0, 0, 41];
        record.extend(size.to_be_bytes());
        record.extend([0, version, flags, 0, 0, u8::try_from(options.len()).unwrap()]);
        record.extend(options);
        record
    };
    let additions = [
        vec![],
        opt(1232, 0, 0, &[]),
        opt(512, 0, 0x80, &[]),
        opt(4096, 1, 0, &[]),
        // NSID; client subnets of either ISP, valid and with a bit too many.
        opt(1232, 0, 0, &[0, 3, 0, 0]),
        opt(1232, 0, 0, &[0, 8, 0, 7, 0, 1, 24, 0, 203, 0, 113]),
        opt(1232, 0, 0, &[0, 8, 0, 10, 0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1]),
        opt(1232, 0, 0, &[0, 8, 0, 7, 0, 1, 23, 0, 203, 0, 113]),
        // An unknown option, padding, a cookie of a length that none has.
        opt(1232, 0, 0, &[0xff, 0, 0, 1, 7, 0, 12, 0, 3, 0, 0, 0]),
        opt(1232, 0, 0, &[0, 10, 0, 3, 1, 2, 3]),
        // Cut off in the middle.
        vec![0, 0, 41, 4],
    ];
    // RD; CD and AD; opcode UPDATE; TC; QDCOUNT 0 and 2; class CH is set by the name.
    let edits: [fn(&mut Vec<u8>); 7] = [
        |_| (),
        |q| q[2] |= 1,
        |q| q[3] |= 0x30,
        |q| q[2] |= 5 << 3,
        |q| q[2] |= 2,
        |q| q[5] = 0,
        |q| q[5] = 2,
    ];
    let mut queries = Vec::new();
    for (n, name) in names.iter().enumerate() {
        for rtype in types {
            for (a, addition) in additions.iter().enumerate() {
                let mut query = query(u16::try_from(queries.len()).unwrap(), name, rtype);
                if name.ends_with(".bind") {
                    *query.last_mut().unwrap() = 3;
                }
                query[11] = u8::from(!addition.is_empty());
                query.extend(addition);
                edits[(n + a + usize::from(rtype)) % edits.len()](&mut query);
                queries.push(query);
            }
        }
    }
    for ipv6 in [false, true] {
        let isp = &world.isps[usize::from(ipv6)];
        let udp = datagrams(&isp.host, isp.server(ipv6)).unwrap();
        let mut tcp = DnsStream::connect(&isp.host, isp.server(ipv6)).unwrap();
        for query in &queries {
            udp.send(query).unwrap();
            let mut buffer = [0; 4096];
            let len = udp.recv(&mut buffer).unwrap();
            let over_tcp = tcp.ask(query).unwrap();
            assert_eq!(buffer[2] & 2, 0, "truncated: {query:x?}");
            assert_eq!(buffer[..len], over_tcp, "{query:x?}");
        }
    }
    laws::hold_after_stop(&mut world).unwrap();
}
