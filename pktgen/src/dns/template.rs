//! Queries as ready frames, one per name and type: a packet is a copy of one, with source address and
//! port, ID, ECS address and letter case patched in. Checksums are those of the constant bytes plus
//! the patched words, so that no packet is summed whole.
//!
//! Each packet is written into a buffer of its own: a template is never sent itself, as some ports
//! (net_ring) hand the sender's very buffer to the receiver.

use crate::clients::Clients;
use crate::dns::names::Query;
use crate::frame::{self, ETHERNET, put};
use dataplane::io::Window;
use ipnet::IpNet;
use std::net::IpAddr;

/// Frames are copied in blocks of this size: no call, no length-dependent branch inside.
const BLOCK: usize = 64;
/// DNS over UDP (RFC 1035 section 4.2.1).
pub const DNS_PORT: u16 = 53;
const TYPE_OPT: u16 = 41;
const OPTION_ECS: u16 = 8;
const CLASS_IN: u16 = 1;

/// What all frames of a run have in common.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Our MAC address.
    pub source_mac: [u8; 6],
    /// MAC address of the server or of the gateway to it.
    pub destination_mac: [u8; 6],
    /// 802.1Q tag.
    pub vlan: Option<u16>,
    /// The server; of the family of the clients.
    pub server: IpAddr,
    /// Where queries come from.
    pub clients: Clients,
    /// UDP payload size of the OPT record (RFC 6891); `None` for no OPT.
    pub edns: Option<u16>,
    /// Sets DO in the OPT record.
    pub dnssec_ok: bool,
    /// Client subnets for ECS (RFC 7871); needs an OPT record.
    pub ecs: Option<Ecs>,
    /// Letters of the name are sent in random case ("0x20").
    pub mixed_case: bool,
}

/// The client subnets that queries claim: every /24 (IPv4) or /56 (IPv6) of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecs {
    /// The prefix as the leading 24 or 56 bits of its network address.
    base: u64,
    /// 1 for IPv4, 2 for IPv6.
    family: u16,
    /// Source prefix length: 24 or 56.
    bits: u8,
    /// How many subnets there are to draw from.
    count: u64,
}

impl Ecs {
    /// The subnets of `net`; `None` when it is longer than one subnet (/24 or /56). At most 2^32 are used.
    pub fn new(net: IpNet) -> Option<Self> {
        let (base, family, bits) = match net.trunc().network() {
            IpAddr::V4(a) => (u64::from(a.to_bits() >> 8), 1, 24),
            IpAddr::V6(a) => ((a.to_bits() >> 72) as u64, 2, 56),
        };
        let free = bits - i32::from(net.prefix_len());
        (free >= 0).then(|| Self {
            base,
            family,
            bits: bits as u8,
            count: 1 << free.min(32),
        })
    }

    /// A subnet for 32 random bits, evenly: its leading 24 or 56 bits.
    #[inline]
    fn draw(&self, random: u32) -> u64 {
        self.base | ((u64::from(random) * self.count) >> 32)
    }

    fn address_len(&self) -> usize {
        usize::from(self.bits / 8)
    }
}

/// What differs from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Source address, as an index into the clients.
    pub client: u32,
    /// Source port.
    pub port: u16,
    /// DNS message ID.
    pub id: u16,
    /// Random bits for the ECS subnet.
    pub ecs: u32,
    /// Which letters change case: bit i mod 64 for the name's byte i.
    pub case: u64,
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    /// First block in the arena.
    block: u32,
    /// Frame length.
    len: u16,
    /// Bytes of the question: name, type, class.
    question_len: u16,
    /// Sums of the constant words: of the IPv4 header, and of UDP with its pseudo-header.
    ip_sum: u16,
    udp_sum: u16,
}

/// All templates of a run.
#[derive(Debug)]
pub struct Templates {
    arena: Vec<[u8; BLOCK]>,
    metas: Vec<Meta>,
    spec: Spec,
    /// Offsets of the IP header, the UDP header and the DNS header.
    l3: usize,
    l4: usize,
    dns: usize,
}

/// Most bytes that the templates of a run may take.
pub const ARENA_MAX: usize = 2 << 30;

