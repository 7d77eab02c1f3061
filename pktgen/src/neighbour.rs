//! Who is where on the link: answers ARP, neighbour solicitations and echo for the generator's
//! clients, so that kernels can reply to them, and asks for the MAC address of the server or gateway.

use crate::clients::Clients;
use crate::clock::Clock;
use crate::frame::{self, ETHERNET, Received, be16, fold, pseudo_header, put, sum, take};
use dataplane::io::{Buffer, Burst, QueuePair, Shape, Window};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BROADCAST: [u8; 6] = [0xff; 6];
/// Ethernet and IPv4, as ARP names them (RFC 826).
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
/// ICMP (RFC 792) and ICMPv6 (RFC 4443, RFC 4861) types.
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_MAC: u8 = 1;
const OPTION_TARGET_MAC: u8 = 2;

/// Our side of the link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Our MAC address.
    pub mac: [u8; 6],
    /// The 802.1Q tag of every frame.
    pub vlan: Option<u16>,
    /// The addresses that are ours.
    pub clients: Clients,
}

impl Link {
    /// Turns a request in `window` into its reply, for the addresses that are ours. Returns the
    /// reply's length; `None` when there is nothing to reply.
    pub fn answer(&self, window: &mut Window, len: usize) -> Option<usize> {
        let request = window.get(..len)?;
        let to = take::<6>(request, 0)?;
        if to != self.mac && to[0] & 1 == 0 {
            return None;
        }
        match frame::read(request, self.vlan) {
            Received::Arp(at) => self.answer_arp(window, len, at),
            Received::Icmp {
                source,
                destination,
                l3,
                l4,
                message,
            } => {
                let len = message.len();
                match (source, destination, *message.first()?) {
                    (IpAddr::V4(_), _, ECHO_REQUEST) | (IpAddr::V6(_), _, ECHO_REQUEST_V6) => {
                        self.answer_echo(window, [l3, l4, l4 + len], source, destination)
                    }
                    (IpAddr::V6(source), _, NEIGHBOUR_SOLICITATION) if !source.is_unspecified() => {
                        self.answer_solicitation(window, [l3, l4, l4 + len], source)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn answer_arp(&self, window: &mut Window, len: usize, at: usize) -> Option<usize> {
        let body: [u8; 28] = take(window.get(..len)?, at)?;
        let target = IpAddr::V4(Ipv4Addr::from(take::<4>(&body, 24)?));
        let request = body.starts_with(&ARP_ETHERNET_IPV4) && be16(&body, 6)? == ARP_REQUEST;
        if !request || self.clients.index(target).is_none() {
            return None;
        }
        self.reply_to(window, take(&body, 8)?);
        let [sender, target] = [body.get(8..18)?, body.get(24..28)?];
        put(window, at + 6, &ARP_REPLY.to_be_bytes());
        put(window, at + 8, &self.mac);
        put(window, at + 14, target);
        put(window, at + 18, sender);
        Some(at + body.len())
    }

    fn answer_echo(
        &self,
        window: &mut Window,
        [l3, l4, end]: [usize; 3],
        source: IpAddr,
        destination: IpAddr,
    ) -> Option<usize> {
        self.clients.index(destination)?;
        self.reply_to(window, take(window.as_slice(), 6)?);
        let reply = if source.is_ipv4() {
            ECHO_REPLY
        } else {
            ECHO_REPLY_V6
        };
        put(window, l4, &[reply, 0, 0, 0]);
        seal_icmp(window, [l3, l4, end], destination, source);
        Some(end)
    }

    fn answer_solicitation(
        &self,
        window: &mut Window,
        [l3, l4, end]: [usize; 3],
        asker: Ipv6Addr,
    ) -> Option<usize> {
        let message = window.get(l4..end)?;
        let target = Ipv6Addr::from(take::<16>(message, 8)?);
        self.clients.index(IpAddr::V6(target))?;
        let mac = mac_option(message, OPTION_SOURCE_MAC).or(take(window.as_slice(), 6))?;
        self.reply_to(window, mac);
        // Solicited and Override (RFC 4861 section 4.4).
        put(window, l4, &[NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0]);
        put(window, l4 + 24, &[OPTION_TARGET_MAC, 1]);
        put(window, l4 + 26, &self.mac);
        let end = l4 + 32;
        seal_icmp(window, [l3, l4, end], IpAddr::V6(target), IpAddr::V6(asker));
        Some(end)
    }

    fn reply_to(&self, window: &mut Window, mac: [u8; 6]) {
        put(window, 0, &mac);
        put(window, 6, &self.mac);
    }

    /// Writes a request for the MAC address of `target`, sent from our address `from` of the same
    /// family; returns its length.
    pub fn request(&self, target: IpAddr, from: IpAddr, window: &mut Window) -> usize {
        window.fill(0);
        put(window, 6, &self.mac);
        let l3 = match self.vlan {
            Some(vlan) => {
                put(window, 12, &frame::ETHERTYPE_VLAN.to_be_bytes());
                put(window, 14, &vlan.to_be_bytes());
                ETHERNET + 4
            }
            None => ETHERNET,
        };
        match (target, from) {
            (IpAddr::V6(target), IpAddr::V6(from)) => {
                let octets = target.octets();
                let [.., a, b, c] = octets;
                put(window, 0, &[0x33, 0x33, 0xff, a, b, c]);
                put(window, l3 - 2, &frame::ETHERTYPE_IPV6.to_be_bytes());
                // The solicited-node address (RFC 4291 section 2.7.1).
                let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
                let l4 = l3 + 40;
                put(window, l4, &[NEIGHBOUR_SOLICITATION, 0, 0, 0]);
                put(window, l4 + 8, &octets);
                put(window, l4 + 24, &[OPTION_SOURCE_MAC, 1]);
                put(window, l4 + 26, &self.mac);
                let end = l4 + 32;
                seal_icmp(window, [l3, l4, end], IpAddr::V6(from), IpAddr::V6(group));
                end
            }
            (target, from) => {
                put(window, 0, &BROADCAST);
                put(window, l3 - 2, &frame::ETHERTYPE_ARP.to_be_bytes());
                put(window, l3, &ARP_ETHERNET_IPV4);
                put(window, l3 + 6, &ARP_REQUEST.to_be_bytes());
                put(window, l3 + 8, &self.mac);
                for (at, address) in [(14, from), (24, target)] {
                    if let IpAddr::V4(a) = address {
                        put(window, l3 + at, &a.octets());
                    }
                }
                l3 + 28
            }
        }
    }

    /// The MAC address of `target`, if `frame` tells it.
    pub fn learn(&self, frame: &[u8], target: IpAddr) -> Option<[u8; 6]> {
        match frame::read(frame, self.vlan) {
            Received::Arp(at) => {
                let body: [u8; 28] = take(frame, at)?;
                let sender = IpAddr::V4(Ipv4Addr::from(take::<4>(&body, 14)?));
                let right = body.starts_with(&ARP_ETHERNET_IPV4) && sender == target;
                right.then_some(take(&body, 8)?)
            }
            Received::Icmp { message, .. } if *message.first()? == NEIGHBOUR_ADVERTISEMENT => {
                let about = IpAddr::V6(Ipv6Addr::from(take::<16>(message, 8)?));
                let mac = mac_option(message, OPTION_TARGET_MAC).or(take(frame, 6))?;
                (about == target).then_some(mac)
            }
            _ => None,
        }
    }
}

/// The link-layer address option of a neighbour discovery message (RFC 4861 section 4.6.1). Options of
/// length 0 end the search.
fn mac_option(message: &[u8], kind: u8) -> Option<[u8; 6]> {
    let mut at = 24;
    loop {
        let [option, units] = take(message, at)?;
        if option == kind && units == 1 {
            return take(message, at + 2);
        }
        if units == 0 {
            return None;
        }
        at += usize::from(units) * 8;
    }
}

/// Writes the IP header in front of an ICMP message and the message's checksum.
fn seal_icmp(window: &mut Window, [l3, l4, end]: [usize; 3], source: IpAddr, destination: IpAddr) {
    let len = end - l4;
    put(window, l4 + 2, &[0, 0]);
    let pseudo = match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            put(window, l3 + 8, &[64, frame::ICMP, 0, 0]);
            put(window, l3 + 12, &s.octets());
            put(window, l3 + 16, &d.octets());
            let header = !fold(sum(window.get(l3..l4).unwrap_or_default(), 0));
            put(window, l3 + 10, &header.to_be_bytes());
            0
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            put(window, l3, &[0x60, 0, 0, 0]);
            put(window, l3 + 4, &(len as u16).to_be_bytes());
            put(window, l3 + 6, &[frame::ICMPV6, 255]);
            put(window, l3 + 8, &s.octets());
            put(window, l3 + 24, &d.octets());
            pseudo_header(source, destination, frame::ICMPV6, len)
        }
        _ => return,
    };
    let checksum = !fold(sum(window.get(l4..end).unwrap_or_default(), pseudo));
    put(window, l4 + 2, &checksum.to_be_bytes());
}

/// Nanoseconds between requests, and how many are sent before giving up.
const ASK_EVERY: u64 = 250_000_000;
const ASK_TIMES: u64 = 20;

/// Asks for the MAC address of `target` from our address `from`, answering others meanwhile.
/// `None` after five seconds without an answer.
pub fn resolve<Q: QueuePair, C: Clock>(
    port: &mut Q,
    clock: &mut C,
    link: &Link,
    target: IpAddr,
    from: IpAddr,
) -> Option<[u8; 6]> {
    let (mut rx, mut tx) = (Burst::new(), Burst::new());
    let start = clock.now();
    let mut asked = 0;
    loop {
        let now = clock.now();
        if now >= start + asked * ASK_EVERY {
            if asked == ASK_TIMES {
                return None;
            }
            asked += 1;
            if let Some(mut buffer) = port.alloc() {
                let len = link.request(target, from, buffer.window());
                buffer.set_len(len);
                // A full burst drops it; the next request will do.
                let _ = tx.push(buffer);
            }
        }
        port.rx(&mut rx);
        let quiet = rx.is_empty();
        let mut found = None;
        for mut buffer in rx.drain() {
            let len = buffer.len();
            if buffer.shape() != Shape::Whole {
                continue;
            }
            let window = buffer.window();
            found = found.or(link.learn(window.get(..len).unwrap_or_default(), target));
            if let Some(len) = link.answer(window, len) {
                buffer.set_len(len);
                let _ = tx.push(buffer);
            }
        }
        port.tx(&mut tx);
        if found.is_some() {
            return found;
        }
        if quiet {
            clock.idle(now + 1_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn link(net: &str) -> Link {
        let clients = Clients::new(net.parse().unwrap(), "192.0.2.1".parse().unwrap()).unwrap();
        Link {
            mac: OURS,
            vlan: None,
            clients,
        }
    }

    fn answer(link: &Link, request: &[u8]) -> Option<Vec<u8>> {
        let mut window = [0xee; 2048];
        window[..request.len()].copy_from_slice(request);
        let len = link.answer(&mut window, request.len())?;
        Some(window[..len].to_vec())
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn arp_for_a_client_only() {
        // RFC 826: request of 192.0.2.1 at 02:..:02 for 192.0.2.9, padded to 60 bytes.
        let ask = |target: &str| {
            let head =
                "ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 c0000201 000000000000";
            [bytes(head), bytes(target), vec![0; 18]].concat()
        };
        let reply =
            "020000000002 020000000001 0806 0001 0800 06 04 0002 020000000001 c0000209 020000000002 c0000201";
        let link = link("192.0.2.0/28");
        assert_eq!(answer(&link, &ask("c0000209")), Some(bytes(reply)));
        for other in ["c0000201", "c0000200", "c0000210"] {
            assert_eq!(answer(&link, &ask(other)), None, "{other}");
        }
        assert_eq!(
            link.learn(&bytes(reply), "192.0.2.9".parse().unwrap()),
            Some(OURS)
        );
        assert_eq!(link.learn(&bytes(reply), "192.0.2.8".parse().unwrap()), None);
    }

    #[test]
    fn solicitation_is_answered_solicited_and_overriding() {
        // RFC 4861 sections 4.3 and 4.4: fe80::2 asks for 2001:db8::9.
        let ask = "3333ff000009 020000000002 86dd 60000000 0020 3a ff fe800000000000000000000000000002 \
                   ff0200000000000000000001ff000009 8700 0000 00000000 20010db8000000000000000000000009 0101 020000000002";
        let mut ask = bytes(ask);
        let sum_of = |f: &[u8]| {
            let parts = [&f[22..54], &[0, 32, 0, 58], &f[54..86]].concat();
            let acc: u32 = parts
                .chunks(2)
                .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
                .sum();
            (acc & 0xffff) + (acc >> 16)
        };
        let checksum = !(sum_of(&ask) as u16);
        ask[56..58].copy_from_slice(&checksum.to_be_bytes());
        let reply = answer(&link("2001:db8::/64"), &ask).unwrap();
        assert_eq!(reply[..14], bytes("020000000002 020000000001 86dd"));
        assert_eq!(reply[20..22], [58, 255]);
        assert_eq!(reply[22..54], [&ask[62..78], &ask[22..38]].concat());
        assert_eq!(reply[54..56], [136, 0]);
        let rest = bytes("60000000 20010db8000000000000000000000009 0201 020000000001");
        assert_eq!(reply[58..], rest);
        assert_eq!(sum_of(&reply), 0xffff);
        assert_eq!(answer(&link("2001:db9::/64"), &ask), None);
        ask[57] ^= 1;
        assert_eq!(answer(&link("2001:db8::/64"), &ask), None, "wrong checksum");
    }
}
