//! What the stage says of a capture, packet by packet.

use crate::wires::SERVER;
use anyhow::{Context, Result, ensure};
use dataplane::arch::TickRate;
use dataplane::flow::Moment;
use dataplane::flow::estimate::Kind;
use dataplane::io::WINDOW;
use dataplane::stages::flow_latency::sight::Seen;
use dataplane::stages::flow_latency::{FlowLatency, FlowLimits, Tables, Taken};
use dataplane::tables::Classes;
use dataplane::tables::servers::{Server, Servers, Watching};
use std::path::Path;
use windrose_traffic::score::Said;
use windrose_traffic::sim::Packet;

/// Client classes and measured servers: the one server, for everybody.
///
/// # Errors
/// Never in practice: what the tables say.
pub fn tables() -> Result<(Classes, Servers)> {
    let server = Server {
        address: SERVER.into(),
        len: 32,
        site: None,
    };
    Ok((
        Classes::build(vec![], vec![], 1)?,
        Servers::build(vec![server], Watching::default())?,
    ))
}

/// What a capture holds.
#[derive(Debug, Default)]
pub struct Heard {
    /// What the stage said, by kind.
    pub responses: Vec<Said>,
    /// The second figure.
    pub answers: Vec<Said>,
    /// Packets of measured flows, for the algorithms that take times.
    pub packets: Vec<Packet>,
}

/// Runs the stage over a capture of tcpdump with nanosecond stamps.
///
/// # Errors
/// When it cannot be read.
pub fn hear(path: &Path) -> Result<Heard> {
    let bytes = std::fs::read(path)?;
    ensure!(
        bytes.starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]),
        "no pcap file with nanoseconds"
    );
    let (classes, servers) = tables()?;
    let tables = Tables {
        classes: &classes,
        servers: &servers,
    };
    let limits = FlowLimits {
        flows: 1024,
        ..FlowLimits::default()
    };
    let mut stage = FlowLatency::new(limits, 1, TickRate::from_hz(1_000_000_000))?;
    let mut heard = Heard::default();
    let mut window = Box::new([0; WINDOW]);
    let mut rest = &bytes[24..];
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (at, len) = (
            u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)),
            word(8) as usize,
        );
        let frame = behind.get(..len).context("the capture ends inside a packet")?;
        rest = &behind[len..];
        let len = len.min(WINDOW);
        window[..len].copy_from_slice(&frame[..len]);
        let mut told = Vec::new();
        let (sight, taken) = stage.frame(&window, len, Moment::from_nanos(at), tables, |sample| {
            told.push(sample)
        });
        for sample in told {
            let took = sample.sample.value.nanos();
            let said = Said {
                start: at.saturating_sub(took),
                took,
                confidence: sample.sample.doubts.confidence(),
            };
            match sample.sample.kind {
                Kind::Response => heard.responses.push(said),
                Kind::Answer => heard.answers.push(said),
                _ => {}
            }
        }
        if taken == Taken::Not {
            continue;
        }
        let packet = match sight.seen() {
            Seen::Tcp(segment) => Packet {
                at,
                syn: segment.flags & 2 != 0,
                sequence: segment.sequence,
                acknowledgment: segment.acknowledgment,
                payload: segment.payload,
            },
            // Told by size, as the stage does.
            Seen::Hidden(datagram) => Packet {
                at,
                syn: false,
                sequence: 0,
                acknowledgment: 0,
                payload: if datagram.len <= datagram.ack_max {
                    0
                } else {
                    datagram.len
                },
            },
            Seen::Nothing => continue,
        };
        heard.packets.push(packet);
    }
    Ok(heard)
}
