//! Replies, as far as a load generator reads them: header, sections walked to their end, addresses of
//! the answer. Bounded by the message: a compression pointer must point back, so that following
//! them ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// Bytes of the DNS header.
pub const HEADER: usize = 12;
/// Most addresses kept of one reply: more do not fit a buffer (16 bytes a record at least).
pub const ADDRESSES_MAX: usize = 128;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Message ID.
    pub id: u16,
    flags: u16,
    /// Records of the question, answer, authority and additional sections.
    counts: [u16; 4],
}

impl Header {
    /// Reads it.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = message.first_chunk()?;
        let (words, _) = bytes.as_chunks::<2>();
        let mut values = [0; 6];
        for (value, word) in values.iter_mut().zip(words) {
            *value = u16::from_be_bytes(*word);
        }
        let [id, flags, counts @ ..] = values;
        Some(Self { id, flags, counts })
    }

    /// True for a reply (QR=1) to a standard query with one question.
    pub fn is_reply(&self) -> bool {
        self.flags & 0xf800 == 0x8000 && self.counts[0] == 1
    }

    /// The TC bit.
    pub fn truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }
}

/// What a reply says.
#[derive(Clone, Debug)]
pub struct Reply {
    /// RCODE, with the upper bits of an OPT record (RFC 6891 section 6.1.3).
    pub rcode: u16,
    addresses: [IpAddr; ADDRESSES_MAX],
    count: usize,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            rcode: 0,
            addresses: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); ADDRESSES_MAX],
            count: 0,
        }
    }
}

impl Reply {
    /// Addresses of the answer section (A and AAAA, whatever their owner), in order.
    pub fn addresses(&self) -> &[IpAddr] {
        self.addresses.get(..self.count).unwrap_or_default()
    }

    /// Reads the sections after a question that ends at `at`. `None` for a malformed message, one with
    /// bytes left over among them.
    pub fn read(&mut self, message: &[u8], header: Header, mut at: usize) -> Option<()> {
        self.rcode = header.flags & 0x000f;
        self.count = 0;
        let [_, answers, authorities, additionals] = header.counts;
        for (section, records) in [answers, authorities, additionals].into_iter().enumerate() {
            for _ in 0..records {
                at = self.record(message, at, section == 0)?;
            }
        }
        (at == message.len()).then_some(())
    }

    fn record(&mut self, message: &[u8], at: usize, answer: bool) -> Option<usize> {
        let at = skip_name(message, at)?;
        let fixed: &[u8; 10] = message.get(at..)?.first_chunk()?;
        let [t0, t1, c0, c1, extended, _, _, _, l0, l1] = *fixed;
        let (rtype, class) = (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([c0, c1]));
        let data_at = at + fixed.len();
        let end = data_at + usize::from(u16::from_be_bytes([l0, l1]));
        let data = message.get(data_at..end)?;
        match rtype {
            TYPE_A if answer && class == CLASS_IN => {
                self.push(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?)));
            }
            TYPE_AAAA if answer && class == CLASS_IN => {
                self.push(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)));
            }
            TYPE_OPT => self.rcode |= u16::from(extended) << 4,
            _ => {}
        }
        Some(end)
    }

    fn push(&mut self, address: IpAddr) {
        if let Some(place) = self.addresses.get_mut(self.count) {
            *place = address;
            self.count += 1;
        }
    }
}

