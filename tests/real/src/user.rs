//! A closed-loop user: sends a burst of requests, waits for all answers, sends the next; and notes when and how long.

use crate::origin::message;
use anyhow::{Result, ensure};
use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windrose_traffic::sim::Burst;

/// What a user does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests in a burst.
    pub burst: usize,
    /// True: a new request for each answer, `burst` in flight.
    pub window: bool,
    /// Bytes of an answer, from and to.
    pub answer: (u64, u64),
    /// Bytes of a request's body; 0: a GET.
    pub body: usize,
    /// Share of answers that come twenty times as fast.
    pub hits: f64,
    /// Microseconds between answers and the next burst.
    pub think: u64,
}

/// One request at a time, of 100 bytes; small answers.
pub const PLAIN: Plan = Plan {
    burst: 1,
    window: false,
    answer: (100, 900),
    body: 0,
    hits: 0.0,
    think: 0,
};

impl Plan {
    /// How long the server shall take, microseconds: 1 to 10 ms, evenly in the logarithm.
    pub fn service(&self, random: &mut fastrand::Rng) -> u64 {
        let micros = 1000.0 * 10f64.powf(random.f64());
        (if random.f64() < self.hits {
            micros / 20.0
        } else {
            micros
        }) as u64
    }

    /// Bytes of an answer.
    pub fn answer(&self, random: &mut fastrand::Rng) -> u64 {
        random.u64(self.answer.0..=self.answer.1)
    }
}

/// Nanoseconds since 1970, on the clock that captures are stamped by.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos() as u64
}

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// HTTP/1.1.
    Http,
    /// memcached's text protocol: as many gets as sets.
    Memcached,
}

impl Language {
    fn request(self, plan: &Plan, random: &mut fastrand::Rng) -> Vec<u8> {
        match self {
            Language::Http => {
                let (micros, bytes) = (plan.service(random), plan.answer(random));
                let verb = if plan.body > 0 { "POST" } else { "GET" };
                let length = if plan.body > 0 {
                    format!("Content-Length: {}\r\n", plan.body)
                } else {
                    String::new()
                };
                let head =
                    format!("{verb} /{micros}/{bytes} HTTP/1.1\r\nHost: server.example\r\n{length}\r\n");
                [head.into_bytes(), vec![b'y'; plan.body]].concat()
            }
            Language::Memcached => {
                let key = random.u32(0..64);
                if random.bool() {
                    return format!("get key{key}\r\n").into_bytes();
                }
                let bytes = plan.answer(random) as usize;
                let head = format!("set key{key} 0 0 {bytes}\r\n").into_bytes();
                [head, vec![b'z'; bytes], b"\r\n".to_vec()].concat()
            }
        }
    }

    /// Length of the answer at the start of `buffer`, when all is there.
    fn answer(self, buffer: &[u8]) -> Option<usize> {
        match self {
            Language::Http => message(buffer).map(|(_, whole)| whole),
            Language::Memcached => {
                (buffer.ends_with(b"END\r\n") || buffer.ends_with(b"STORED\r\n")).then_some(buffer.len())
            }
        }
    }
}

/// Asks for `time` over `stream`; the truth of each burst. `delay`: microseconds from the client to the vantage point.
///
/// # Errors
/// When the connection breaks.
pub fn ask(
    stream: &mut (impl Read + Write),
    language: Language,
    plan: &Plan,
    time: Duration,
    delay: u64,
    seed: u64,
) -> Result<Vec<Burst>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut bursts, mut buffer, mut piece) = (Vec::new(), Vec::new(), vec![0; 65_536]);
    let over = Instant::now() + time;
    let mut sent = std::collections::VecDeque::new();
    let mut waiting = 0;
    while Instant::now() < over {
        let start = now();
        for _ in 0..plan.burst - waiting {
            sent.push_back(now());
            stream.write_all(&language.request(plan, &mut random))?;
            stream.flush()?;
            waiting += 1;
        }
        let least = if plan.window { plan.burst - 1 } else { 0 };
        while waiting > least {
            let got = stream.read(&mut piece)?;
            ensure!(got > 0, "the server closed the connection");
            buffer.extend_from_slice(&piece[..got]);
            while let Some(whole) = language.answer(&buffer) {
                buffer.drain(..whole);
                waiting -= 1;
                let first = sent.pop_front().unwrap_or(start);
                if plan.window {
                    bursts.push(burst(first, delay));
                }
            }
        }
        if !plan.window {
            bursts.push(burst(start, delay));
        }
        if plan.think > 0 {
            std::thread::sleep(Duration::from_micros(plan.think));
        }
    }
    Ok(bursts)
}

/// A burst that was sent at `sent` and is answered now.
pub fn burst(sent: u64, delay: u64) -> Burst {
    Burst {
        at: sent + delay * 1000,
        sent,
        latency: now().saturating_sub(sent),
    }
}
