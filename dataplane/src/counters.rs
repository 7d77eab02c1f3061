//! Every counter of a worker, one line each: name, kind, meaning.
//!
//! The worker adds to its own plain [`Counters`] and publishes them in housekeeping to a
//! [`Published`] block that control reads at any time. Two laws hold per worker and are tested:
//!
//! * received = replied + forwarded + punted + consumed + dropped (the sum over drop reasons)
//! * transmitted = replied + forwarded + injected

use crossbeam::utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($( $(#[doc = $help:literal])+ $variant:ident => $name:literal, $kind:ident; )+) => {
        /// One counter. The discriminant indexes [`Counters`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $( $(#[doc = $help])+ $variant, )+ }

        impl Counter {
            /// Every counter, in order of its discriminant.
            pub const ALL: &'static [Counter] = &[ $( Counter::$variant, )+ ];
            /// How many counters there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name as exported: snake case, without prefix or unit suffix.
            pub const fn name(self) -> &'static str {
                match self { $( Counter::$variant => $name, )+ }
            }
            /// The meaning, one or more sentences.
            pub const fn help(self) -> &'static str {
                match self { $( Counter::$variant => concat!($($help),+).trim_ascii(), )+ }
            }
            /// The family that the counter belongs to.
            pub const fn kind(self) -> Kind {
                match self { $( Counter::$variant => Kind::$kind, )+ }
            }
        }
    };
}

/// The family of a counter: what it is summed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A term of the packet laws that is not a drop.
    Packets,
    /// A drop reason: a packet with this verdict, counted once.
    Drop,
    /// What DNS answered: one per reply of the `dns_answer` stage.
    Dns,
    /// What else the worker notes of itself. No law sums these.
    Worker,
}

