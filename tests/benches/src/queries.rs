//! The queries that the benches send: whole Ethernet frames, all different, by kind.

use crate::world::{self, SERVICE, Size};
use control::config::model::RateLimit;
use dataplane::wire::checksum::{Sum, pseudo_v4};
use dataplane::wire::cookie::Address;

/// What is asked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The A record of one of the zone's names.
    StaticA,
    /// The service, 2 of 27 members of 6 sites in one tier, in turn.
    GslbA,
    /// The same, with EDNS.
    GslbEdns,
    /// The same, with EDNS and a client subnet that an ISP has.
    GslbEcs,
    /// The same as [`Kind::GslbEdns`] with a good cookie, which comes back as it is.
    GslbCookie,
    /// The same with client subnet and cookie.
    GslbEcsCookie,
    /// Without EDNS, by clients whose ISP has a site: its members alone are in the first tier.
    GslbIsp,
    /// The same service with all nine metrics in its chain, and some queries that explore.
    GslbChain,
    /// The service that draws at random by weight.
    GslbWeighted,
    /// A name that does not exist, of 4 labels.
    NxDomain4,
    /// A name that does not exist, of 127 labels.
    NxDomain127,
    /// A TXT record of 1,005 bytes, with EDNS.
    BigTxt,
    /// As [`Kind::StaticA`] where responses are rate limited; nobody reaches the limit.
    LimitedStaticA,
    /// As [`Kind::GslbA`], likewise.
    LimitedGslbA,
    /// As [`Kind::NxDomain4`], likewise.
    LimitedNxDomain4,
    /// As [`Kind::NxDomain4`], from one network and far over its limit: every second query gets an empty reply.
    Flood,
}

impl Kind {
    /// All, in the order of the table.
    pub(crate) const ALL: [Self; 16] = [
        Self::StaticA,
        Self::GslbA,
        Self::GslbEdns,
        Self::GslbEcs,
        Self::GslbCookie,
        Self::GslbEcsCookie,
        Self::NxDomain4,
        Self::NxDomain127,
        Self::GslbIsp,
        Self::GslbChain,
        Self::GslbWeighted,
        Self::BigTxt,
        Self::LimitedStaticA,
        Self::LimitedGslbA,
        Self::LimitedNxDomain4,
        Self::Flood,
    ];

    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StaticA => "static-a",
            Self::GslbA => "gslb-a",
            Self::GslbEdns => "gslb-edns",
            Self::GslbEcs => "gslb-ecs",
            Self::GslbCookie => "gslb-a-cookie",
            Self::GslbEcsCookie => "gslb-a-ecs-cookie",
            Self::GslbIsp => "gslb-isp",
            Self::GslbChain => "gslb-chain",
            Self::GslbWeighted => "gslb-weighted",
            Self::NxDomain4 => "nxdomain-4",
            Self::NxDomain127 => "nxdomain-127",
            Self::BigTxt => "big-txt",
            Self::LimitedStaticA => "limited-static-a",
            Self::LimitedGslbA => "limited-gslb-a",
            Self::LimitedNxDomain4 => "limited-nxdomain-4",
            Self::Flood => "flood",
        }
    }

    /// What it is, for the table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::StaticA => "static A",
            Self::GslbA => "GSLB A, 2 of 27 in turn",
            Self::GslbEdns => "GSLB A + EDNS",
            Self::GslbEcs => "GSLB A + EDNS + ECS",
            Self::GslbCookie => "GSLB A + EDNS + cookie",
            Self::GslbEcsCookie => "GSLB A + EDNS + ECS + cookie",
            Self::GslbIsp => "GSLB A, site in the client's ISP",
            Self::GslbChain => "GSLB A, nine metrics, site in the client's ISP",
            Self::GslbWeighted => "GSLB A, 2 of 27 weighted",
            Self::NxDomain4 => "NXDOMAIN, 4 labels",
            Self::NxDomain127 => "NXDOMAIN, 127 labels",
            Self::BigTxt => "TXT of 1,005 bytes + EDNS",
            Self::LimitedStaticA => "static A, rate limits on",
            Self::LimitedGslbA => "GSLB A, 2 of 27 in turn, rate limits on",
            Self::LimitedNxDomain4 => "NXDOMAIN, 4 labels, rate limits on",
            Self::Flood => "random names over the limit, slip 2",
        }
    }

    /// RCODE and answer count that every reply must have.
    pub(crate) const fn expected(self) -> (u8, u16) {
        match self {
            Self::StaticA | Self::LimitedStaticA | Self::BigTxt => (0, 1),
            Self::NxDomain4 | Self::NxDomain127 | Self::LimitedNxDomain4 => (3, 0),
            Self::Flood => (0, 0),
            _ => (0, 2),
        }
    }

    /// The rate limits that it is asked under.
    pub(crate) fn rate_limit(self) -> Option<RateLimit> {
        let (per_second, prefix_v4) = match self {
            Self::LimitedStaticA | Self::LimitedGslbA | Self::LimitedNxDomain4 => (1_000_000, 24),
            // All clients are in 11.0.0.0/8.
            Self::Flood => (1, 8),
            _ => return None,
        };
        Some(RateLimit {
            per_second,
            burst: per_second,
            slip: 2,
            prefix_v4,
            prefix_v6: 56,
            allow: Vec::new(),
        })
    }

    /// `count` frames of this kind for a port with this MAC address; every one asks something else or comes from
    /// elsewhere.
    pub(crate) fn frames(self, count: usize, mac: [u8; 6]) -> Vec<Vec<u8>> {
        (0..count).map(|i| self.frame(i, mac, world::USUAL)).collect()
    }

    /// The i-th of its queries to a configuration of that size.
    pub(crate) fn frame(self, i: usize, mac: [u8; 6], size: Size) -> Vec<u8> {
        let name = match self {
            // A prime step: neighbours in the burst are not neighbours in the zone.
            Self::StaticA | Self::LimitedStaticA => world::name(i * 15_485_863 % size.names),
            Self::GslbWeighted => "weighted.example.com".into(),
            Self::GslbChain => "chain.example.com".into(),
            Self::NxDomain4 | Self::LimitedNxDomain4 | Self::Flood => format!("q{i}.none.example.com"),
            Self::NxDomain127 => long_name(i),
            Self::BigTxt => "big.example.com".into(),
            _ => "vod.example.com".into(),
        };
        // Clients are spread over all prefixes; without EDNS options they are looked up by their source.
        let with_site = matches!(self, Self::GslbIsp | Self::GslbChain);
        let at = nth_prefix(i, with_site, size.prefixes);
        let (mut client, _) = world::prefix(at);
        client[3] = 7;
        let edns = match self {
            Self::GslbEdns | Self::BigTxt => Some(Vec::new()),
            Self::GslbEcs => Some(subnet(client)),
            Self::GslbCookie => Some(cookie(i, client)),
            Self::GslbEcsCookie => Some([subnet(client), cookie(i, client)].concat()),
            _ => None,
        };
        query(&Query {
            mac,
            client,
            id: i as u16,
            name: &name,
            rtype: if self == Self::BigTxt { 16 } else { 1 },
            edns: edns.as_deref(),
        })
    }
}

