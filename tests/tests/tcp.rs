//! DNS over TCP through the exception path: the kernel's TCP behind the workers' rings. Needs root.

use windrose_tests::client::{DigReply, dig};
use windrose_tests::laws;
use windrose_tests::world::{Kind, World};

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
        }
    }
    laws::hold_after_stop(&mut world).unwrap();
}

#[test]
fn dig_is_answered_over_tcp_over_af_packet() {
    dig_is_answered_over_tcp(Kind::AfPacket, 1);
}
