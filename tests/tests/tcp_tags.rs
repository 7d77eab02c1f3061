//! DNS over TCP for clients in VLANs, by frames alone. Needs root.

use std::net::Ipv4Addr;
use std::time::Duration;
use windrose_tests::laws;
use windrose_tests::raw::RawSocket;
use windrose_tests::stream::{ByHand, Segment, framed, query};
use windrose_tests::world::{Kind, World};

const LONG: Duration = Duration::from_secs(20);
/// RR type (RFC 1035).
const A: u16 = 1;
/// TCP flags (RFC 9293).
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Handshake, query, reply, and the same tags on all that comes back.
#[test]
fn tagged_clients_are_answered_with_their_tags() {
    let mut world = World::running(Kind::AfPacket, 1).unwrap();
    let wire = RawSocket::open(&world.isps[0].host, "eth0").unwrap();
    let base = ByHand {
        port: world.host.mac("kt0").unwrap(),
        mac: world.isps[0].host.mac("eth0").unwrap(),
        tags: vec![],
        client: (Ipv4Addr::new(192, 0, 2, 77), 40000),
        service: world.isps[0].service.0,
    };
    // None; VID 5 with PCP 5; two tags of 8100 (af_packet rewrites an outer 88a8).
    for (n, tags) in [&[][..], &[0x81, 0, 0xa0, 5], &[0x81, 0, 0, 200, 0x81, 0, 7, 0xd1]]
        .into_iter()
        .enumerate()
    {
        let n = u8::try_from(n).unwrap();
        let client = ByHand {
            tags: tags.to_vec(),
            client: (Ipv4Addr::new(192, 0, 2, 77 + n), 40000),
            ..base.clone()
        };
        let theirs = open(&wire, &client);
        let asked = framed(&query(0x5744, "www.example.com", A));
        wire.send(&client.frame(1001, theirs, ACK, &asked)).unwrap();
        let reply = next(&wire, &client, &|s| !s.data.is_empty());
        assert_eq!(reply.data[2..4], [0x57, 0x44], "{tags:x?}");
        assert!(reply.data.windows(4).any(|at| at == [192, 0, 2, 80]), "{tags:x?}");
        // RST, so that nothing is repeated.
        wire.send(&client.frame(1001 + u32::try_from(asked.len()).unwrap(), 0, 4, &[]))
            .unwrap();
    }
    // One address in two VLANs. What the first does not acknowledge is repeated, and the second was heard last.
    let [first, second] = [5, 6].map(|vid| ByHand {
        tags: vec![0x81, 0, 0, vid],
        client: (Ipv4Addr::new(192, 0, 2, 90), 40000 + u16::from(vid)),
        ..base.clone()
    });
    let theirs = open(&wire, &first);
    let asked = framed(&query(0x5744, "www.example.com", A));
    wire.send(&first.frame(1001, theirs, ACK, &asked)).unwrap();
    next(&wire, &first, &|s| !s.data.is_empty());
    open(&wire, &second);
    next(&wire, &first, &|s| !s.data.is_empty());

    laws::hold_after_stop(&mut world).unwrap();
}

/// Connects by hand; the sequence number that the other end goes on with.
fn open(wire: &RawSocket, client: &ByHand) -> u32 {
    wire.send(&client.frame(1000, 0, SYN, &[])).unwrap();
    next(wire, client, &|s| s.flags == SYN | ACK)
        .sequence
        .wrapping_add(1)
}

/// The next segment to the client, by its address, port and tags.
fn next(wire: &RawSocket, client: &ByHand, wanted: &dyn Fn(&Segment) -> bool) -> Segment {
    let frame = wire
        .receive(LONG, |frame| client.read(frame).is_some_and(|s| wanted(&s)))
        .unwrap();
    client.read(&frame).unwrap()
}