/// The end of the name at `at`, checked to its root (RFC 1035 sections 3.1 and 4.1.4).
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    let mut end = None;
    let mut len = 0;
    // Start of the piece being read: a pointer must go before it.
    let mut piece = at;
    loop {
        let first = *message.get(at)?;
        match first >> 6 {
            0 => {
                len += usize::from(first) + 1;
                at += usize::from(first) + 1;
                if len > 255 {
                    return None;
                }
                if first == 0 {
                    return end.or(Some(at));
                }
            }
            3 => {
                let target = usize::from(u16::from_be_bytes([first & 0x3f, *message.get(at + 1)?]));
                end = end.or(Some(at + 2));
                if target >= piece || target < HEADER {
                    return None;
                }
                (at, piece) = (target, target);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::message_builder::{HashCompressor, MessageBuilder};
    use domain::base::{Message, Name, Rtype, Ttl};
    use domain::rdata::{A, Aaaa, AllRecordData, Cname, Ns};
    use proptest::prelude::*;

    fn read(message: &[u8]) -> Option<Reply> {
        let header = Header::read(message).filter(Header::is_reply)?;
        let question = skip_name(message, HEADER)? + 4;
        let mut reply = Reply::default();
        reply.read(message, header, question)?;
        Some(reply)
    }

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().unwrap()
    }

    fn sample(v4: &[u32], v6: &[u128], extended: bool) -> Vec<u8> {
        let mut b = MessageBuilder::from_target(HashCompressor::new(Vec::new())).unwrap();
        b.header_mut().set_qr(true);
        let mut b = b.question();
        b.push((name("www.example.com"), Rtype::A)).unwrap();
        let mut b = b.answer();
        let ttl = Ttl::from_secs(30);
        b.push((
            name("www.example.com"),
            ttl,
            Cname::new(name("a.cdn.example.com")),
        ))
        .unwrap();
        for &a in v4 {
            b.push((name("a.cdn.example.com"), ttl, A::new(Ipv4Addr::from(a))))
                .unwrap();
        }
        for &a in v6 {
            b.push((name("a.cdn.example.com"), ttl, Aaaa::new(Ipv6Addr::from(a))))
                .unwrap();
        }
        let mut b = b.authority();
        b.push((name("example.com"), ttl, Ns::new(name("ns.example.com"))))
            .unwrap();
        let mut b = b.additional();
        b.push((name("ns.example.com"), ttl, A::new(Ipv4Addr::new(9, 9, 9, 9))))
            .unwrap();
        if extended {
            b.opt(|o| {
                o.set_rcode(domain::base::iana::OptRcode::BADVERS);
                Ok(())
            })
            .unwrap();
        }
        b.finish().into_target()
    }

    #[test]
    fn answer_addresses_only() {
        let reply = read(&sample(&[0x01020304, 0x01020305], &[1], false)).unwrap();
        let expected: Vec<IpAddr> = ["1.2.3.4", "1.2.3.5", "::1"].map(|a| a.parse().unwrap()).into();
        assert_eq!(reply.addresses(), expected);
        assert_eq!(reply.rcode, 0);
        assert_eq!(read(&sample(&[], &[], true)).unwrap().rcode, 16);
    }

    #[test]
    fn names_that_do_not_end() {
        let with = |tail: &[u8]| [&[0; 12], tail].concat();
        assert_eq!(skip_name(&with(&[1, b'a', 0, 0xc0, 12]), 15), Some(17));
        assert_eq!(skip_name(&with(&[0xc0, 12]), 12), None, "itself");
        assert_eq!(skip_name(&with(&[0xc0, 14, 0]), 12), None, "forward");
        assert_eq!(skip_name(&with(&[0xc0, 0]), 12), None, "into the header");
        assert_eq!(skip_name(&with(&[1, b'a', 0xc0, 12]), 14), None, "round");
        assert_eq!(skip_name(&with(&[0x40, 0]), 12), None);
        assert_eq!(skip_name(&with(&[5, b'a']), 12), None);
        let long: Vec<u8> = std::iter::repeat_n([&[63u8][..], &[b'a'; 63]].concat(), 4)
            .flatten()
            .chain([0])
            .collect();
        assert_eq!(skip_name(&with(&long), 12), None, "257 bytes");
    }

    /// The oracle: every record of every section parses, and nothing is left.
    fn oracle(message: &[u8]) -> Option<Vec<IpAddr>> {
        let message = Message::from_octets(message).ok()?;
        let answer = message.answer().ok()?;
        let mut addresses = Vec::new();
        for record in answer {
            match record.ok()?.to_any_record::<AllRecordData<_, _>>().ok()?.data() {
                AllRecordData::A(a) => addresses.push(IpAddr::V4(a.addr())),
                AllRecordData::Aaaa(a) => addresses.push(IpAddr::V6(a.addr())),
                _ => {}
            }
        }
        Some(addresses)
    }

    proptest! {
        #[test]
        fn agrees_with_domain(v4 in prop::collection::vec(any::<u32>(), 0..20), v6 in prop::collection::vec(any::<u128>(), 0..9)) {
            let message = sample(&v4, &v6, true);
            let reply = read(&message).unwrap();
            prop_assert_eq!(reply.addresses(), oracle(&message).unwrap());
        }

        /// No input panics or loops; a cut message is never taken for whole.
        #[test]
        fn damaged(at in 0usize..150, value: u8, cut in 0usize..150) {
            let mut message = sample(&[7, 8], &[9], true);
            prop_assert!(read(&message[..cut.min(message.len() - 1)]).is_none());
            let index = at % message.len();
            message[index] = value;
            let _ = read(&message);
        }

        #[test]
        fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
