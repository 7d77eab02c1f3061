//! A byte stream over TCP, cut into segments anywhere, through the framer and the engine: the same messages come out
//! however it was cut, each answered lawfully. Input: one byte that sets the cuts, then the stream.

use super::message::Engines;
use crate::{Runner, Target, seeds};
use control::tcp::framing::Framer;
use dataplane::stages::dns_answer::Client;

pub(crate) const TARGET: Target = Target {
    name: "stream",
    runner,
    seeds: seeds::streams,
    bounded: 8_000,
    len_max: 4000,
};

fn runner() -> Runner {
    let mut engines = Engines::new();
    Box::new(move |input| {
        let Some((&cuts, stream)) = input.split_first() else {
            return;
        };
        let wanted = messages(stream);
        let (mut got, mut framer, mut rest) = (Vec::new(), Framer::default(), stream);
        let mut rng = fastrand::Rng::with_seed(cuts.into());
        let mut bad = false;
        'stream: while !rest.is_empty() {
            let most = rest.len().min(1 << (cuts % 11));
            let (part, after) = rest.split_at(rng.usize(1..=most));
            rest = after;
            framer.input().extend(part);
            loop {
                match framer.next_message() {
                    Ok(Some(message)) => got.push(message.to_vec()),
                    Ok(None) => break,
                    Err(_) => {
                        bad = true;
                        break 'stream;
                    }
                }
            }
        }
        assert_eq!(
            (&got, bad),
            (&wanted.0, wanted.1),
            "in segments by {cuts} of {stream:02x?}"
        );
        for message in got.iter().filter(|m| m.len() <= 4096) {
            engines.ask(message, Client::V4([203, 0, 113, 1]));
        }
    })
}

/// The whole messages of a stream (RFC 1035 section 4.2.2), and whether it then has a length below a header's.
fn messages(mut stream: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut found = Vec::new();
    while let [a, b, rest @ ..] = stream {
        let len = usize::from(u16::from_be_bytes([*a, *b]));
        if len < 12 {
            return (found, true);
        }
        let Some(message) = rest.get(..len) else { break };
        found.push(message.to_vec());
        stream = &rest[len..];
    }
    (found, false)
}
