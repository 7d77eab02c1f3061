//! A DNS message through the engine, over UDP and TCP, from different clients. The laws of [`reply`] hold; an
//! engine that takes every step says the same as the quick one; UDP and TCP agree. Input: one byte that picks the client,
//! then the message.

use crate::reply::{self, Via};
use crate::{Runner, Target, seeds, world};
use control::health::Standing;
use control::policy::Compiler;
use dataplane::link::{WordTarget, WordValue};
use dataplane::stages::dns_answer::{Client, Engine, Event, Located, Outcome, Silent, Trace, Transport};
use dataplane::tables::Snapshot;
use std::sync::Arc;

pub(crate) const TARGET: Target = Target {
    name: "message",
    runner,
    seeds: || {
        seeds::messages()
            .into_iter()
            .map(|m| [&[0], &m[..]].concat())
            .collect()
    },
    bounded: 20_000,
    len_max: 1400,
};

/// Of the test vectors in RFC 9018.
const SECONDS: u32 = 1_559_731_985;
const CLIENTS: [Client; 8] = [
    Client::V4([203, 0, 113, 1]),
    Client::V4([10, 1, 2, 3]),
    Client::V4([10, 1, 200, 3]),
    Client::V4([10, 2, 2, 3]),
    Client::V6([0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    Client::V6([0x20, 1, 0x0d, 0xb8, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    Client::V6([0x20, 1, 0x0d, 0xb8, 0, 0x0c, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    Client::V6([0x20, 1, 0x0d, 0xb8, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
];

fn runner() -> Runner {
    let mut engines = Engines::new();
    Box::new(move |input| {
        if let Some((&who, message)) = input.split_first() {
            engines.ask(message, CLIENTS[usize::from(who) % CLIENTS.len()]);
        }
    })
}

/// Engines that have all been asked the same, so that they draw the same.
pub(crate) struct Engines {
    snapshot: Snapshot,
    /// UDP, UDP by every step, TCP, TCP by every step.
    engines: [Engine; 4],
    /// Health: which word, who is up, who falls back.
    words: Vec<(WordTarget, WordValue)>,
    located: Box<Located>,
    udp: Box<[u8; 4096]>,
    tcp: Box<[u8; 65_535]>,
}

impl Engines {
    pub(crate) fn new() -> Self {
        let mut compiler = Compiler::default();
        let compiled = compiler
            .compile(Arc::new(world()), Vec::new(), |_| Standing::UP, 0)
            .unwrap();
        let words = compiler.slots.lock().unwrap().take_changes();
        Self {
            snapshot: compiled.snapshot,
            engines: engines(&words),
            words,
            located: Box::default(),
            udp: Box::new([0; 4096]),
            tcp: Box::new([0; 65_535]),
        }
    }

    /// Asks all; the reply over UDP and over TCP. What differs once is asked again of new engines: where they stand
    /// in their draws may differ, which is no fault, and a finding must come from one input.
    pub(crate) fn ask(&mut self, message: &[u8], client: Client) -> [Option<Vec<u8>>; 2] {
        self.ask_once(message, client).unwrap_or_else(|_| {
            self.engines = engines(&self.words);
            self.ask_once(message, client)
                .unwrap_or_else(|difference| panic!("{difference}\nto {message:02x?}"))
        })
    }

    fn ask_once(&mut self, message: &[u8], client: Client) -> Result<[Option<Vec<u8>>; 2], String> {
        let Self {
            snapshot,
            engines: [udp, udp_steps, tcp, tcp_steps],
            located,
            ..
        } = self;
        let mut steps: Vec<Event> = Vec::new();
        let (on_udp, on_tcp) = (Transport::Udp, Transport::Tcp { keepalive: 100 });
        // What stood in the buffer before is nobody's business: other bytes for the twin.
        let over_udp = raw(
            udp,
            snapshot,
            located,
            &mut self.udp,
            0xa5,
            message,
            client,
            on_udp,
            &mut Silent,
        );
        let by_steps = raw(
            udp_steps,
            snapshot,
            located,
            &mut self.udp,
            0x5a,
            message,
            client,
            on_udp,
            &mut steps,
        );
        same("UDP", &over_udp, "UDP by every step", &by_steps)?;
        let over_tcp = raw(
            tcp,
            snapshot,
            located,
            &mut self.tcp,
            0xc0,
            message,
            client,
            on_tcp,
            &mut Silent,
        );
        let by_steps = raw(
            tcp_steps,
            snapshot,
            located,
            &mut self.tcp,
            0,
            message,
            client,
            on_tcp,
            &mut steps,
        );
        same("TCP", &over_tcp, "TCP by every step", &by_steps)?;
        match (&over_udp, &over_tcp) {
            (None, None) => {}
            (Some(udp), Some(tcp)) => agree(message, udp, tcp)?,
            _ => same("UDP", &over_udp, "TCP", &over_tcp)?,
        }
        Ok([over_udp, over_tcp])
    }
}

fn same(one: &str, reply: &Option<Vec<u8>>, other: &str, another: &Option<Vec<u8>>) -> Result<(), String> {
    match reply == another {
        true => Ok(()),
        false => Err(format!("{one} {reply:02x?}\n{other} {another:02x?}")),
    }
}

/// Four engines that draw the same, with this health.
fn engines(words: &[(WordTarget, WordValue)]) -> [Engine; 4] {
    let mut engines = [7; 4].map(Engine::new);
    for engine in &mut engines {
        engine.seconds = SECONDS;
        for &(target, value) in words {
            engine.chooser.words.set(target, value);
        }
    }
    engines
}

/// Whether the query names an idle timeout of its own: malformed over TCP, meaningless over UDP (RFC 7828 section 3.2.1).
fn names_a_timeout(message: &[u8]) -> bool {
    let named = |asked: reply::Read| {
        asked
            .options()
            .iter()
            .any(|(code, data)| *code == 11 && !data.is_empty())
    };
    reply::read(message, false).is_ok_and(named)
}

/// Both replies are lawful and say the same, as far as the one over UDP has room.
fn agree(message: &[u8], udp: &[u8], tcp: &[u8]) -> Result<(), String> {
    let (udp, tcp) = (
        reply::check(message, udp, Via::Udp),
        reply::check(message, tcp, Via::Tcp),
    );
    // What has no room over UDP may be as little as "come over TCP".
    if names_a_timeout(message) || udp.flags & 0x0200 != 0 {
        return Ok(());
    }
    let of = |read: &reply::Read| {
        (
            read.rcode(),
            read.flags,
            [1, 2, 3].map(|section| read.shape(section)),
        )
    };
    match of(&udp) == of(&tcp) {
        true => Ok(()),
        false => Err(format!("UDP {udp:02x?}\nTCP {tcp:02x?}")),
    }
}

#[allow(
    clippy::too_many_arguments,
    reason = "one call of the engine, as control's TCP makes it"
)]
fn raw<const N: usize, T: Trace>(
    engine: &mut Engine,
    snapshot: &Snapshot,
    located: &mut Located,
    buffer: &mut [u8; N],
    before: u8,
    message: &[u8],
    client: Client,
    transport: Transport,
    trace: &mut T,
) -> Option<Vec<u8>> {
    buffer[..4096].fill(before);
    buffer[..message.len()].copy_from_slice(message);
    located.locate(snapshot, buffer, message.len(), client);
    engine.find(snapshot, located);
    match engine.answer(snapshot, located, buffer, transport, trace) {
        Outcome::Reply { len, .. } => Some(buffer[..len].to_vec()),
        Outcome::Drop(_) => None,
    }
}