counters! {
    /// Packets received from ports.
    Received => "received", Packets;
    /// Packets transmitted to ports.
    Transmitted => "transmitted", Packets;
    /// Received packets turned into a reply that was transmitted.
    Replied => "replied", Packets;
    /// Received packets passed on unchanged or rewritten, and transmitted.
    Forwarded => "forwarded", Packets;
    /// Received packets copied to the punt ring.
    Punted => "punted", Packets;
    /// Received packets that a stage only measured.
    Consumed => "consumed", Packets;
    /// Packets that the worker originated or sent for control, and transmitted.
    Injected => "injected", Packets;

    /// The port refused the packet on transmit (its ring was full).
    DropTxFull => "tx_full", Drop;
    /// The punt ring was full.
    DropPuntFull => "punt_full", Drop;
    /// The frame lies in several segments.
    DropMultiSegment => "multi_segment", Drop;
    /// The frame is longer than the window of a buffer.
    DropOversized => "oversized", Drop;
    /// The frame ends inside its Ethernet or VLAN header.
    DropRunt => "runt", Drop;
    /// The destination MAC address is not ours and not a group that we serve.
    DropForeignMac => "foreign_mac", Drop;
    /// More VLAN tags than are answered.
    DropVlanDepth => "vlan_depth", Drop;
    /// An EtherType that is not served.
    DropEtherType => "ether_type", Drop;
    /// Malformed ARP, or ARP for an address that is not ours.
    DropArp => "arp", Drop;
    /// Malformed IPv4 header: version, header length or total length.
    DropIpv4Header => "ipv4_header", Drop;
    /// Wrong IPv4 header checksum.
    DropIpv4Checksum => "ipv4_checksum", Drop;
    /// Malformed IPv6 header: version or payload length.
    DropIpv6Header => "ipv6_header", Drop;
    /// IPv6 extension headers that are not walked, or too many of them.
    DropIpv6Extension => "ipv6_extension", Drop;
    /// A fragment; fragments are never answered.
    DropFragment => "fragment", Drop;
    /// The IP destination is not a service address of this port.
    DropForeignAddress => "foreign_address", Drop;
    /// A source address that must not be answered: multicast, broadcast, loopback, unspecified or our own.
    DropSourceAddress => "source_address", Drop;
    /// Malformed UDP: length below 8 or not that of the IP payload, or source port 0.
    DropUdpHeader => "udp_header", Drop;
    /// Wrong UDP checksum, or none over IPv6.
    DropUdpChecksum => "udp_checksum", Drop;
    /// A malformed ICMP or ICMPv6 message, or one that is not served.
    DropIcmp => "icmp", Drop;
    /// Echo over the rate limit.
    DropIcmpRate => "icmp_rate", Drop;
    /// Malformed neighbour discovery, or one for an address that is not ours.
    DropNeighbour => "neighbour", Drop;
    /// A DNS message shorter than its 12-byte header.
    DropDnsShort => "dns_short", Drop;
    /// A DNS message with QR=1: a response, never answered.
    DropDnsResponse => "dns_response", Drop;
    /// A DNS reply over the rate limit of its client.
    DropRateLimit => "rate_limit", Drop;
    /// Received before the first snapshot was adopted.
    DropNoSnapshot => "no_snapshot", Drop;

    /// Replies with RCODE NOERROR and an answer.
    DnsAnswer => "answer", Dns;
    /// Replies with RCODE NOERROR that refer to a child zone.
    DnsReferral => "referral", Dns;
    /// Replies with RCODE NOERROR and no answer: the name exists, the type does not.
    DnsNodata => "nodata", Dns;
    /// Replies with RCODE NXDOMAIN.
    DnsNxdomain => "nxdomain", Dns;
    /// Replies with RCODE FORMERR.
    DnsFormerr => "formerr", Dns;
    /// Replies with RCODE NOTIMP.
    DnsNotimp => "notimp", Dns;
    /// Replies with RCODE REFUSED.
    DnsRefused => "refused", Dns;
    /// Replies with extended RCODE BADVERS.
    DnsBadvers => "badvers", Dns;
    /// Replies with RCODE SERVFAIL.
    DnsServfail => "servfail", Dns;
    /// Replies with extended RCODE BADCOOKIE: the query's cookie was bad where a good one is required, or its client is
    /// over the rate limit, or it asked about the cookie alone.
    DnsBadcookie => "badcookie", Dns;
    /// Replies without question to queries for a cookie alone.
    DnsCookie => "cookie", Dns;
    /// Replies to questions of class CH about this server.
    DnsIdentity => "identity", Dns;
    /// Empty replies with TC set, sent in place of one over the rate limit of its client.
    DnsSlipped => "slipped", Dns;

    /// Replies with TC set (also counted by their outcome).
    DnsTruncated => "dns_truncated", Worker;
    /// Service answers given by the all-down rule (also counted by their outcome).
    DnsAllDown => "dns_all_down", Worker;
    /// DNS replies that no rate limit holds for, by a good cookie or the allow list (also counted by their outcome).
    RateLimitExempt => "rate_limit_exempt", Worker;
    /// Bytes of DNS queries that got a reply.
    DnsQueryBytes => "dns_query_bytes", Worker;
    /// Bytes of DNS replies.
    DnsReplyBytes => "dns_reply_bytes", Worker;
    /// Packets that a driver delivered in a buffer that no window fits; freed unseen, and not among those received.
    RxUnusable => "rx_unusable", Worker;
    /// Packets of measured flows.
    FlowPackets => "flow_packets", Worker;
    /// Packets on mirror and bridge ports that belong to no measured flow.
    FlowUnmeasured => "flow_unmeasured", Worker;
    /// Flows created. Less those expired and evicted: flows in the table.
    FlowsCreated => "flows_created", Worker;
    /// Flows forgotten because nothing came for long.
    FlowsExpired => "flows_expired", Worker;
    /// Flows that gave way to new ones in a full table.
    FlowsEvicted => "flows_evicted", Worker;
    /// New flows that found no room in a table full of busy ones.
    FlowsRefused => "flows_refused", Worker;
    /// Latency samples sent to control.
    LatencySamples => "latency_samples", Worker;
    /// Latency samples dropped because control did not keep up.
    LatencySamplesDropped => "latency_samples_dropped", Worker;
    /// Polls of all ports.
    Polls => "polls", Worker;
    /// Polls that received at least one packet. Over polls: the busy share.
    UsefulPolls => "useful_polls", Worker;
    /// Longest time between two loop turns, TSC ticks, since start.
    LoopGapTicksMax => "loop_gap_ticks_max", Worker;
    /// Snapshots adopted.
    SnapshotsAdopted => "snapshots_adopted", Worker;
    /// Snapshots handed back to control.
    SnapshotsRetired => "snapshots_retired", Worker;
    /// Health and site words taken.
    WordsTaken => "words_taken", Worker;
    /// Injections dropped because no buffer was free or the port refused them.
    InjectionsDropped => "injections_dropped", Worker;
    /// Replies whose frame or address was found conflicting: somebody else claims a service address by ARP or ND.
    AddressConflicts => "address_conflicts", Worker;
}

