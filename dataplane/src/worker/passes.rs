//! What a worker does with one burst: DNS in four passes, each over all of it, and the other stages packet by packet.
//!
//! Called by the worker's loop, which owns all that is worked on here. Each pass is compiled twice: see [`Kernel`].

use crate::arch::{Isa, Kernel, Ticks};
use crate::counters::{Counter, Counters};
use crate::io::{BURST_MAX, Buffer, Shape, Window};
use crate::link::SampleSender;
use crate::stages::classify::{self, LastAddress, PortView, Role, classify};
use crate::stages::dns_answer::{Client, DnsAnswer, Located};
use crate::stages::flow_latency::{FlowLatency, Tables};
use crate::stages::neighbour::Neighbour;
use crate::stages::{Lane, Layers, Verdict, punt, reply};
use crate::tables::Snapshot;
use crate::wire::{self, eth, ipv4, ipv6, vlan};
use std::net::IpAddr;

/// A packet of the burst while stages work on it.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    state: State,
    /// Set by the last stage that sees it, when its frame is ready to leave if it does.
    pub(super) verdict: Verdict,
    layers: Layers,
    located: Located,
}

impl Packet {
    /// Who a service chose for.
    pub(super) fn client(&self) -> Option<IpAddr> {
        match self.located.asked_service()? {
            Client::V4(address) => Some(IpAddr::from(address)),
            Client::V6(address) => Some(IpAddr::from(address)),
        }
    }
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// On the lane of `dns_answer`, with plain headers and a question whose name was guessed.
    Short,
    /// On the lane of `dns_answer`, with plain headers.
    Plain,
    /// On the lane of `dns_answer`.
    Query,
    /// On no lane any more.
    Done,
}

impl State {
    #[inline(always)]
    fn is_plain(self) -> bool {
        matches!(self, State::Short | State::Plain)
    }
}

impl Default for Packet {
    fn default() -> Self {
        Self {
            state: State::Done,
            verdict: Verdict::Drop(Counter::DropNoSnapshot),
            layers: Layers::default(),
            located: Located::default(),
        }
    }
}

/// What the stages of one burst work with: disjoint parts of the worker.
pub(super) struct Stages<'a> {
    pub(super) isa: Isa,
    pub(super) port: usize,
    pub(super) now: Ticks,
    pub(super) snapshot: &'a Snapshot,
    pub(super) view: &'a PortView,
    pub(super) offload: bool,
    pub(super) dns_answer: &'a mut DnsAnswer,
    pub(super) neighbour: &'a mut Neighbour,
    pub(super) punts: &'a mut crate::link::PacketSender,
    pub(super) counters: &'a mut Counters,
}