impl Templates {
    /// Builds a template for each query. `None` when they would need more than [`ARENA_MAX`] bytes.
    pub fn new(spec: Spec, queries: &[Query]) -> Option<Self> {
        let l3 = ETHERNET + if spec.vlan.is_some() { 4 } else { 0 };
        let l4 = l3 + if spec.server.is_ipv4() { 20 } else { 40 };
        let dns = l4 + 8;
        let mut out = Self {
            arena: Vec::new(),
            metas: Vec::with_capacity(queries.len()),
            spec,
            l3,
            l4,
            dns,
        };
        for query in queries {
            let frame = out.build(query);
            let meta = out.meta(&frame, query);
            out.arena.extend(frame.chunks(BLOCK).map(|chunk| {
                let mut block = [0; BLOCK];
                put(&mut block, 0, chunk);
                block
            }));
            // At least two blocks each: see `write_at`.
            let blocks = (out.arena.len() - meta.block as usize).max(2);
            out.arena.resize(meta.block as usize + blocks, [0; BLOCK]);
            out.metas.push(meta);
            if out.arena.len() * BLOCK > ARENA_MAX {
                return None;
            }
        }
        Some(out)
    }

    /// Writes a packet from template `index` and returns its length. An index without a template gives 0.
    #[inline]
    pub fn write(&self, index: u32, patch: Patch, window: &mut Window) -> usize {
        // Offsets known to the compiler need no test for the window's end.
        match (self.l3, self.dns) {
            (14, 42) => self.write_at::<14, 42>(index, patch, window),
            (18, 46) => self.write_at::<18, 46>(index, patch, window),
            (14, 62) => self.write_at::<14, 62>(index, patch, window),
            _ => self.write_at::<18, 66>(index, patch, window),
        }
    }

    #[inline]
    fn write_at<const L3: usize, const DNS: usize>(
        &self,
        index: u32,
        patch: Patch,
        window: &mut Window,
    ) -> usize {
        let l4 = DNS - 8;
        let Some(meta) = self.metas.get(index as usize).copied() else {
            return 0;
        };
        let len = usize::from(meta.len);
        let first = meta.block as usize;
        let Some(from) = self.arena.get(first..).and_then(<[_]>::first_chunk::<2>) else {
            return 0;
        };
        // Two blocks hold most frames: a copy without a loop.
        let (to, _) = window.as_chunks_mut::<BLOCK>();
        if let Some(to) = to.first_chunk_mut::<2>() {
            *to = *from;
        }
        if len > 2 * BLOCK {
            let from = self
                .arena
                .get(first..first + len.div_ceil(BLOCK))
                .unwrap_or_default();
            for (to, from) in to.iter_mut().zip(from).skip(2) {
                *to = *from;
            }
        }

        let low = self.spec.clients.base_low() + patch.client;
        let low_sum = (low >> 16) + (low & 0xffff);
        let mut udp = u32::from(meta.udp_sum) + low_sum + u32::from(patch.port) + u32::from(patch.id);
        if l4 - L3 == 20 {
            put(window, L3 + 12, &low.to_be_bytes());
            let ip = !frame::fold(u32::from(meta.ip_sum) + low_sum);
            put(window, L3 + 10, &ip.to_be_bytes());
        } else {
            put(window, L3 + 20, &low.to_be_bytes());
        }
        put(window, l4, &patch.port.to_be_bytes());
        put(window, DNS, &patch.id.to_be_bytes());
        if let Some(ecs) = self.spec.ecs {
            // The address is the last thing in the message.
            udp += put_ecs(window, len - ecs.address_len(), l4, ecs, patch.ecs);
        }
        if self.spec.mixed_case {
            let name = DNS + 12..DNS + 8 + usize::from(meta.question_len);
            udp += flip_case(window.get_mut(name).unwrap_or_default(), patch.case);
        }
        let checksum = match !frame::fold(udp) {
            0 => 0xffff, // RFC 768: a computed zero is sent as all ones
            other => other,
        };
        put(window, l4 + 6, &checksum.to_be_bytes());
        len
    }

    /// True when an ECS subnet is patched in.
    #[inline]
    pub fn has_ecs(&self) -> bool {
        self.spec.ecs.is_some()
    }

    /// The question of template `index`: name, type, class.
    #[inline]
    fn question(&self, index: u32) -> Option<&[u8]> {
        let meta = self.metas.get(index as usize)?;
        let at = meta.block as usize * BLOCK + self.dns + 12;
        self.arena
            .as_flattened()
            .get(at..at + usize::from(meta.question_len))
    }

