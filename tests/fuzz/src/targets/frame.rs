//! A frame through a whole worker on the memory port, in a burst between two good queries: the packet laws hold, no
//! buffer is lost, at most one frame is sent for it, whatever is sent is well-formed and lawful, and the neighbours
//! in the burst get what they always get. Input: one byte of how, then the frame.

use crate::frames::{self, CLIENT_MAC, Kind, OUR_MAC, plain_sum};
use crate::lab::Lab;
use crate::reply::{self, Via};
use crate::{Runner, Target, seeds, world};
use control::config::model::{CookieMode, Dns, RateLimit};
use domain::base::iana::Rtype;
use etherparse::{SlicedPacket, TransportSlice};

pub(crate) const TARGET: Target = Target {
    name: "frame",
    runner,
    seeds: seeds::frames,
    bounded: 12_000,
    len_max: 1600,
};

/// The frame's addresses, lengths and checksums are made good, so that mutations reach what is behind them.
pub(crate) const REPAIR: u8 = 1;
/// To a worker that limits rates and wants cookies.
pub(crate) const GUARDED: u8 = 2;

fn runner() -> Runner {
    let good: Vec<Vec<u8>> = [("www.example.com.", Rtype::A), ("nope.example.com.", Rtype::A)]
        .map(|(name, rtype)| frames::query(false, 0, &frames::message(name, rtype, Some(1232))))
        .into();
    let mut open = Lab::new(world());
    let mut guarded = world();
    guarded.dns = Dns {
        rate_limit: Some(rate_limit()),
        ..guarded.dns
    };
    guarded.dns.cookies.mode = CookieMode::Require;
    let mut guarded = Lab::new(guarded);
    let always = open.exchange(&good);
    assert_eq!(always.len(), 2);
    Box::new(move |input| {
        let Some((&how, frame)) = input.split_first() else {
            return;
        };
        let mut frame = frame.to_vec();
        if how & REPAIR != 0 {
            repair(&mut frame);
        }
        if frame.is_empty() {
            return;
        }
        if how & GUARDED != 0 {
            let sent = guarded.exchange(&[frame.clone()]);
            sent.iter().for_each(|reply| lawful(&frame, reply));
            assert!(sent.len() <= 1, "{} frames for {frame:02x?}", sent.len());
        } else {
            let mut sent = open.exchange(&[good[0].clone(), frame.clone(), good[1].clone()]);
            assert!(
                matches!(sent.len(), 2 | 3),
                "{} frames around {frame:02x?}",
                sent.len()
            );
            let last = sent.pop().unwrap();
            assert_eq!([&sent[0], &last], [&always[0], &always[1]], "beside {frame:02x?}");
            if let Some(reply) = sent.get(1) {
                lawful(&frame, reply);
            }
        }
        let lab = if how & GUARDED != 0 {
            &mut guarded
        } else {
            &mut open
        };
        while lab.control.punts.receive(|_, _| ()).is_some() {}
    })
}

fn rate_limit() -> RateLimit {
    RateLimit {
        per_second: 100,
        burst: 100,
        slip: 2,
        prefix_v4: 24,
        prefix_v6: 56,
        allow: vec![],
    }
}

/// What was sent for a frame is well-formed, goes back to its sender, and obeys the laws of a reply.
fn lawful(frame: &[u8], sent: &[u8]) {
    let mut sent = sent.to_vec();
    // Duplicate address detection is answered to all nodes (RFC 4861 section 7.2.4), ARP to whom it names (RFC 826).
    let group = sent[..6] == [0x33, 0x33, 0, 0, 0, 1];
    let named =
        frame.windows(6).skip(22).any(|mac| mac == &sent[..6]) && sent.windows(2).any(|w| w == [8, 6]);
    assert!(
        sent[..6] == frame[6..12] || group || named,
        "not to the sender of {frame:02x?}: {sent:02x?}"
    );
    sent[..6].copy_from_slice(&CLIENT_MAC);
    if let Kind::Udp(reply) = frames::dissect(&sent) {
        let sliced = SlicedPacket::from_ethernet(frame).expect("answered, so readable");
        let Some(TransportSlice::Udp(udp)) = sliced.transport else {
            panic!("a reply to no UDP: {frame:02x?}")
        };
        assert_ne!(udp.source_port(), 0, "a reply to port 0");
        reply::check(udp.payload(), &reply, Via::Udp);
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}

/// Makes good what a mutation of the rest leaves wrong.
fn repair(frame: &mut [u8]) {
    if frame.len() < 14 {
        return;
    }
    if frame[0] & 1 == 0 {
        frame[..6].copy_from_slice(&OUR_MAC);
    }
    frame[6..12].copy_from_slice(&CLIENT_MAC);
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8] | [0x91, 0])) {
        at += 4;
    }
    let ip = at + 2;
    match frame.get(ip).map(|first| first >> 4) {
        Some(4) => repair_v4(&mut frame[ip..]),
        Some(6) => repair_v6(&mut frame[ip..]),
        _ => {}
    }
}

fn repair_v4(packet: &mut [u8]) {
    let (len, header) = (packet.len(), usize::from(packet[0] & 15) * 4);
    if header < 20 || len < header + 8 {
        return;
    }
    put(packet, 2, len as u16);
    put(packet, 10, 0);
    let sum = plain_sum(&packet[..header]);
    put(packet, 10, sum);
    let mut pseudo = packet[12..20].to_vec();
    pseudo.extend([0, packet[9]]);
    pseudo.extend(((len - header) as u16).to_be_bytes());
    repair_upper(packet[9], &pseudo, &mut packet[header..]);
}

fn repair_v6(packet: &mut [u8]) {
    let len = packet.len();
    if len < 48 {
        return;
    }
    put(packet, 4, (len - 40) as u16);
    // Behind extension headers too, as far as they go by their lengths.
    let (mut next, mut at) = (packet[6], 40);
    while matches!(next, 0 | 60 | 44) && at + 16 <= len {
        let size = if next == 44 {
            8
        } else {
            8 + 8 * usize::from(packet[at + 1])
        };
        (next, at) = (packet[at], at + size);
    }
    if at + 8 > len {
        return;
    }
    let mut pseudo = packet[8..40].to_vec();
    pseudo.extend(((len - at) as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, next]);
    repair_upper(next, &pseudo, &mut packet[at..]);
}

fn repair_upper(protocol: u8, pseudo: &[u8], upper: &mut [u8]) {
    let len = upper.len() as u16;
    let (at, pseudo) = match protocol {
        17 => {
            put(upper, 4, len);
            (6, pseudo)
        }
        1 => (2, &[][..]),
        58 => (2, pseudo),
        _ => return,
    };
    put(upper, at, 0);
    let sum = plain_sum(&[pseudo, upper].concat());
    put(upper, at, if sum == 0 { 0xffff } else { sum });
}