impl Stages<'_> {
    /// Gives every packet its verdict; returns how many are replies. DNS goes in four passes over the burst, so that
    /// what one query has to wait for from memory is fetched while the others are worked on.
    #[inline(always)]
    pub(super) fn run<B: Buffer>(mut self, buffers: &mut [B], packets: &mut [Packet; BURST_MAX]) -> usize {
        let packets = packets.get_mut(..buffers.len()).unwrap_or(&mut []);
        let isa = self.isa;
        let replied = isa.run(Locate(&mut self, buffers, packets));
        if DnsAnswer::is_guarded(self.snapshot) {
            take_every_step(packets);
        }
        isa.run(Find(&self, packets));
        isa.run(Choose(&mut self, packets));
        replied
            + match self.offload {
                true => isa.run(Answer::<_, true>(&mut self, buffers, packets)),
                false => isa.run(Answer::<_, false>(&mut self, buffers, packets)),
            }
    }

    /// First pass: reads every packet. Returns how many are replies by now.
    #[inline(always)]
    fn locate<B: Buffer>(&mut self, buffers: &mut [B], packets: &mut [Packet]) -> usize {
        let mut last = LastAddress::NONE;
        let mut replied = 0;
        let mut packets = packets.iter_mut();
        for buffer in buffers {
            let Some(packet) = packets.next() else { break };
            let (shape, len) = (buffer.shape(), buffer.len());
            let window = buffer.window();
            if let Some(end) = classify::plain(window, len, shape, self.view, &mut last) {
                packet.state = State::Short;
                if !DnsAnswer::locate_plain(&mut packet.located, self.snapshot, window, end) {
                    packet.state = State::Plain;
                }
            } else {
                replied += self.otherwise(buffer, packet);
            }
        }
        replied
    }

    /// Second pass: looks the queries up.
    #[inline(always)]
    fn find(&self, packets: &mut [Packet]) {
        for packet in packets {
            self.dns_answer.engine.find(self.snapshot, &mut packet.located);
        }
    }

    /// A burst of a mirror or bridge port: measured, then consumed or passed on, whatever it holds. Returns how many are replies,
    /// to ARP, neighbour discovery and echo for the addresses that copies are sent to, and the verdict of all the others.
    /// Without replies no packet has its verdict written.
    #[inline(never)]
    pub(super) fn measure<B: Buffer>(
        mut self,
        buffers: &mut [B],
        packets: &mut [Packet; BURST_MAX],
        flows: Option<&mut FlowLatency>,
        samples: &mut SampleSender,
    ) -> (usize, Verdict) {
        let role = self.view.role;
        let verdict = match role {
            Role::Bridge(pair) => Verdict::Forward(pair),
            Role::Mirror | Role::Service => Verdict::Consume,
        };
        let packets = packets.get_mut(..buffers.len()).unwrap_or(&mut []);
        for packet in packets.iter_mut() {
            packet.located.forget();
        }
        let mirror = (role == Role::Mirror).then_some(&self.view.addresses);
        if let Some(flows) = flows {
            let tables = Tables {
                classes: &self.snapshot.classes,
                servers: &self.snapshot.servers,
            };
            flows.burst(buffers, self.now, tables, mirror, samples, self.counters);
        }
        if mirror.is_none_or(|addresses| addresses.iter().next().is_none()) {
            return (0, verdict);
        }
        let mut replied = 0;
        for (buffer, packet) in buffers.iter_mut().zip(packets) {
            (packet.state, packet.verdict) = (State::Done, verdict);
            replied += self.answer_for_mirror(buffer, packet);
        }
        (replied, verdict)
    }

    /// Whoever sends copies to an address of ours asks for its MAC address first; 1 if it got a reply.
    fn answer_for_mirror<B: Buffer>(&mut self, buffer: &mut B, packet: &mut Packet) -> usize {
        let (shape, len) = (buffer.shape(), buffer.len());
        let window = buffer.window();
        if shape != Shape::Whole || !may_be_for_neighbour(window) {
            return 0;
        }
        let (layers, lane) = classify(window, len, shape, self.view);
        if lane != Lane::Neighbour {
            return 0;
        }
        let (verdict, len) = self
            .neighbour
            .process(window, &layers, self.view, self.now, self.counters);
        if verdict != Verdict::Reply {
            return 0;
        }
        buffer.set_len(len);
        packet.verdict = verdict;
        1
    }

    /// Third pass: draws what services answer with.
    #[inline(always)]
    fn choose(&mut self, packets: &mut [Packet]) {
        for packet in packets {
            self.dns_answer.choose(&mut packet.located, self.snapshot);
        }
    }

    /// Fourth pass: answers the queries. Returns how many got a reply.
    #[inline(always)]
    fn answer<B: Buffer, const OFFLOAD: bool>(&mut self, buffers: &mut [B], packets: &mut [Packet]) -> usize {
        let (mut usual, mut query_bytes, mut reply_bytes, mut others) = (0, 0, 0, 0);
        let mut packets = packets.iter_mut();
        for buffer in buffers {
            let Some(packet) = packets.next() else { break };
            if packet.state == State::Short
                && let Some((len, frame)) =
                    self.dns_answer
                        .answer_plain::<OFFLOAD>(&packet.located, self.snapshot, buffer.window())
            {
                usual += 1;
                query_bytes += packet.located.len();
                reply_bytes += len;
                buffer.set_len(frame);
                if OFFLOAD {
                    buffer.request_checksum(reply::checksum_offload(&Layers::plain(0)));
                }
                packet.verdict = Verdict::Reply;
            } else if packet.state != State::Done {
                others += self.isa.run(Rest::<B, OFFLOAD>(self, buffer, packet));
            }
        }
        self.counters.add(Counter::DnsAnswer, usual as u64);
        self.counters.add(Counter::DnsQueryBytes, query_bytes as u64);
        self.counters.add(Counter::DnsReplyBytes, reply_bytes as u64);
        usual + others
    }

    /// Fourth pass over a query whose answer is none of the usual ones; 1 if it got a reply.
    #[inline(always)]
    fn deny_or_answer<B: Buffer, const OFFLOAD: bool>(
        &mut self,
        buffer: &mut B,
        packet: &mut Packet,
    ) -> usize {
        if packet.state.is_plain()
            && let Some((len, frame)) =
                self.dns_answer
                    .deny_plain::<OFFLOAD>(&mut packet.located, self.snapshot, buffer.window())
        {
            self.counters.bump(Counter::DnsNxdomain);
            self.counters
                .add(Counter::DnsQueryBytes, packet.located.len() as u64);
            self.counters.add(Counter::DnsReplyBytes, len as u64);
            buffer.set_len(frame);
            if OFFLOAD {
                buffer.request_checksum(reply::checksum_offload(&Layers::plain(0)));
            }
            packet.verdict = Verdict::Reply;
            return 1;
        }
        self.answer_any(buffer, packet)
    }

    /// Fourth pass over any query, by every step; 1 if it got a reply.
    #[inline(never)]
    fn answer_any<B: Buffer>(&mut self, buffer: &mut B, packet: &mut Packet) -> usize {
        let plain = packet.state.is_plain();
        let layers = if plain { Layers::plain(0) } else { packet.layers };
        let (dns, snapshot, offload) = (&mut *self.dns_answer, self.snapshot, self.offload);
        let (located, window, now) = (&mut packet.located, buffer.window(), self.now);
        let answered = match plain {
            true => dns.answer::<true>(located, snapshot, window, &layers, offload, now, self.counters),
            false => dns.answer::<false>(located, snapshot, window, &layers, offload, now, self.counters),
        };
        match answered {
            Ok(frame) => {
                buffer.set_len(frame);
                if self.offload {
                    buffer.request_checksum(reply::checksum_offload(&layers));
                }
                packet.verdict = Verdict::Reply;
                1
            }
            Err(reason) => {
                packet.verdict = Verdict::Drop(reason);
                0
            }
        }
    }

    /// First pass over a packet that is no plain query; 1 if it is a reply by now.
    #[inline(never)]
    fn otherwise<B: Buffer>(&mut self, buffer: &mut B, packet: &mut Packet) -> usize {
        let (shape, len) = (buffer.shape(), buffer.len());
        let window = buffer.window();
        let (layers, lane) = match shape {
            Shape::Whole => classify(window, len, shape, self.view),
            Shape::MultiSegment => (Layers::default(), drop(Counter::DropMultiSegment)),
            Shape::Oversized => (Layers::default(), drop(Counter::DropOversized)),
        };
        packet.layers = layers;
        let verdict = match lane {
            Lane::DnsAnswer => {
                packet.state = State::Query;
                DnsAnswer::locate(&mut packet.located, self.snapshot, window, &layers);
                return 0;
            }
            Lane::Neighbour => {
                let (verdict, len) =
                    self.neighbour
                        .process(window, &layers, self.view, self.now, self.counters);
                buffer.set_len(len);
                verdict
            }
            Lane::Punt => punt::punt(window, len, self.port as u8, self.punts),
            Lane::Done(verdict) => verdict,
        };
        packet.located.forget();
        (packet.state, packet.verdict) = (State::Done, verdict);
        usize::from(verdict == Verdict::Reply)
    }
}