    /// Length of the question when `message` echoes that of template `index` byte for byte, in the
    /// letter case that was sent.
    #[inline]
    pub fn echoes_question(&self, index: u32, case: u64, message: &[u8]) -> Option<usize> {
        let sent = self.question(index)?;
        let echo = message.get(12..12 + sent.len())?;
        let same = if self.spec.mixed_case {
            let name_len = sent.len() - 4;
            let cased = |(i, &b): (usize, &u8)| if i < name_len { b ^ flips(b, i, case) } else { b };
            sent.iter().enumerate().map(cased).eq(echo.iter().copied())
        } else {
            sent == echo
        };
        same.then_some(sent.len())
    }

    /// Bytes of a frame before its DNS message.
    pub fn headers_len(&self) -> usize {
        self.dns
    }

    /// Number of templates.
    pub fn len(&self) -> usize {
        self.metas.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.metas.is_empty()
    }

    /// The frame with zeros for all that is patched, the IP and UDP checksums among it.
    fn build(&self, query: &Query) -> Vec<u8> {
        let spec = &self.spec;
        let message = message(spec, query);
        let udp_len = (message.len() + 8) as u16;
        let mut f = Vec::with_capacity(self.dns + message.len());
        f.extend(spec.destination_mac);
        f.extend(spec.source_mac);
        if let Some(vlan) = spec.vlan {
            f.extend(frame::ETHERTYPE_VLAN.to_be_bytes());
            f.extend(vlan.to_be_bytes());
        }
        match (spec.server, spec.clients.net().network()) {
            (IpAddr::V4(server), _) => {
                f.extend(frame::ETHERTYPE_IPV4.to_be_bytes());
                f.extend([0x45, 0]);
                f.extend((udp_len + 20).to_be_bytes());
                f.extend([0, 0, 0x40, 0, 64, frame::UDP, 0, 0]); // ID 0, DF, TTL 64
                f.extend([0; 4]);
                f.extend(server.octets());
            }
            (IpAddr::V6(server), network) => {
                f.extend(frame::ETHERTYPE_IPV6.to_be_bytes());
                f.extend([0x60, 0, 0, 0]);
                f.extend(udp_len.to_be_bytes());
                f.extend([frame::UDP, 64]);
                if let IpAddr::V6(network) = network {
                    f.extend(&network.octets()[..12]);
                }
                f.extend([0; 4]);
                f.extend(server.octets());
            }
        }
        f.extend([0, 0]);
        f.extend(DNS_PORT.to_be_bytes());
        f.extend(udp_len.to_be_bytes());
        f.extend([0, 0]);
        f.extend(message);
        f
    }

    fn meta(&self, f: &[u8], query: &Query) -> Meta {
        let udp_len = f.len() - self.l4;
        let ip_sum = if self.spec.server.is_ipv4() {
            frame::sum(&f[self.l3..self.l4], 0)
        } else {
            0
        };
        let addresses = match self.spec.server {
            IpAddr::V4(server) => frame::sum(&server.octets(), 0),
            // Source (its low 32 bits still zero) and destination.
            IpAddr::V6(_) => frame::sum(&f[self.l3 + 8..self.l3 + 40], 0),
        };
        let pseudo = addresses + u32::from(frame::UDP) + udp_len as u32;
        Meta {
            block: self.arena.len() as u32,
            len: f.len() as u16,
            question_len: query.name.len() as u16 + 4,
            ip_sum: frame::fold(ip_sum),
            udp_sum: frame::fold(frame::sum(&f[self.l4..], pseudo)),
        }
    }
}

/// The DNS message: header with ID 0, question, and the OPT record if any.
fn message(spec: &Spec, query: &Query) -> Vec<u8> {
    let mut m = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(spec.edns.is_some())];
    m.extend(&query.name);
    m.extend(query.rtype.to_be_bytes());
    m.extend(CLASS_IN.to_be_bytes());
    let Some(size) = spec.edns else { return m };
    m.push(0);
    m.extend(TYPE_OPT.to_be_bytes());
    m.extend(size.to_be_bytes());
    m.extend([0, 0, if spec.dnssec_ok { 0x80 } else { 0 }, 0]);
    let Some(ecs) = spec.ecs else {
        m.extend([0, 0]);
        return m;
    };
    let option_len = 4 + ecs.address_len() as u16;
    m.extend((option_len + 4).to_be_bytes());
    m.extend(OPTION_ECS.to_be_bytes());
    m.extend(option_len.to_be_bytes());
    m.extend(ecs.family.to_be_bytes());
    m.extend([ecs.bits, 0]); // scope 0 in queries (RFC 7871 section 6)
    m.extend(vec![0; ecs.address_len()]);
    m
}