/// A client subnet option of the client's /24.
fn subnet([a, b, c, _]: [u8; 4]) -> Vec<u8> {
    vec![0, 8, 0, 7, 0, 1, 24, 0, a, b, c]
}

/// A COOKIE option that the appliance gave to the client.
fn cookie(i: usize, client: [u8; 4]) -> Vec<u8> {
    let own = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let made = world::SECRETS.make(own, Address::V4(client), world::COOKIE_TIME);
    [&[0, 10, 0, 24][..], &made].concat()
}

/// The prefix of the i-th client, in an ISP that has a site or in one that has none.
fn nth_prefix(i: usize, with_site: bool, prefixes: usize) -> usize {
    let spread = i * 7919 % (prefixes / world::ISPS).max(1);
    let sites = world::SITES / 2;
    let isp = if with_site {
        i % sites
    } else {
        sites + i % (world::ISPS - sites)
    };
    spread * world::ISPS + world::first_prefix_of(isp)
}

/// 127 labels of one byte below `x`, the longest that a name can have; the first four tell `i`.
fn long_name(i: usize) -> String {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let first = [i, i / 26, i / 676, i / 17_576].map(|n| format!("{}.", letter(n)));
    format!("{}{}x", first.concat(), "w.".repeat(126 - first.len()))
}

/// One query.
pub(crate) struct Query<'a> {
    /// Where it goes.
    pub(crate) mac: [u8; 6],
    /// Source address.
    pub(crate) client: [u8; 4],
    /// DNS id and part of the source port.
    pub(crate) id: u16,
    /// Name in text without the last dot.
    pub(crate) name: &'a str,
    /// Its type.
    pub(crate) rtype: u16,
    /// Options of an OPT record, if it has one.
    pub(crate) edns: Option<&'a [u8]>,
}

/// The Ethernet frame of a query over IPv4.
pub(crate) fn query(q: &Query<'_>) -> Vec<u8> {
    let mut dns = Vec::new();
    dns.extend(q.id.to_be_bytes());
    dns.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(q.edns.is_some())]);
    for label in q.name.split('.') {
        dns.push(label.len() as u8);
        dns.extend(label.bytes());
    }
    dns.push(0);
    dns.extend(q.rtype.to_be_bytes());
    dns.extend([0, 1]);
    if let Some(options) = q.edns {
        // Root, OPT, 1232 bytes, no flags (RFC 6891 section 6.1.2).
        dns.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0]);
        dns.extend((options.len() as u16).to_be_bytes());
        dns.extend(options);
    }
    let udp_len = 8 + dns.len() as u16;
    let mut udp = (0xc000 | q.id).to_be_bytes().to_vec();
    udp.extend([0, 53]);
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(dns);
    let sum = Sum::of(&udp)
        .plus(pseudo_v4(q.client, SERVICE, 17, udp_len))
        .udp_checksum();
    udp[6..8].copy_from_slice(&sum);
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_len).to_be_bytes());
    ip.extend([0x12, 0x34, 0, 0, 57, 17, 0, 0]);
    ip.extend(q.client);
    ip.extend(SERVICE);
    let sum = Sum::of(&ip).checksum();
    ip[10..12].copy_from_slice(&sum);
    let mut frame = q.mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 0xc1, 8, 0]);
    frame.extend(ip);
    frame.extend(udp);
    frame
}

/// RCODE and answer count of the DNS reply in an IPv4 frame, if it is one.
pub(crate) fn read_reply(frame: &[u8]) -> Option<(u8, u16)> {
    let dns = frame.get(42..54)?;
    (dns[2] & 0x80 != 0).then(|| (dns[3] & 15, u16::from_be_bytes([dns[6], dns[7]])))
}
