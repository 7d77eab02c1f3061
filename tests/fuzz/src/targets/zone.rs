//! Text of a zone file: read, checked, compiled, and every name that it makes asked for. Whatever loads is answered
//! lawfully; whatever does not is said with a place in the file. Input: the text.

use crate::reply::{self, Via};
use crate::{Runner, Target, seeds};
use control::config::{Severity, load_with_warnings};
use control::health::Standing;
use control::policy::Compiler;
use dataplane::stages::dns_answer::{Client, Engine, Located, Outcome, Silent, Transport};
use std::fs;
use std::sync::Arc;

pub(crate) const TARGET: Target = Target {
    name: "zone",
    runner,
    seeds: seeds::zones,
    bounded: 1_000,
    len_max: 4000,
};

const CONFIG: &str = "[dataplane]\ncores = [1]\n[[port]]\nname = \"wan\"\ndevice = \"net_null0\"\n\
    addresses = [\"192.0.2.53\"]\n[[zone]]\nname = \"example.com\"\nfile = \"zone\"\n";
/// Names of a zone that are asked for at most.
const ASKED_MAX: usize = 40;

fn runner() -> Runner {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("windrose.toml");
    fs::write(&config, CONFIG).unwrap();
    let mut buffer = Box::new([0; 65_535]);
    Box::new(move |text| {
        if outside(text) {
            return;
        }
        fs::write(folder.path().join("zone"), text).unwrap();
        let config = match load_with_warnings(&config) {
            Ok((config, _)) => config,
            Err(found) => {
                let errors: Vec<_> = found.iter().filter(|d| d.severity == Severity::Error).collect();
                assert!(!errors.is_empty(), "refused without an error");
                let lines = text.split(|&b| b == b'\n').count();
                assert!(
                    errors.iter().all(|d| d.line <= lines),
                    "a line past the end: {found}"
                );
                return;
            }
        };
        let zone = config.zones[0].clone();
        let compiled = Compiler::default()
            .compile(Arc::new(config), Vec::new(), |_| Standing::UP, 0)
            .expect("it loaded");
        let (mut engine, mut located) = (Engine::new(1), Located::default());
        for set in zone.rrsets.iter().take(ASKED_MAX) {
            let below = [b"\x01x", set.owner.as_slice()].concat();
            for (name, rtype) in [
                (set.owner.as_slice(), set.rtype),
                (set.owner.as_slice(), 1),
                (&below, set.rtype),
            ] {
                if name.len() > 255 {
                    continue;
                }
                let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                query.extend(name);
                query.extend(rtype.to_be_bytes());
                query.extend([0, 1]);
                for (transport, via) in [
                    (Transport::Udp, Via::Udp),
                    (Transport::Tcp { keepalive: 1 }, Via::Tcp),
                ] {
                    buffer[..query.len()].copy_from_slice(&query);
                    located.locate(
                        &compiled.snapshot,
                        &buffer,
                        query.len(),
                        Client::V4([10, 1, 2, 3]),
                    );
                    engine.find(&compiled.snapshot, &mut located);
                    let outcome = engine.answer(
                        &compiled.snapshot,
                        &mut located,
                        &mut buffer,
                        transport,
                        &mut Silent,
                    );
                    let Outcome::Reply { len, .. } = outcome else {
                        panic!("no reply to {query:02x?}")
                    };
                    reply::check(&query, &buffer[..len], via);
                }
            }
        }
    })
}

/// Text that reads other files, or makes more records than a run has time for.
fn outside(text: &[u8]) -> bool {
    let upper = text.to_ascii_uppercase();
    let has = |word: &[u8]| upper.windows(word.len()).any(|part| part == word);
    let digits = upper.split(|b| !b.is_ascii_digit()).map(<[u8]>::len).max();
    has(b"$INCLUDE") || has(b"$GENERATE") && digits > Some(3)
}