/// Writes the subnet at `at`; returns what it adds to the UDP sum.
#[inline]
fn put_ecs(window: &mut [u8], at: usize, l4: usize, ecs: Ecs, random: u32) -> u32 {
    let left = ecs.draw(random) << (64 - u32::from(ecs.bits));
    let bytes = left.to_be_bytes();
    match ecs.address_len() {
        3 => put(window, at, &bytes[..3]),
        _ => put(window, at, &bytes[..7]),
    }
    // At an odd offset of the datagram its first byte is the low one of a word.
    let words = if (at - l4) % 2 == 1 { left >> 8 } else { left };
    ((words >> 48) + (words >> 32 & 0xffff) + (words >> 16 & 0xffff) + (words & 0xffff)) as u32
}

/// The bits that change a letter's case when `case` says so; 0 for what is no letter. Length bytes
/// of labels are below the letters.
#[inline]
fn flips(byte: u8, i: usize, case: u64) -> u8 {
    if byte.is_ascii_alphabetic() {
        ((case >> (i % 64)) as u8 & 1) << 5
    } else {
        0
    }
}

/// Changes the case of a name that begins at an even offset of the datagram (12 + 8); returns what that
/// adds to the sum.
fn flip_case(name: &mut [u8], case: u64) -> u32 {
    let mut change = 0i32;
    for (i, byte) in name.iter_mut().enumerate() {
        let new = *byte ^ flips(*byte, i, case);
        let delta = i32::from(new) - i32::from(*byte);
        change += if i % 2 == 0 { delta << 8 } else { delta };
        *byte = new;
    }
    // Ones' complement arithmetic is modulo 65,535.
    change.rem_euclid(0xffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::names;
    use domain::base::Message;
    use domain::base::iana::Rtype;
    use domain::base::opt::ClientSubnet;
    use proptest::prelude::*;

    fn spec(v6: bool, vlan: bool, edns: bool, ecs: Option<&str>, mixed_case: bool) -> Spec {
        let (server, net): (IpAddr, IpNet) = if v6 {
            (
                "2001:db8:ffff::53".parse().unwrap(),
                "2001:db8:1234:5678:9abc::/80".parse().unwrap(),
            )
        } else {
            ("192.0.2.53".parse().unwrap(), "10.128.0.0/9".parse().unwrap())
        };
        Spec {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            vlan: vlan.then_some(77),
            server,
            clients: Clients::new(net, server).unwrap(),
            edns: edns.then_some(1232),
            dnssec_ok: edns,
            ecs: ecs.map(|p| Ecs::new(p.parse().unwrap()).unwrap()),
            mixed_case,
        }
    }

    /// Ones' complement sum in the plainest form, as RFC 1071 states it: byte pairs, one at a time.
    fn reference_checksum(parts: &[&[u8]]) -> u16 {
        let bytes: Vec<u8> = parts.concat();
        let mut acc = 0u64;
        for pair in bytes.chunks(2) {
            acc += u64::from(pair[0]) * 256 + u64::from(pair.get(1).copied().unwrap_or(0));
        }
        while acc > 0xffff {
            acc = acc % 0x10000 + acc / 0x10000;
        }
        !(acc as u16)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Every patched field arrives, and both checksums are those of the whole packet.
        #[test]
        fn patched_packets_are_right(
            (v6, vlan, edns, mixed) in any::<(bool, bool, bool, bool)>(),
            ecs in prop::option::of(prop::sample::select(vec!["0.0.0.0/0", "10.1.0.0/16", "198.51.100.0/24", "2001:db8::/32", "2001:db8:1:200::/56"])),
            name in "[a-zA-Z0-9]{1,20}(\\.[a-z-]{1,30}x){0,5}",
            (random, port, id, subnet, case) in any::<(u32, u16, u16, u32, u64)>(),
        ) {
            let edns = edns || ecs.is_some();
            let spec = spec(v6, vlan, edns, ecs, mixed);
            let query = Query { name: names::wire(&name).unwrap(), rtype: 28 };
            let templates = Templates::new(spec.clone(), &[query]).unwrap();
            let client = spec.clients.draw(random);
            let mut window = [0xaa; 2048];
            let len = templates.write(0, Patch { client, port, id, ecs: subnet, case }, &mut window);
            let f = &window[..len];

            let l3 = if vlan { 18 } else { 14 };
            prop_assert_eq!(&f[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            if vlan { prop_assert_eq!(&f[12..16], [0x81, 0, 0, 77]); }
            let (l4, source, destination) = if v6 {
                prop_assert_eq!(&f[l3 - 2..l3 + 4], [0x86, 0xdd, 0x60, 0, 0, 0]);
                prop_assert_eq!(usize::from(u16::from_be_bytes([f[l3 + 4], f[l3 + 5]])), len - l3 - 40);
                prop_assert_eq!(&f[l3 + 6..l3 + 8], [17, 64]);
                (l3 + 40, &f[l3 + 8..l3 + 24], &f[l3 + 24..l3 + 40])
            } else {
                prop_assert_eq!(&f[l3 - 2..l3 + 2], [0x08, 0, 0x45, 0]);
                prop_assert_eq!(usize::from(u16::from_be_bytes([f[l3 + 2], f[l3 + 3]])), len - l3);
                prop_assert_eq!(reference_checksum(&[&f[l3..l3 + 20]]), 0);
                (l3 + 20, &f[l3 + 12..l3 + 16], &f[l3 + 16..l3 + 20])
            };
            let octets = |a: IpAddr| match a { IpAddr::V4(a) => a.octets().to_vec(), IpAddr::V6(a) => a.octets().to_vec() };
            prop_assert_eq!(source, octets(spec.clients.address(client)));
            prop_assert_eq!(destination, octets(spec.server));
            let udp_len = (len - l4) as u16;
            prop_assert_eq!(&f[l4..l4 + 2], port.to_be_bytes());
            prop_assert_eq!(&f[l4 + 2..l4 + 4], [0, 53]);
            prop_assert_eq!(&f[l4 + 4..l4 + 6], udp_len.to_be_bytes());
            prop_assert_ne!(&f[l4 + 6..l4 + 8], [0, 0]);
            let pseudo = [&[0, 17], &udp_len.to_be_bytes()[..]].concat();
            prop_assert_eq!(reference_checksum(&[source, destination, &pseudo, &f[l4..]]), 0);

            let message = Message::from_octets(&f[l4 + 8..]).unwrap();
            prop_assert_eq!(message.header().id(), id);
            prop_assert!(!message.header().qr() && !message.header().rd());
            let question = message.sole_question().unwrap();
            prop_assert_eq!(question.qname().to_string().to_lowercase(), name.to_lowercase());
            prop_assert_eq!(question.qtype(), Rtype::AAAA);
            if !mixed { prop_assert_eq!(question.qname().to_string(), name.clone()); }
            match message.opt() {
                None => prop_assert!(!edns),
                Some(opt) => {
                    prop_assert!(edns && opt.dnssec_ok() && opt.udp_payload_size() == 1232);
                    let sent = opt.opt().iter::<ClientSubnet>().next().transpose().unwrap();
                    prop_assert_eq!(sent.is_some(), ecs.is_some());
                    if let (Some(sent), Some(prefix)) = (sent, ecs) {
                        let prefix: IpNet = prefix.parse().unwrap();
                        prop_assert!(prefix.contains(&sent.addr()));
                        prop_assert_eq!(sent.source_prefix_len(), if prefix.addr().is_ipv4() { 24 } else { 56 });
                        prop_assert_eq!(sent.scope_prefix_len(), 0);
                    }
                }
            }
            prop_assert_eq!(templates.echoes_question(0, case, &f[l4 + 8..]), Some(query_len(&name)));
            window[l4 + 8 + 12 + 1] ^= 1;
            prop_assert_eq!(templates.echoes_question(0, case, &window[l4 + 8..len]), None);
        }
    }

    /// Name in wire form (a length byte a label, and the root) and four bytes of type and class.
    fn query_len(name: &str) -> usize {
        name.len() + 2 + 4
    }

    #[test]
    fn mixed_case_flips_letters_only() {
        let mut name = *b"\x03a1Z\x01-\x00";
        flip_case(&mut name, u64::MAX);
        assert_eq!(&name, b"\x03A1z\x01-\x00");
    }

    #[test]
    fn ecs_covers_its_prefix() {
        let ecs = Ecs::new("10.0.0.0/22".parse().unwrap()).unwrap();
        assert_eq!(
            [0, 1 << 30, 2 << 30, u32::MAX].map(|r| ecs.draw(r)),
            [0x0a0000, 0x0a0001, 0x0a0002, 0x0a0003]
        );
        assert!(Ecs::new("10.0.0.0/25".parse().unwrap()).is_none());
        assert!(Ecs::new("2001:db8::/57".parse().unwrap()).is_none());
    }
}