/// A worker's own counters: plain words, one writer.
#[derive(Clone, Debug)]
pub struct Counters([u64; Counter::COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; Counter::COUNT])
    }
}

impl Counters {
    /// Adds one.
    #[inline(always)]
    pub fn bump(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n`, wrapping.
    #[inline(always)]
    pub fn add(&mut self, counter: Counter, n: u64) {
        // The discriminant is below COUNT by construction, so this check folds away.
        if let Some(word) = self.0.get_mut(counter as usize) {
            *word = word.wrapping_add(n);
        }
    }

    /// Takes back `n` of what was counted in this burst: a verdict that turned into another.
    #[inline]
    pub fn take_back(&mut self, counter: Counter, n: u64) {
        self.add(counter, n.wrapping_neg());
    }

    /// Raises a maximum.
    #[inline]
    pub fn raise(&mut self, counter: Counter, value: u64) {
        if let Some(word) = self.0.get_mut(counter as usize) {
            *word = (*word).max(value);
        }
    }

    /// The value.
    #[inline]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or(0)
    }

    /// Sum over all counters of one kind.
    pub fn sum(&self, kind: Kind) -> u64 {
        Counter::ALL
            .iter()
            .filter(|c| c.kind() == kind)
            .map(|&c| self.get(c))
            .sum()
    }

    /// Adds all of `other`; maxima are raised.
    pub fn merge(&mut self, other: &Counters) {
        for &c in Counter::ALL {
            match c {
                Counter::LoopGapTicksMax => self.raise(c, other.get(c)),
                _ => self.add(c, other.get(c)),
            }
        }
    }

    /// The two packet laws; `Err` names the one that does not hold, with its terms.
    pub fn check_laws(&self) -> Result<(), String> {
        use Counter::*;
        let dropped = self.sum(Kind::Drop);
        let [rx, tx, replied, forwarded, punted, consumed, injected] = [
            Received,
            Transmitted,
            Replied,
            Forwarded,
            Punted,
            Consumed,
            Injected,
        ]
        .map(|c| self.get(c));
        if rx != replied + forwarded + punted + consumed + dropped {
            return Err(format!(
                "received {rx} != replied {replied} + forwarded {forwarded} + punted {punted} \
                 + consumed {consumed} + dropped {dropped}"
            ));
        }
        if tx != replied + forwarded + injected {
            return Err(format!(
                "transmitted {tx} != replied {replied} + forwarded {forwarded} + injected {injected}"
            ));
        }
        Ok(())
    }
}

/// A worker's counters as others read them: written by the worker in housekeeping, relaxed.
#[derive(Debug)]
pub struct Published(CachePadded<[AtomicU64; Counter::COUNT]>);

impl Default for Published {
    fn default() -> Self {
        Self(CachePadded::new([const { AtomicU64::new(0) }; Counter::COUNT]))
    }
}

impl Published {
    /// Copies the worker's counters out. One writer.
    pub fn publish(&self, counters: &Counters) {
        for (word, value) in self.0.iter().zip(counters.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads them; terms may be of neighbouring loop turns while the worker runs.
    pub fn read(&self) -> Counters {
        let mut out = Counters::default();
        for (word, value) in out.0.iter_mut().zip(self.0.iter()) {
            *word = value.load(Ordering::Relaxed);
        }
        out
    }
}
