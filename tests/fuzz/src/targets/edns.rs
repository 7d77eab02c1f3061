//! RDATA of an OPT record, judged by a plain reading of its RFCs: which must be FORMERR, which BADVERS, and which
//! an answer. Input: size (2 bytes), version, flags, then RDATA.

use super::message::Engines;
use crate::reply::{self, Via};
use crate::{Runner, Target, seeds};
use dataplane::stages::dns_answer::Client;

pub(crate) const TARGET: Target = Target {
    name: "edns",
    runner,
    seeds: seeds::edns,
    bounded: 20_000,
    len_max: 1000,
};

fn runner() -> Runner {
    let mut engines = Engines::new();
    Box::new(move |input| {
        let [s0, s1, version, flags, rdata @ ..] = input else {
            return;
        };
        for (name, answers) in [
            (&b"\x03www\x07example\x03com\x00"[..], true),
            (b"\x03vod\x07example\x03com\x00", true),
        ] {
            let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
            query.extend(name);
            query.extend([0, 1, 0, 1, 0, 0, 41, *s0, *s1, 0, *version, *flags, 0]);
            query.extend((rdata.len() as u16).to_be_bytes());
            query.extend(rdata);
            let wanted = if *version > 0 {
                // RFC 6891 section 6.1.3: BADVERS whatever the options, which that version may write otherwise.
                16
            } else if well_formed(rdata) {
                0
            } else {
                1
            };
            let [udp, _] = engines.ask(&query, Client::V4([10, 1, 2, 3]));
            let Some(udp) = udp else {
                panic!("no reply to {query:02x?}")
            };
            let read = reply::read(&udp, true).unwrap();
            assert_eq!(read.rcode(), wanted, "to {query:02x?}");
            assert!(read.opt().is_some() || wanted == 1, "no OPT, to {query:02x?}");
            let (tc, answered) = (read.flags & 0x0200 != 0, !read.shape(1).is_empty());
            assert_eq!(answered, wanted == 0 && answers && !tc, "to {query:02x?}");
            // Scope at least what was looked at, and only if asked: `reply` holds the rest.
            let _ = reply::check(&query, &udp, Via::Udp);
        }
    })
}

/// Whether all options are, by RFC 6891 section 6.1.2, RFC 7871 section 6 and RFC 7873 section 4.
fn well_formed(mut rdata: &[u8]) -> bool {
    while !rdata.is_empty() {
        let [c0, c1, l0, l1, rest @ ..] = rdata else {
            return false;
        };
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let Some(data) = rest.get(..len) else { return false };
        let fine = match u16::from_be_bytes([*c0, *c1]) {
            8 => client_subnet(data),
            10 => len == 8 || (16..=40).contains(&len),
            _ => true,
        };
        if !fine {
            return false;
        }
        rdata = &rest[len..];
    }
    true
}

fn client_subnet(data: &[u8]) -> bool {
    let [f0, f1, source, scope, address @ ..] = data else {
        return false;
    };
    let bits: u32 = match (f0, f1) {
        (0, 1) => 32,
        (0, 2) => 128,
        // Seen as an opt-out.
        (0, 0) => 0,
        _ => return false,
    };
    let (source, octets) = (u32::from(*source), address.len() as u32);
    // Bit by bit: none past the prefix may be set.
    let set = |bit: u32| address[(bit / 8) as usize] & (0x80 >> (bit % 8)) != 0;
    *scope == 0 && source <= bits && octets == source.div_ceil(8) && !(source..octets * 8).any(set)
}