/// [`Stages::locate`].
struct Locate<'a, 's, B>(&'a mut Stages<'s>, &'a mut [B], &'a mut [Packet]);
/// [`Stages::find`].
struct Find<'a, 's>(&'a Stages<'s>, &'a mut [Packet]);
/// [`Stages::choose`].
struct Choose<'a, 's>(&'a mut Stages<'s>, &'a mut [Packet]);
/// [`Stages::answer`].
struct Answer<'a, 's, B, const OFFLOAD: bool>(&'a mut Stages<'s>, &'a mut [B], &'a mut [Packet]);

/// [`Stages::deny_or_answer`].
struct Rest<'a, 's, B, const OFFLOAD: bool>(&'a mut Stages<'s>, &'a mut B, &'a mut Packet);

impl<B: Buffer, const OFFLOAD: bool> Kernel for Rest<'_, '_, B, OFFLOAD> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        self.0.deny_or_answer::<B, OFFLOAD>(self.1, self.2)
    }
}

impl<B: Buffer> Kernel for Locate<'_, '_, B> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        self.0.locate(self.1, self.2)
    }
}

impl Kernel for Find<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        self.0.find(self.1);
    }
}

impl Kernel for Choose<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        self.0.choose(self.1);
    }
}

impl<B: Buffer, const OFFLOAD: bool> Kernel for Answer<'_, '_, B, OFFLOAD> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        self.0.answer::<B, OFFLOAD>(self.1, self.2)
    }
}

/// ARP, ICMP or ICMPv6, without tags or with one.
fn may_be_for_neighbour(window: &Window) -> bool {
    let word = |offset| wire::at::<2>(window, offset).map_or(0, |b| u16::from_be_bytes(*b));
    let tagged = if vlan::is_tpid(word(eth::HEADER_LEN - 2)) {
        vlan::TAG_LEN
    } else {
        0
    };
    let l3 = eth::HEADER_LEN + tagged;
    let protocol = |offset| wire::at::<1>(window, l3 + offset).map(|[b]| *b);
    match word(l3 - 2) {
        eth::ETHER_TYPE_ARP => true,
        eth::ETHER_TYPE_IPV4 => protocol(9) == Some(ipv4::PROTOCOL_ICMP),
        eth::ETHER_TYPE_IPV6 => protocol(6) == Some(ipv6::NEXT_ICMPV6),
        _ => false,
    }
}

/// Makes queries of plain ones, which are answered by every step.
#[cold]
fn take_every_step(packets: &mut [Packet]) {
    for packet in packets.iter_mut().filter(|packet| packet.state.is_plain()) {
        (packet.state, packet.layers) = (State::Query, Layers::plain(0));
    }
}

/// A lane that ends in a drop.
const fn drop(reason: Counter) -> Lane {
    Lane::Done(Verdict::Drop(reason))
}
